"""Expressions: from what was written to typed nodes, each knowing its axes and its kind of number.

Every reader here returns the node, or None after writing the mistake down; None inside gives None outside without a second report.
`left` are the axes that give concat and outer their name: the left side of a definition, or the letters of a contraction.
"""

from __future__ import annotations

import math
from typing import assert_never

from contractor.errors import Span
from contractor.program.check_contract import contraction
from contractor.program.check_mask import is_mask
from contractor.program.check_reduce import concat, outer, reduction
from contractor.program.check_scope import (
    MOVE,
    TURNS,
    Broken,
    Left,
    MaskSymbol,
    Scope,
    Tensor,
    features_of,
    is_axis,
    listed,
    plural,
    read_axes,
    real_of,
    reserved,
    shown,
    union,
)
from contractor.program.expression import (
    POSITIONS,
    Apply,
    Constant,
    Expression,
    Number,
    Position,
    Relabel,
    Size,
    Variable,
)
from contractor.program.functions import ELEMENTWISE, FUNCTIONS, REDUCTIONS
from contractor.program.masks import MASKS
from contractor.text import spec

LARGEST_EXACT = 2**53


def read(scope: Scope, node: spec.Expression, left: Left = None) -> Expression | None:
    """One expression."""
    if is_mask(scope, node):
        return misplaced_mask(scope, node)
    match node:
        case spec.Constant():
            return constant(scope, node)
        case spec.Name():
            return name(scope, node)
        case spec.Relabel():
            return relabel(scope, node)
        case spec.Negation():
            return negation(scope, node, left)
        case spec.Arithmetic():
            return elementwise(scope, node.sign, (node.left, node.right), node.span, left)
        case spec.Call():
            return call(scope, node, left)
        case spec.Contraction():
            return contraction(scope, node, read)
        case _:
            assert_never(node)


def misplaced_mask(scope: Scope, node: spec.Expression) -> None:
    """A mask where a tensor is wanted."""
    called = f"`{node.text}` is a mask" if isinstance(node, spec.Name) else "this is a mask"
    hint = "a mask stands in a contraction, after `under`, or as the whole right side of `L [T, S, …] = …`"
    if isinstance(node, spec.Relabel):
        hint = "a mask is never relabelled: the letters of the contraction rename its extra axes"
    scope.wrong(f"{called}, not a tensor", node.span, hint=hint)


# ---- names and numbers ------------------------------------------------------------------------------------------------------


def constant(scope: Scope, node: spec.Constant) -> Constant | None:
    """A finite number; an integer too large to be exact in float64 becomes real."""
    try:
        as_float = float(node.value)
    except OverflowError:
        as_float = math.inf
    if not math.isfinite(as_float):
        return scope.wrong("a number in an expression is finite", node.span)
    exact = isinstance(node.value, int) and abs(node.value) <= LARGEST_EXACT
    return Constant(node.value if exact else as_float)


def name(scope: Scope, node: spec.Name) -> Variable | Size | None:
    """A tensor; if there is none, the size of an axis."""
    match scope.symbols.get(node.text):
        case Tensor() as tensor:
            return tensor.variable
        case Broken() | MaskSymbol():
            return None
        case None:
            return size(scope, node)


def size(scope: Scope, node: spec.Name) -> Size | None:
    """The size of an axis of the layer."""
    if node.text in scope.axes or (node.text in POSITIONS and scope.sized & set(POSITIONS)):
        return Size(node.text)
    if node.text in scope.later:
        return scope.wrong(f"`{node.text}` is used before it is defined", node.span, scope.later[node.text], hint=MOVE)
    meaning = reserved(node.text)
    if meaning == "a function" or meaning == "a mask":
        return scope.wrong(f"`{node.text}` is {meaning} and needs its arguments", node.span, hint=f"write `{node.text}(…)`")
    if is_axis(node.text):
        hint = f"the axes here are {listed([*scope.axes])}" if scope.axes else "declare a tensor with it"
        return scope.wrong(f"`{node.text}` is neither a tensor nor an axis of this layer", node.span, hint=hint)
    return scope.unknown(node, (*scope.symbols, *scope.axes, *FUNCTIONS), "the name")


def relabel(scope: Scope, node: spec.Relabel) -> Relabel | None:
    """A tensor's axes under other letters: a position for a position, a feature for a feature."""
    symbol = scope.symbols.get(node.name.text)
    if not isinstance(symbol, Tensor):
        return None if isinstance(symbol, Broken) else unlabelled(scope, node)
    letters = read_axes(scope, node.axes)
    if letters is None:
        return None
    written = symbol.written
    if len(letters) != len(written):
        message = f"`{node.name.text}` has {plural(len(written), 'axis')} {shown(written)}, not {len(letters)}"
        return scope.wrong(message, node.span, hint=f"write one letter for each, as in `{node.name.text}{shown(written)}`")
    for old, new, place in zip(written, letters, node.axes, strict=True):
        if (old in POSITIONS) != (new in POSITIONS):
            fit = (
                "a position may become the other position only"
                if old in POSITIONS
                else "a feature axis may become another feature axis only"
            )
            return scope.wrong(f"the axis {old} of `{node.name.text}` cannot become {new}", place.span, hint=fit)
    scope.self_mixing |= any(old in POSITIONS and old != new for old, new in zip(written, letters, strict=True))
    scope.sized |= set(letters)
    renamed = dict(zip(written, letters, strict=True))
    return Relabel(symbol.variable, tuple(renamed[axis] for axis in symbol.variable.axes))


