"""Expressions that take away, keep or make axes by name: reductions over axes, concat and outer."""

from __future__ import annotations

from typing import Literal, cast

from contractor.errors import Span
from contractor.program.check_mask import mask_under
from contractor.program.check_scope import (
    Left,
    Read,
    Scope,
    features_of,
    listed,
    positions_of,
    read_axes,
    real_of,
    shown,
    union,
)
from contractor.program.expression import POSITIONS, Axes, Concat, Expression, Mask, Number, Outer, Reduce
from contractor.text import spec

Over = Literal["sum", "mean", "max", "softmax", "l2norm", "rmsnorm"]
GONE = ("sum", "mean", "max")


def reduction(scope: Scope, node: spec.Call, left: Left, read: Read) -> Reduce | None:
    """`sum(x over N)`, `softmax(x over S under L)` and the like."""
    called = node.function.text
    if not node.over:
        return scope.wrong(f"{called}() goes over axes", node.span, hint=f"write `{called}(x over N)`")
    if len(node.arguments) != 1:
        return scope.wrong(f"{called}(x over …) takes one argument, not {len(node.arguments)}", node.span)
    over = read_axes(scope, node.over)
    value = read(scope, node.arguments[0], left)
    if node.under is None:
        return None if over is None or value is None else reduced(scope, node, value, over, None)
    if called != "softmax":
        return scope.wrong(f"{called}() takes no mask: `under` belongs to softmax", node.under.span)
    mask = mask_under(scope, node.under, read)
    return None if over is None or value is None or mask is None else reduced(scope, node, value, over, mask)


def reduced(scope: Scope, node: spec.Call, value: Expression, over: Axes, mask: Mask | None) -> Reduce | None:
    """The node, once its axes are there and its numbers have an order where one is needed."""
    called = cast(Over, node.function.text)
    there = value.axes if mask is None else union(value.axes, POSITIONS)
    for letter in node.over:
        if letter.text not in there:
            has = f"it has {shown(there)}" if there else "it is a number"
            return scope.wrong(f"{called}() over {letter.text}: the value has no such axis, {has}", letter.span)
    if mask is not None and not positions_of(over):
        return scope.wrong("softmax under a mask goes over S", *(letter.span for letter in node.over), hint="write `over S`")
    if called in ("max", "softmax") and value.number is Number.COMPLEX:
        return scope.wrong(f"{called}() takes real values only, this one is complex", node.arguments[0].span, hint=real_of(called))
    axes = tuple(axis for axis in there if axis not in over) if called in GONE else there
    number = value.number if called == "sum" else max(value.number, Number.REAL)
    return Reduce(called, value, over, mask, axes, number)


# ---- axes that the left side names -----------------------------------------------------------------------------------------------


def concat(scope: Scope, node: spec.Call, left: Left, read: Read) -> Concat | None:
    """Parts laid end to end along the one axis of the left side that none of them has."""
    if not node.arguments:
        return scope.wrong("concat() needs something to lay end to end", node.span)
    values = [read(scope, argument, (scope.spare,)) for argument in node.arguments]
    parts = tuple(value for value in values if value is not None)
    if len(parts) < len(values):
        return None
    axis = new_axis(scope, node, left, union(*(part.axes for part in parts)))
    if left is None or axis is None:
        return None
    for part, argument in zip(parts, node.arguments, strict=True):
        if not fits(scope, part, left, argument.span):
            return None
    common = union(*(tuple(letter for letter in part.axes if letter in left) for part in parts))
    return Concat(parts, axis, (*common, axis), max(part.number for part in parts))


def fits(scope: Scope, part: Expression, left: Axes, span: Span) -> bool:
    """True if a part of a concat has at most one axis that is not on the left, and no such position."""
    own = tuple(axis for axis in part.axes if axis not in left)
    if positions_of(own):
        scope.wrong(f"this part of concat() has the position {positions_of(own)[0]}, which is not on the left {shown(left)}", span)
    elif len(own) > 1:
        hint = "each part has at most one; of a matrix `outer(…)` or a sum makes one"
        scope.wrong(f"this part of concat() has {len(own)} axes that are not on the left {shown(left)}", span, hint=hint)
    return len(own) <= 1 and not positions_of(own)


def outer(scope: Scope, node: spec.Call, left: Left, read: Read) -> Outer | None:
    """The outer product over all feature axes of both, as one new axis."""
    if len(node.arguments) != 2:
        return scope.wrong(f"outer(x, y) takes 2 arguments, not {len(node.arguments)}", node.span)
    first, second = (read(scope, argument, (scope.spare,)) for argument in node.arguments)
    if first is None or second is None:
        return None
    positions = positions_of(union(first.axes, second.axes))
    axis = new_axis(scope, node, left, union(first.axes, second.axes))
    return None if axis is None else Outer(first, second, axis, (*positions, axis), max(first.number, second.number))


def new_axis(scope: Scope, node: spec.Call, left: Left, taken: Axes) -> str | None:
    """The one feature axis on the left that the operands do not have."""
    called = node.function.text
    if left is None:
        hint = f"define it under a name first: `phi [T, F] = {called}(…)`"
        return scope.wrong(f"the axis of {called}() has no name here", node.span, hint=hint)
    free = [axis for axis in features_of(left) if axis not in taken]
    if len(free) == 1:
        return free[0]
    if free:
        return scope.wrong(f"{called}() could lie along {listed(free, 'or')}", node.span, hint="define it on its own, with one new axis")
    hint = f"its operands have {shown(taken)}; add a letter of its own, as in `phi [T, F] = {called}(…)`"
    return scope.wrong(f"{called}() needs a new axis on the left {shown(left)}", node.span, hint=hint)
