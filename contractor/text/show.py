"""Canonical text of a Spec: one spacing, no parenthesis that precedence makes needless, and `parse(show(spec)) == spec`.

Holds for every Spec that can be read; a negative number is written, and read, as the negation of a positive one.
"""

from __future__ import annotations

from itertools import groupby
from typing import assert_never

from contractor.text.spec import (
    Arithmetic,
    Call,
    Constant,
    Contraction,
    Declaration,
    Definition,
    Expression,
    Layer,
    Name,
    Negation,
    Output,
    Promise,
    Relabel,
    Spec,
    Statement,
)

SUM, PRODUCT, SIGNED, POWER, ATOM = range(5)
BINDING = {
    "+": (SUM, SUM, PRODUCT),
    "-": (SUM, SUM, PRODUCT),
    "*": (PRODUCT, PRODUCT, SIGNED),
    "/": (PRODUCT, PRODUCT, SIGNED),
    "^": (POWER, ATOM, SIGNED),
}


def show(spec: Spec) -> str:
    """The text of a file: layers, and in them declarations, definitions and outputs, apart by a blank line."""
    return "\n".join(show_layer(layer) for layer in spec.layers)


def show_layer(layer: Layer) -> str:
    """One layer, ended by a newline."""
    blocks = groupby(layer.statements, key=type)
    texts = ["\n".join(show_statement(statement) for statement in block) for _, block in blocks]
    return "\n\n".join([f"layer {layer.name.text}", *texts]) + "\n"


def show_statement(statement: Statement) -> str:
    """One line."""
    match statement:
        case Declaration():
            kind = "" if statement.number == "real" else f" : {statement.number}"
            return f"{statement.role} {statement.name.text} [{listed(statement.axes)}]{kind}{show_promise(statement.promise)}"
        case Definition():
            return f"{statement.name.text} [{listed(statement.axes)}] = {show_expression(statement.value)}"
        case Output():
            return f"output {', '.join(show_expression(value) for value in statement.values)}"
        case _:
            assert_never(statement)


def show_promise(promise: Promise | None) -> str:
    """` in [0, inf]`, or nothing."""
    bounds = [] if promise is None else [repr(bound).removesuffix(".0") for bound in (promise.low, promise.high)]
    return f" in [{', '.join(bounds)}]" if bounds else ""


def listed(names: tuple[Name, ...]) -> str:
    """`T, N`."""
    return ", ".join(name.text for name in names)


def show_expression(node: Expression, least: int = SUM) -> str:
    """An expression; in parentheses if it binds looser than `least`."""
    text, binding = written(node)
    return text if binding >= least else f"({text})"


def written(node: Expression) -> tuple[str, int]:
    """An expression without parentheses around it, and how tightly it binds."""
    match node:
        case Name():
            return node.text, ATOM
        case Constant():
            return repr(node.value), ATOM
        case Relabel():
            return f"{node.name.text}[{listed(node.axes)}]", ATOM
        case Negation():
            return f"-{show_expression(node.operand, SIGNED)}", SIGNED
        case Arithmetic():
            binding, left, right = BINDING[node.sign]
            return f"{show_expression(node.left, left)} {node.sign} {show_expression(node.right, right)}", binding
        case Call():
            return show_call(node), ATOM
        case Contraction():
            result = f" {node.result.text}" if node.result else " "
            arguments = ", ".join(show_expression(argument) for argument in node.arguments)
            return f"contract({listed(node.operands)} ->{result})({arguments})", ATOM
        case _:
            assert_never(node)


def show_call(call: Call) -> str:
    """`f(x, option = y over S under L)`."""
    inside = [show_expression(argument) for argument in call.arguments]
    inside += [f"{option.name.text} = {show_expression(option.value)}" for option in call.options]
    over = [f"over {listed(call.over)}"] if call.over else []
    under = [f"under {show_expression(call.under)}"] if call.under else []
    return f"{call.function.text}({' '.join([*([', '.join(inside)] if inside else []), *over, *under])})"
