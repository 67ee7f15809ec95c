"""A spec is data from anywhere: what is too large or too deep to be checked is refused first, in time linear in its size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from contractor.program.check_scope import MOST_AXES, Scope, is_axis
from contractor.text import spec

MOST_STATEMENTS = 2_000
MOST_NODES = 50_000
DEEPEST = 100


def within_limits(scope: Scope, layer: spec.Layer) -> bool:
    """True if the layer is small enough; else the mistake is written down."""
    if len(layer.statements) > MOST_STATEMENTS:
        scope.wrong(f"a layer has at most {MOST_STATEMENTS} statements, this one has {len(layer.statements)}", layer.name.span)
        return False
    nodes = 0
    for statement in layer.statements:
        for node, depth in walk(statement):
            nodes += 1
            if depth > DEEPEST:
                scope.wrong(f"an expression is nested at most {DEEPEST} deep", node.span, hint="define parts of it under names")
                return False
            if nodes > MOST_NODES:
                scope.wrong(f"a layer has at most {MOST_NODES} terms", node.span)
                return False
    letters = all_letters(layer)
    if len(letters) > MOST_AXES:
        scope.wrong(f"a layer has at most {MOST_AXES} different axes, this one has {len(letters)}", layer.name.span)
        return False
    return True


def walk(statement: spec.Statement) -> Iterator[tuple[spec.Expression, int]]:
    """Every expression in a statement with its depth, without recursion."""
    stack = [(value, 1) for value in values(statement)]
    while stack:
        node, depth = stack.pop()
        yield node, depth
        stack += [(inner, depth + 1) for inner in parts(node)]


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


def all_letters(layer: spec.Layer) -> set[str]:
    """Every axis letter that is written in brackets anywhere in the layer."""
    written = [name.text for statement in layer.statements if not isinstance(statement, spec.Output) for name in statement.axes]
    for statement in layer.statements:
        relabels = (node for node, _ in walk(statement) if isinstance(node, spec.Relabel))
        written += [name.text for node in relabels for name in node.axes]
    return {letter for letter in written if is_axis(letter)}
