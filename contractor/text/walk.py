"""Expressions without recursion, so that their depth can be measured before anything recursive meets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from contractor.text import spec


def walk(expression: spec.Expression) -> Iterator[tuple[spec.Expression, int]]:
    """The expression and every one inside it, each with its depth, counted from 1."""
    stack = [(expression, 1)]
    while stack:
        node, depth = stack.pop()
        yield node, depth
        stack += [(inner, depth + 1) for inner in parts(node)]


def within(statement: spec.Statement) -> Iterator[tuple[spec.Expression, int]]:
    """Every expression in a statement, each with its depth."""
    for value in values(statement):
        yield from walk(value)


def values(statement: spec.Statement) -> tuple[spec.Expression, ...]:
    """The expressions of a statement."""
    match statement:
        case spec.Declaration():
            return ()
        case spec.Definition():
            return (statement.value,)
        case spec.Output():
            return statement.values
        case _:
            assert_never(statement)


def parts(node: spec.Expression) -> tuple[spec.Expression, ...]:
    """The expressions directly inside an expression."""
    match node:
        case spec.Name() | spec.Constant() | spec.Relabel():
            return ()
        case spec.Negation():
            return (node.operand,)
        case spec.Arithmetic():
            return (node.left, node.right)
        case spec.Call():
            options = tuple(option.value for option in node.options)
            return node.arguments + options + (() if node.under is None else (node.under,))
        case spec.Contraction():
            return node.arguments
        case _:
            assert_never(node)
