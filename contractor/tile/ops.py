"""What lowerings write kernels with: the functions on tiles, and every word of the tile language under one roof."""

from __future__ import annotations

from contractor.errors import TileError
from contractor.tile.expression import (
    Binary,
    Cast,
    Dot,
    Expr,
    Function,
    Iota,
    Number,
    Precision,
    Program,
    Reduce,
    Reduction,
    Rename,
    Select,
    Size,
    Tile,
    Unary,
    binary,
    is_one,
    is_zero,
    number,
    size,
)
from contractor.tile.kernel import Buffer, Carry, Full, Kernel, Let, Load, Loop, Note, Span, Statement, Store, Update, Via
from contractor.tile.rules import ACC, BOOL, DTYPES, I32, I64, Axes, broadcast, listed, multiplicable, multiplied, widen

__all__ = [
    "ACC", "BOOL", "DTYPES", "I32", "I64", "Axes", "Binary", "Buffer", "Carry", "Cast", "Dot", "Expr", "Full", "Iota", "Kernel", "Let",
    "Load", "Loop", "Note", "Number", "Precision", "Program", "Reduce", "Rename", "Select", "Size", "Span", "Statement", "Store", "Tile",
    "Unary", "Update", "Via", "absolute", "binary", "cast", "cdiv", "cumsum", "dot", "exp2", "iota", "is_one", "is_product", "is_zero",
    "least", "log2", "most", "number", "peak", "rename", "rsqrt", "select", "size", "sqrt", "total",
]  # fmt: skip


def cdiv(left: Expr | int, right: Expr | int) -> Expr:
    """Division of integers, rounded up."""
    return binary("cdiv", left, right)


def least(left: Expr | float, right: Expr | float) -> Expr:
    """The lesser of two, element by element."""
    return binary("least", left, right)


def most(left: Expr | float, right: Expr | float) -> Expr:
    """The greater of two, element by element."""
    return binary("most", left, right)


def unary(function: Function, source: Expr) -> Expr:
    """A function of a tile, which is brought to the accumulators' dtype first."""
    wide = cast(source, ACC)
    return Unary(wide.axes, ACC, wide.spread, function, wide)


def exp2(x: Expr) -> Expr:
    """2 to the power x."""
    return number(1.0) if is_zero(x) else unary("exp2", x)


def log2(x: Expr) -> Expr:
    """The base-2 logarithm."""
    return number(0.0) if is_one(x) else unary("log2", x)


def sqrt(x: Expr) -> Expr:
    """The square root."""
    return unary("sqrt", x)


def rsqrt(x: Expr) -> Expr:
    """One over the square root."""
    return unary("rsqrt", x)


def absolute(x: Expr) -> Expr:
    """The modulus."""
    return unary("abs", x)


def cast(x: Expr, like: Expr | str) -> Expr:
    """x in a dtype, or in the dtype of another tile; x itself if it is that already."""
    dtype = like if isinstance(like, str) else like.dtype
    if x.dtype == BOOL and dtype != BOOL:
        raise TileError("a condition is no number: select(condition, 1.0, 0.0)")
    if dtype == x.dtype:
        return x
    if isinstance(x, Number) and dtype == ACC:
        return number(float(x.value))
    return Size((), dtype, False, x.name) if isinstance(x, Size) and dtype == ACC else Cast(x.axes, dtype, x.spread, x)


def select(condition: Expr, first: Expr | float, second: Expr | float) -> Expr:
    """first where the condition holds, else second."""
    one, other = number(first), number(second)
    if condition.dtype != BOOL:
        raise TileError(f"select on {condition.dtype}: the condition must be a comparison")
    axes = broadcast(condition.axes, one.axes, other.axes)
    dtype = BOOL if one.dtype == other.dtype == BOOL else widen(one.dtype, other.dtype)
    return Select(axes, dtype, condition.spread or one.spread or other.spread, condition, one, other)


def reduce(reduction: Reduction, x: Expr, axis: str) -> Expr:
    """A reduction along an axis, in the accumulators' dtype."""
    if axis not in x.axes:
        raise TileError(f"{reduction} over {axis}: the tile has axes {listed(x.axes)}")
    wide = cast(x, ACC)
    kept = x.axes if reduction == "cumsum" else tuple(other for other in x.axes if other != axis)
    return Reduce(kept, ACC, x.spread, reduction, wide, axis)


def total(x: Expr, axis: str) -> Expr:
    """The sum along an axis, which goes."""
    return reduce("sum", x, axis)


def peak(x: Expr, axis: str) -> Expr:
    """The maximum along an axis, which goes."""
    return reduce("max", x, axis)


def cumsum(x: Expr, axis: str) -> Expr:
    """The running sum along an axis, each element included."""
    return reduce("cumsum", x, axis)


def iota(axis: str) -> Expr:
    """0, 1, 2, … along an axis."""
    return Iota((axis,), I32, False)


def rename(x: Expr, **names: str) -> Expr:
    """The same numbers under other axes: rename(row, t="s"). Raises TileError if two axes would have one name."""
    axes = tuple(names.get(axis, axis) for axis in x.axes)
    if len(set(axes)) != len(axes):
        raise TileError(f"rename of {listed(x.axes)} to {listed(axes)}")
    used = tuple((old, new) for old, new in names.items() if old in x.axes)
    return Rename(axes, x.dtype, x.spread, x, used) if axes != x.axes else x


def dot(left: Expr, right: Expr, into: Expr | None = None, precision: Precision | None = None) -> Expr:
    """left · right over their one shared axis, plus `into`; the result has left's other axis, then right's.

    precision: how float32 operands are multiplied ("ieee", "tf32x3"); tiles in the accumulators' dtype must say it, as Triton would take
    TF32 in silence. Raises TileError where axes or dtypes do not fit, and where the left operand would be the transpose of a product:
    Triton has been seen to compute wrong values there.
    """
    shared, axes = multiplied(left.axes, right.axes)
    multiplicable(left.dtype, right.dtype)
    if left.dtype == ACC and precision is None:
        raise TileError(f"dot of {ACC} tiles: say the precision")
    if left.axes[-1] != shared and is_product(left):
        raise TileError("dot: the left operand would be the transpose of a product; swap the operands of that product")
    if into is not None and (into.axes != axes or into.dtype != ACC):
        raise TileError(f"dot into {listed(into.axes)} {into.dtype}: the product has axes {listed(axes)} and dtype {ACC}")
    spread = left.spread or right.spread or (into is not None and into.spread)
    return Dot(axes, ACC, spread, left, right, into, precision, shared)


def is_product(x: Expr) -> bool:
    """True if the numbers of a tile come from a dot, element by element."""
    match x:
        case Dot():
            return True
        case Tile():
            return x.product
        case Rename() | Cast() | Unary():
            return is_product(x.source)
        case Binary():
            return any(is_product(one) for one in (x.left, x.right) if len(one.axes) == len(x.axes))
        case Select():
            return any(is_product(one) for one in (x.first, x.second) if len(one.axes) == len(x.axes))
        case _:
            return False
