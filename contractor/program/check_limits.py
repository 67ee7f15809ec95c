"""A spec is data from anywhere: what is too large or too deep to be checked is refused first, in time linear in its size."""

from __future__ import annotations

from contractor.program.check_scope import MOST_AXES, Scope, is_axis
from contractor.text import spec
from contractor.text.walk import within

MOST_STATEMENTS = 2_000
MOST_NODES = 50_000
DEEPEST = 100
MOST_OPERANDS = 64


def within_limits(scope: Scope, layer: spec.Layer) -> bool:
    """True if the layer is small enough; else the mistake is written down."""
    if len(layer.statements) > MOST_STATEMENTS:
        scope.wrong(f"a layer has at most {MOST_STATEMENTS} statements, this one has {len(layer.statements)}", layer.name.span)
        return False
    nodes = 0
    for statement in layer.statements:
        for node, depth in within(statement):
            nodes += 1
            if depth > DEEPEST:
                scope.wrong(f"an expression is nested at most {DEEPEST} deep", node.span, hint="define parts of it under names")
                return False
            if isinstance(node, spec.Contraction) and len(node.arguments) > MOST_OPERANDS:
                scope.wrong(f"a contraction has at most {MOST_OPERANDS} operands, this one has {len(node.arguments)}", node.span)
                return False
            if nodes > MOST_NODES:
                scope.wrong(f"a layer has at most {MOST_NODES} terms", node.span)
                return False
    letters = all_letters(layer)
    if len(letters) > MOST_AXES:
        scope.wrong(f"a layer has at most {MOST_AXES} different axes, this one has {len(letters)}", layer.name.span)
        return False
    return True


def all_letters(layer: spec.Layer) -> set[str]:
    """Every axis letter that is written in brackets anywhere in the layer."""
    written = [name.text for statement in layer.statements if not isinstance(statement, spec.Output) for name in statement.axes]
    for statement in layer.statements:
        relabels = (node for node, _ in within(statement) if isinstance(node, spec.Relabel))
        written += [name.text for node in relabels for name in node.axes]
    return {letter for letter in written if is_axis(letter)}
