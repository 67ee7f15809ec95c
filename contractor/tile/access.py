"""Where a block lies in memory: addresses, bounds, and the blocks of host descriptors."""

from __future__ import annotations

from typing import Literal

from contractor.errors import TileError
from contractor.tile.expression import Binary, Expr, Iota, Number, Rename, Tile, binary, is_zero, number, size
from contractor.tile.kernel import Buffer, Index, Kernel, Load, Span, Store, statements
from contractor.tile.ops import cast
from contractor.tile.rules import BOOL, I64, Axes, listed, ranked, widen

ONE = "1"


def place(one: Expr | Span) -> Expr:
    """The element or elements that one dimension of an access names."""
    return one.index if isinstance(one, Span) else one


def spans(index: Index) -> tuple[Span, ...]:
    """The dimensions of an access that run over axes."""
    return tuple(one for one in index if isinstance(one, Span))


def axes_of(index: Index) -> Axes:
    """The axes of the block, in the order of the buffer's dimensions; those of spans over several axes in a kernel's order."""
    over = spans(index)
    found = tuple(dict.fromkeys(axis for span in over for axis in span.axes))
    return found if all(len(span.axes) == 1 for span in over) else ranked(found)


def address(index: Index, buffer: Buffer, axes: Axes) -> Expr:
    """The offset of every element of a block, its axes in the order given. It becomes 64-bit before anything is multiplied."""
    offset: Expr = number(0)
    for one, dim in zip(index, buffer.dims, strict=True):
        here = place(one)
        offset = here if is_zero(offset) else ordered("+", promoted(offset) * size(dim), here, axes)
    return offset


def promoted(offset: Expr) -> Expr:
    """The offset in 64 bits."""
    return offset if isinstance(offset, Number) else cast(offset, I64)


def bounds(index: Index, axes: Axes) -> Expr | None:
    """Which elements of a block are inside the buffer, axes in the order given; None if all are."""
    joined: Expr | None = None
    for span in spans(index):
        if span.inside is not None:
            joined = span.inside if joined is None else ordered("&", joined, span.inside, axes)
    return joined


def ordered(sign: Literal["+", "&"], left: Expr, right: Expr, axes: Axes) -> Expr:
    """Two operands joined, with the result's axes in the order given. Raises TileError if an operand has its axes in another."""
    wanted = tuple(axis for axis in axes if axis in left.axes + right.axes)
    for one in (left, right):
        if tuple(axis for axis in wanted if axis in one.axes) != one.axes:
            raise TileError(f"an access over {listed(axes)} at places over {listed(one.axes)}: broadcasting never transposes")
    full = set(wanted) in (set(left.axes), set(right.axes))
    return binary(sign, left, right) if full else outer(sign, left, right, wanted)


def outer(sign: Literal["+", "&"], left: Expr, right: Expr, axes: Axes) -> Expr:
    """Two operands over different axes joined to a block."""
    dtype = widen(left.dtype, right.dtype) if sign == "+" else BOOL
    return Binary(axes, dtype, left.spread or right.spread, sign, left, right)


def whole(span: Span, dim: str, sizes: dict[str, str]) -> bool:
    """True if a span runs over the whole dimension, element by element."""
    return len(span.axes) == 1 and sizes.get(span.axes[0]) == dim and is_zero(span.first) and span.inside is None and counts_up(span.index)


def counts_up(index: Expr) -> bool:
    """True if a place is 0, 1, 2, … as far as can be seen: an iota, or a tile over one axis that stands for it."""
    match index:
        case Iota() | Tile(spread=False):
            return True
        case Rename():
            return counts_up(index.source)
        case _:
            return False


def rows_at(index: Index) -> int:
    """Which dimension of an access through a descriptor holds the rows: the first that runs over an axis."""
    return next(position for position, one in enumerate(index) if isinstance(one, Span))


def block_of(index: Index, buffer: Buffer, sizes: dict[str, str]) -> tuple[str, ...]:
    """The block that an access through a descriptor reads: names of constants, "1" for a single element.

    Raises TileError unless the access is single elements, a block of rows, single elements, a block of the last dimension.
    """
    over = spans(index)
    good = len(over) == 2 and isinstance(index[-1], Span) and all(len(span.axes) == 1 for span in over)
    if not good or over[1].inside is not None:
        raise TileError(f"{buffer.name}: a descriptor reads a block of rows and a block of features that divides them")
    return (*(ONE for _ in range(rows_at(index))), *(sizes[span.axes[0]] for span in over))


def corner(index: Index, buffer: Buffer) -> tuple[Expr, ...]:
    """The first element of the block that an access through a descriptor reads."""
    rows = rows_at(index)
    starts = tuple(one.first if isinstance(one, Span) else one for one in index)
    column: Expr = number(0)
    for start, dim in zip(starts[rows + 1 :], buffer.dims[rows + 1 :], strict=True):
        column = start if is_zero(column) else column * size(dim) + start
    return (*starts[: rows + 1], column)


def descriptor_block(kernel: Kernel, name: str) -> tuple[str, ...]:
    """The block shape of a buffer that is read or written through a descriptor: names of constants and "1".

    Its tensor is described as [batch, rows, heads · features], or [rows, heads · features]: as many dimensions as the block has.
    Raises TileError if accesses differ, or there is none.
    """
    sizes = dict(kernel.sizes)
    found: set[tuple[str, ...]] = set()
    for one in statements(kernel.body):
        match one:
            case Load(source=buffer) | Store(target=buffer) if buffer.name == name:
                found.add(block_of(one.index, buffer, sizes))
            case _:
                pass
    if len(found) != 1:
        raise TileError(f"{name}: loads and stores through one descriptor must have one block, not {sorted(found)}")
    return found.pop()


def descriptor_shape(kernel: Kernel, name: str) -> tuple[tuple[str, ...], ...]:
    """The dimensions that a descriptor sees, each a product of the buffer's sizes: (("B",), ("T",), ("H", "N"))."""
    dims = kernel.buffer(name).dims
    leading = len(descriptor_block(kernel, name)) - 1
    return (*((dim,) for dim in dims[:leading]), dims[leading:])
