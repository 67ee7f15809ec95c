"""Kernels as values: the tensors in memory, how a block of one is addressed, the statements, and the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contractor.tile.expression import Expr, Tile
from contractor.tile.rules import Axes

Via = Literal["pointer", "descriptor"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A contiguous tensor in memory: the names of its sizes, the last one fastest.

    dtype: acc, i32, i64, bool, or the name of a buffer, its own included: whatever that tensor holds. via: by pointer, or through a host
    descriptor over [batch, rows, heads · features] (packed: [rows, heads · features]), whose rows the hardware bounds.
    """

    name: str
    dims: tuple[str, ...]
    dtype: str
    via: Via = "pointer"


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Span:
    """A block of one dimension of a buffer.

    axes: the tile axes that it runs over (one; several where `index` is a tile of places). first: the block's first element. index: every
    element. inside: which of them are within the buffer; others load as 0 and are not stored. block: the block's number, where the whole
    dimension is cut into equal blocks and nothing is left over.
    """

    axes: Axes
    first: Expr
    index: Expr
    inside: Expr | None
    block: Expr | None

    def __init__(self, axes: str | Axes, first: Expr, index: Expr, inside: Expr | None = None, block: Expr | None = None) -> None:
        object.__setattr__(self, "axes", (axes,) if isinstance(axes, str) else axes)
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "inside", inside)
        object.__setattr__(self, "block", block)

    @property
    def axis(self) -> str:
        """The axis of a span over one."""
        (axis,) = self.axes
        return axis


Index = tuple[Expr | Span, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """tile = a block of a buffer; 0 where a span is not inside."""

    tile: Tile
    source: Buffer
    index: Index


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """A block of a buffer = value, where every span is inside."""

    target: Buffer
    index: Index
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Let:
    """A name for a value."""

    tile: Tile
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Full:
    """A carried tile that begins with one number everywhere: an accumulator."""

    tile: Tile
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class Carry:
    """A carried tile that begins with a value."""

    tile: Tile
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """A carried tile takes a new value."""

    tile: Tile
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """The body for counter = 0, 1, … below stop. A program whose loop has ended neither updates nor stores."""

    counter: Tile
    stop: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the reader."""

    text: str


Statement = Load | Store | Let | Full | Carry | Update | Loop | Note


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """One grid of programs.

    sizes: the constant that holds the block size of each tile axis. constants: every size that the text may name, fixed when it is
    compiled. scalars: numbers given at each launch; reals: those of them that are no integers. programs: how many there are.
    """

    name: str
    says: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[tuple[str, str], ...]
    constants: tuple[str, ...]
    scalars: tuple[str, ...]
    reals: tuple[str, ...]
    programs: Expr
    body: tuple[Statement, ...]

    def extent(self, axis: str) -> str:
        """The constant that holds the block size of an axis."""
        return dict(self.sizes)[axis]

    def buffer(self, name: str) -> Buffer:
        """A buffer by name."""
        return next(buffer for buffer in self.buffers if buffer.name == name)

    @property
    def stored(self) -> tuple[str, ...]:
        """The buffers that the kernel stores into, in order."""
        written = {one.target.name for one in statements(self.body) if isinstance(one, Store)}
        return tuple(buffer.name for buffer in self.buffers if buffer.name in written)

    @property
    def loaded(self) -> tuple[str, ...]:
        """The buffers that the kernel loads from, in order."""
        read = {one.source.name for one in statements(self.body) if isinstance(one, Load)}
        return tuple(buffer.name for buffer in self.buffers if buffer.name in read)

    @property
    def updated(self) -> tuple[str, ...]:
        """The buffers that the kernel loads from and stores into: their caller's, changed in place."""
        return tuple(name for name in self.loaded if name in self.stored)


def statements(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Every statement, those inside loops after their loop."""
    found: list[Statement] = []
    for one in body:
        found.append(one)
        if isinstance(one, Loop):
            found.extend(statements(one.body))
    return tuple(found)
