"""An expression with the two positions exchanged: what it says of each source, said of each target (T and S are one length)."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from contractor.errors import ContractorError
from contractor.program.expression import (
    Apply,
    Axes,
    Concat,
    Constant,
    Contract,
    Expression,
    Outer,
    Position,
    Reduce,
    Relabel,
    Size,
    Variable,
)

OTHER = {"T": "S", "S": "T"}


def other(axes: Axes) -> Axes:
    """The axes with T and S exchanged."""
    return tuple(OTHER.get(axis, axis) for axis in axes)


def sorted_axes(axes: Axes) -> Axes:
    """T, S, then the features."""
    found = other(axes)
    return tuple(axis for axis in ("T", "S") if axis in found) + tuple(axis for axis in found if axis not in OTHER)


def exchanged(expression: Expression) -> Expression:
    """The expression under the other position. Raises ContractorError where it holds a mask."""
    match expression:
        case Constant():
            return expression
        case Size():
            return replace(expression, axis=OTHER.get(expression.axis, expression.axis))
        case Position():
            return replace(expression, axis="S" if expression.axis == "T" else "T")
        case Variable():
            return Relabel(expression, other(expression.axes)) if set(expression.axes) & set(OTHER) else expression
        case Relabel():
            return replace(expression, axes=other(expression.axes))
        case Apply():
            arguments = tuple(exchanged(argument) for argument in expression.arguments)
            return replace(expression, arguments=arguments, axes=sorted_axes(expression.axes))
        case Reduce(under=None):
            return replace(expression, value=exchanged(expression.value), over=other(expression.over), axes=sorted_axes(expression.axes))
        case Concat():
            parts = tuple(exchanged(part) for part in expression.parts)
            return replace(expression, parts=parts, axes=sorted_axes(expression.axes))
        case Outer():
            sides = exchanged(expression.left), exchanged(expression.right)
            return replace(expression, left=sides[0], right=sides[1], axes=sorted_axes(expression.axes))
        case Contract(mask=None):
            return contraction(expression)
        case Contract() | Reduce():
            raise ContractorError("define what is reversed under a name of its own first: it holds a mask")
        case _:
            assert_never(expression)


def contraction(node: Contract) -> Contract:
    """An ordinary contraction under the other position; its letters follow the operands' own order of axes."""
    operands = tuple(exchanged(operand) for operand in node.operands)
    letters: list[Axes] = []
    for operand, before, own in zip(operands, node.operands, node.letters, strict=True):
        name_of = dict(zip(other(before.axes), other(own), strict=True))
        letters.append(tuple(name_of[axis] for axis in operand.axes))
    return replace(node, operands=operands, letters=tuple(letters), axes=sorted_axes(node.axes))
