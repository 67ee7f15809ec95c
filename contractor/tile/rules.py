"""The axes and the dtype of every operation: broadcasting inserts axes and never transposes, a product shares exactly one axis."""

from __future__ import annotations

from contractor.errors import TileError

Axes = tuple[str, ...]

ACC = "acc"
"""The accumulators' dtype: float32, or float64 where the operands are float64 (torch text). Any other word that is none of these four
names a buffer: "whatever that tensor holds"."""
I32 = "i32"
I64 = "i64"
BOOL = "bool"
INTEGERS = (I32, I64)
DTYPES = (ACC, I32, I64, BOOL)

ORDER = "tusrnmpw"  # how a pure outer product orders its axes: rows, then features; other letters come last, as written


def ranked(axes: Axes) -> Axes:
    """The axes in the order of a kernel."""
    return tuple(sorted(axes, key=lambda axis: ORDER.find(axis) if axis in ORDER else len(ORDER)))


def union(*operands: Axes) -> Axes:
    """The axes of a broadcast: an operand that has all axes gives their order, else the kernel's order holds."""
    every = dict.fromkeys(axis for axes in operands for axis in axes)
    widest = max(operands, key=len)
    return widest if len(widest) == len(every) else ranked(tuple(every))


def broadcast(*operands: Axes) -> Axes:
    """The axes of an elementwise operation. Raises TileError if an operand would have to be transposed."""
    wanted = union(*operands)
    for axes in operands:
        if tuple(axis for axis in wanted if axis in axes) != axes:
            raise TileError(f"a tile over {listed(axes)} where {listed(wanted)} is wanted: broadcasting never transposes")
    return wanted


def listed(axes: Axes) -> str:
    """Axes as people write them."""
    return f"({', '.join(axes)})"


def widen(left: str, right: str) -> str:
    """The dtype of arithmetic on two dtypes. Raises TileError for booleans."""
    if BOOL in (left, right):
        raise TileError(f"arithmetic on {left} and {right}")
    if left == right:
        return left
    if left in INTEGERS and right in INTEGERS:
        return I64
    if left in INTEGERS:
        return right
    return left if right in INTEGERS else ACC


def joined(left: str, right: str) -> str:
    """The dtype of `& | ^`: both boolean or both integers."""
    if left == right == BOOL:
        return BOOL
    if left in INTEGERS and right in INTEGERS:
        return widen(left, right)
    raise TileError(f"logic on {left} and {right}")


def multiplied(left: Axes, right: Axes) -> tuple[str, Axes]:
    """The shared axis and the result's axes of a product of two tiles. Raises TileError unless both have two axes and share one."""
    shared = [axis for axis in left if axis in right]
    if len(left) != 2 or len(right) != 2 or len(shared) != 1:
        raise TileError(f"dot of {listed(left)} and {listed(right)}: both want two axes and exactly one that they share")
    return shared[0], tuple(axis for axis in left + right if axis != shared[0])


def multiplicable(left: str, right: str) -> None:
    """Raises TileError if a product of the two dtypes would need a silent conversion."""
    if (left == ACC) != (right == ACC) or {left, right} & {I32, I64, BOOL}:
        raise TileError(f"dot of {left} and {right}: cast one like the other")