def unlabelled(scope: Scope, node: spec.Relabel) -> None:
    """Brackets behind something that is no tensor."""
    if node.name.text in scope.later:
        return scope.wrong(f"`{node.name.text}` is used before it is defined", node.name.span, scope.later[node.name.text], hint=MOVE)
    return scope.unknown(node.name, scope.symbols, "the tensor")


def negation(scope: Scope, node: spec.Negation, left: Left) -> Expression | None:
    """`-x`; of a number, the number."""
    if isinstance(node.operand, spec.Constant):
        value = constant(scope, node.operand)
        return None if value is None else Constant(-value.value)
    return elementwise(scope, "negate", (node.operand,), node.span, left)


# ---- functions ----------------------------------------------------------------------------------------------------------------


def call(scope: Scope, node: spec.Call, left: Left) -> Expression | None:
    """A function by name."""
    called = node.function.text
    if node.options:
        return scope.wrong(f"{called}() takes no option `{node.options[0].name.text}`", node.options[0].span)
    if called in REDUCTIONS and (node.over or called not in ELEMENTWISE):
        return reduction(scope, node, left, read)
    if node.over:
        hint = "write `-max(-x over …)`" if called == "min" else f"{listed(REDUCTIONS)} go over axes"
        known = called in FUNCTIONS
        return scope.wrong(f"{called}() does not go over axes", node.span, hint=hint) if known else unknown_function(scope, node)
    if node.under is not None:
        return scope.wrong(f"{called}() takes no mask: `under` belongs to softmax", node.under.span)
    if called == "pos":
        return position(scope, node)
    if called == "concat":
        return concat(scope, node, left, read)
    if called == "outer":
        return outer(scope, node, left, read)
    return elementwise(scope, called, node.arguments, node.span, left) if called in ELEMENTWISE else unknown_function(scope, node)


def unknown_function(scope: Scope, node: spec.Call) -> None:
    """A call of something that is no function."""
    if node.function.text in scope.symbols:
        return scope.wrong(f"`{node.function.text}` is not a function", node.function.span, hint="multiply with `*`; relabel with brackets")
    return scope.unknown(node.function, (*FUNCTIONS, *MASKS, *TURNS, "contract"), "the function")


def elementwise(scope: Scope, function: str, arguments: tuple[spec.Expression, ...], span: Span, left: Left) -> Apply | None:
    """A sign or an elementwise function, broadcast by name."""
    row = ELEMENTWISE[function]
    values = [read(scope, argument, left) for argument in arguments]
    if len(values) != len(row.parameters):
        takes = f"{function}({', '.join(row.parameters)})"
        return scope.wrong(f"{takes} takes {plural(len(row.parameters), 'argument')}, not {len(values)}", span)
    known = tuple(value for value in values if value is not None)
    if len(known) < len(values):
        return None
    if not row.takes_complex:
        for value, argument in zip(known, arguments, strict=True):
            if value.number is Number.COMPLEX:
                return scope.wrong(f"{function}() takes real values only, this one is complex", argument.span, hint=real_of(function))
    number = row.number(*(value.number for value in known))
    if row.matrix:
        return on_matrix(scope, function, known, span, number)
    return Apply(function, known, union(*(value.axes for value in known)), number)


def on_matrix(scope: Scope, function: str, values: tuple[Expression, ...], span: Span, number: Number) -> Apply | None:
    """A discretisation on a matrix: the last two axes of its first argument."""
    row = ELEMENTWISE[function]
    features = features_of(values[0].axes)
    if len(features) < 2:
        return scope.wrong(f"{function}() wants a matrix: A with two feature axes, not {shown(values[0].axes)}", span)
    target, source = features[-2:]
    step = values[-1]
    if {target, source} & set(step.axes):
        return scope.wrong(f"{function}(): dt {shown(step.axes)} has an axis of the matrix {shown((target, source))}", span)
    axes = union(tuple(axis for axis in values[0].axes if axis not in (target, source)), step.axes)
    if row.columns is None:
        return Apply(function, values, union(axes, (target, source)), number)
    fed = values[row.columns].axes
    if source not in fed or target in fed:
        message = f"{function}(): Bc is over the matrix' columns {source}, and not over its rows {target}; it has {shown(fed)}"
        return scope.wrong(message, span, hint=f"relabel it: its axis becomes {source}")
    return Apply(function, values, union(axes, tuple(axis for axis in fed if axis != source), (target,)), number)


def position(scope: Scope, node: spec.Call) -> Position | None:
    """`pos(S)` or `pos(T)`."""
    match node.arguments:
        case (spec.Name(text="T"),):
            found = Position("T")
        case (spec.Name(text="S"),):
            found = Position("S")
        case _:
            return scope.wrong("pos() takes one position", node.span, hint="write `pos(T)` or `pos(S)`")
    if not scope.sized & set(POSITIONS):
        return scope.wrong(f"pos({found.axis}): no input of this layer has a position", node.span, hint="declare one with T or S")
    return found
