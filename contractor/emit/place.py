"""How torch text addresses a block: which dimensions are sliced, and which are indexed by tensors of places."""

from __future__ import annotations

from dataclasses import dataclass

from contractor.tile.access import axes_of, bounds, whole
from contractor.tile.expression import Expr
from contractor.tile.kernel import Buffer, Index, Kernel, Span
from contractor.tile.rules import Axes


@dataclass(frozen=True, slots=True)
class Whole:
    """A dimension taken whole."""

    axis: str


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One of the equal blocks that a dimension is cut into, each of `constant` elements."""

    axis: str
    number: Expr
    constant: str


@dataclass(frozen=True, slots=True, eq=False)
class At:
    """The elements at some places."""

    places: Expr


Dimension = Whole | Block | At


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A block of a buffer. Indexing gives the axes `indexed`, then `sliced`; inside: which of the indexed elements are in the buffer.
    transposed: the block is wanted with its two axes exchanged."""

    dimensions: tuple[Dimension, ...]
    indexed: Axes
    sliced: Axes
    inside: Expr | None
    transposed: bool


def place(kernel: Kernel, buffer: Buffer, index: Index, wanted: Axes) -> Place:
    """How a block is addressed so that its axes are the wanted ones: by slices where they leave them in order."""
    sizes = dict(kernel.sizes)
    sliced = leading_indexed(tuple(dimension(one, dim, sizes) for one, dim in zip(index, buffer.dims, strict=True)), index)
    for choice in (sliced, tuple(at(one) for one in index)):
        axes = tuple(one.axis for one in choice if not isinstance(one, At))
        indexed = tuple(axis for axis in wanted if axis in axes_of(index) and axis not in axes)
        if indexed + axes == wanted:
            return Place(choice, indexed, axes, bounds(index, wanted), False)
        if len(wanted) == 2 and indexed + axes == wanted[::-1]:
            return Place(choice, indexed, axes, bounds(index, wanted), True)
    raise AssertionError("a block indexed in full has its axes in any order")


def dimension(one: Expr | Span, dim: str, sizes: dict[str, str]) -> Dimension:
    """The plainest way to address one dimension."""
    if not isinstance(one, Span):
        return At(one)
    if whole(one, dim, sizes):
        return Whole(one.axis)
    if one.block is not None and one.inside is None:
        return Block(one.axis, one.block, sizes[one.axis])
    return At(one.index)


def at(one: Expr | Span) -> At:
    """One dimension addressed by places."""
    return At(one.index if isinstance(one, Span) else one)


def leading_indexed(dimensions: tuple[Dimension, ...], index: Index) -> tuple[Dimension, ...]:
    """The dimensions with slices before the first index by tensors replaced: there, indexing would leave the axes in another order."""
    tensors = [position for position, one in enumerate(dimensions) if not number_of_python(one)]
    first = tensors[0] if tensors else 0
    last = tensors[-1] if tensors else 0
    if not any(isinstance(one, Whole) for one in dimensions[:first]):
        return dimensions
    return tuple(at(index[position]) if position < last else one for position, one in enumerate(dimensions))


def number_of_python(one: Dimension) -> bool:
    """True if a dimension is a slice, or indexed by a number of Python's, which takes no part in the order of axes."""
    match one:
        case Whole():
            return True
        case Block(number=places) | At(places=places):
            return not places.axes and not places.spread
