"""The nodes of a Spec, built rule by rule as the parser reduces: one method for each rule of the grammar that has a node."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from lark import Token, Transformer

from contractor.errors import Mistake, Span
from contractor.text import spec
from contractor.text.scan import span_of

LARGEST_INT = 2**63 - 1
Children = list[Any]


class Misread(Exception):
    """A statement that fits the grammar and is still not one: a number out of range, a bound that is none."""

    def __init__(self, message: str, token: Token, hint: str) -> None:
        self.mistake = Mistake(message, (span_of(token),), hint)
        super().__init__(message)


def where(child: Any) -> Span:
    """Where a token or a node stands; a tuple of nodes stands from its first to its last."""
    if isinstance(child, Token):
        return span_of(child)
    return across(child) if isinstance(child, tuple) else child.span


def across(children: Any) -> Span:
    """From the first child that is there to the last."""
    there = [child for child in children if child is not None]
    return Span(where(there[0]).start, where(there[-1]).stop)


def number(token: Token) -> int | float:
    """The finite number that is written; one without point and exponent is an int."""
    if token.isdecimal():
        value = int(token) if len(token.lstrip("0")) <= len(str(LARGEST_INT)) else LARGEST_INT + 1
        if value > LARGEST_INT:
            raise Misread("this integer does not fit into 64 bits", token, "a real number has a point or an exponent: `1e30`")
        return value
    if not math.isfinite(float(token)):
        raise Misread("this number is not finite in 64 bits", token, "the largest is about 1.8e308")
    return float(token)


class Builder(Transformer[Token, spec.Spec]):
    """Rule to node. It holds no state, so one serves every parse."""

    def spec(self, children: Children) -> spec.Spec:
        return spec.Spec(tuple(children))

    def layer(self, children: Children) -> spec.Layer:
        name, *statements = children
        return spec.Layer(name, tuple(statements), across(children))

    def declaration(self, children: Children) -> spec.Declaration:
        role, name, _, axes, _, kind, promise = children
        return spec.Declaration(role.value, name, axes or (), kind[1].value if kind else "real", promise, across(children))

    def kind(self, children: Children) -> tuple[Token, ...]:
        return tuple(children)

    def promise(self, children: Children) -> spec.Promise:
        _, _, low, _, high, _ = children
        return spec.Promise(low[0], high[0], across(children))

    def bound(self, children: Children) -> tuple[float]:
        *minus, written = children
        if written.type == "NAME" and written.value != "inf":
            raise Misread(f"`{written[:40]}` is not a bound", written, "a bound is a number, `inf` or `-inf`")
        value = float(number(written)) if written.type == "NUMBER" else math.inf
        return (-value if minus else value,)

    def definition(self, children: Children) -> spec.Definition:
        name, _, axes, _, _, value = children
        return spec.Definition(name, axes or (), value, across(children))

    def output(self, children: Children) -> spec.Output:
        return spec.Output(children[1], across(children))

    def name(self, children: Children) -> spec.Name:
        return spec.Name(children[0].value, span_of(children[0]))

    def names(self, children: Children) -> tuple[spec.Name, ...]:
        return tuple(children)

    def expressions(self, children: Children) -> tuple[spec.Expression, ...]:
        return tuple(children)

    def arithmetic(self, children: Children) -> spec.Arithmetic:
        left, sign, right = children
        return spec.Arithmetic(sign.value, left, right, across(children))

    def negation(self, children: Children) -> spec.Negation:
        return spec.Negation(children[1], across(children))

    def constant(self, children: Children) -> spec.Constant:
        return spec.Constant(number(children[0]), span_of(children[0]))

    def relabel(self, children: Children) -> spec.Relabel:
        name, _, axes, _ = children
        return spec.Relabel(name, axes or (), across(children))

    def group(self, children: Children) -> spec.Expression:
        return replace(children[1], span=across(children))

    def call(self, children: Children) -> spec.Call:
        function, _, *inside, over, under, _ = children
        options = tuple(child for child in inside if isinstance(child, spec.Option))
        arguments = tuple(child for child in inside if not isinstance(child, spec.Option))
        return spec.Call(function, arguments, options, over or (), under, across(children))

    def option(self, children: Children) -> spec.Option:
        name, value = children
        return spec.Option(name, value, across(children))

    def over(self, children: Children) -> tuple[spec.Name, ...]:
        return children[0]

    def under(self, children: Children) -> spec.Expression:
        return children[0]

    def contraction(self, children: Children) -> spec.Contraction:
        _, _, operands, _, result, _, _, arguments, _ = children
        return spec.Contraction(operands, result, arguments or (), across(children))
