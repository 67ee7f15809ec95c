"""The verbs that lowerings write kernels with. A Builder collects statements; `done` checks them and gives the kernel."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from contractor.errors import TileError
from contractor.tile.access import axes_of
from contractor.tile.check import check
from contractor.tile.expression import Expr, Number, Program, Tile, number
from contractor.tile.kernel import Buffer, Carry, Full, Index, Kernel, Let, Load, Loop, Note, Span, Statement, Store, Update, Via
from contractor.tile.names import checked
from contractor.tile.ops import is_product
from contractor.tile.rules import ACC, I32, Axes, listed
from contractor.tile.uses import named_sizes, real_sizes


class Builder:
    """A kernel being written.

    says: the formula, in a line. sizes: the constant that holds the block size of each tile axis. scalars: the sizes that are given at
    each launch rather than fixed when the kernel is compiled; those that it does not use are dropped.
    Every verb raises TileError where axes, dtypes or names do not fit.
    """

    def __init__(self, name: str, says: str, sizes: Mapping[str, str], scalars: tuple[str, ...] = ()) -> None:
        self.name, self.says, self.scalars = checked(name, "kernel"), says, scalars
        self.sizes = dict(sizes)
        self.buffers: dict[str, Buffer] = {}
        self.blocks: list[list[Statement]] = [[]]
        self.taken: set[str] = set()
        self.programs: Expr | None = None

    def axis(self, letter: str, constant: str) -> None:
        """One more tile axis and the constant that holds its block size."""
        if self.sizes.setdefault(letter, constant) != constant:
            raise TileError(f"the axis {letter} has blocks of {self.sizes[letter]}, not of {constant}")

    def note(self, text: str) -> None:
        """A line for the reader."""
        self.put(Note(text))

    def buffer(self, name: str, *dims: str, dtype: str | None = None, via: Via = "pointer") -> Buffer:
        """A contiguous tensor; the same one again if it was declared so before."""
        wanted = Buffer(checked(name, "buffer"), dims, dtype or name, via)
        if name in self.taken:
            raise TileError(f"{name} is both a tile and a buffer")
        if self.buffers.setdefault(name, wanted) != wanted:
            raise TileError(f"the buffer {name} is declared twice: {self.buffers[name]} and {wanted}")
        return wanted

    def let(self, name: str, value: Expr | float) -> Expr:
        """A name for a value; a number, or a tile that has a name and keeps its value, is given back as it is."""
        value = number(value)
        if isinstance(value, Number) or (isinstance(value, Tile) and value.kind != "carried"):
            return value
        tile = Tile(value.axes, value.dtype, value.spread, self.fresh(name), "let", is_product(value))
        self.put(Let(tile, value))
        return tile

    def full(self, name: str, *axes: str, value: float = 0.0) -> Tile:
        """An accumulator that begins with one number everywhere."""
        tile = Tile(axes, ACC, True, self.fresh(name), "carried")
        self.put(Full(tile, value))
        return tile

    def carry(self, name: str, value: Expr) -> Tile:
        """A carried tile that begins with a value."""
        tile = Tile(value.axes, value.dtype, True, self.fresh(name), "carried", is_product(value))
        self.put(Carry(tile, value))
        return tile

    def update(self, tile: Expr, value: Expr) -> None:
        """A carried tile takes a new value."""
        if not isinstance(tile, Tile) or tile.kind != "carried":
            raise TileError("update of what is no carried tile")
        if value.axes != tile.axes or value.dtype != tile.dtype:
            raise TileError(f"{tile.name} {listed(tile.axes)} {tile.dtype} cannot take {listed(value.axes)} {value.dtype}")
        self.put(Update(tile, value))

    def load(self, name: str, source: Buffer, *index: Expr | Span | int, order: Axes | None = None) -> Tile:
        """A block of a buffer, 0 where a span is not inside. order: its axes, if they shall not follow the buffer's dimensions."""
        where = accessed(source, index)
        axes = order or axes_of(where)
        if set(axes) != set(axes_of(where)):
            raise TileError(f"{name}: a load over {listed(axes_of(where))} ordered as {listed(axes)}")
        tile = Tile(axes, source.dtype, True, self.fresh(name), "load")
        self.put(Load(tile, source, where))
        return tile

    def store(self, target: Buffer, *index: Expr | Span | int, value: Expr) -> None:
        """A block of a buffer takes a value, whose axes are those of the spans, in any order."""
        where = accessed(target, index)
        if sorted(value.axes) != sorted(axes_of(where)):
            raise TileError(f"store of {listed(value.axes)} into {listed(axes_of(where))} of {target.name}")
        self.put(Store(target, where, value))

    @contextmanager
    def loop(self, name: str, count: Expr | int) -> Generator[Tile, None, None]:
        """What is written inside happens for name = 0, 1, … below count, which may differ between programs."""
        counter = Tile((), I32, False, self.fresh(name), "counter")
        self.blocks.append([])
        yield counter
        body = tuple(self.blocks.pop())
        self.put(Loop(counter, number(count), body))

    def program(self, count: Expr) -> Expr:
        """Says how many programs there are; the number of this one."""
        self.programs = count
        return self.let("program", Program((), I32, True))

    def done(self) -> Kernel:
        """The kernel, checked."""
        if self.programs is None:
            raise TileError(f"{self.name}: no program count")
        used = named_sizes(tuple(self.blocks[0]), self.sizes)
        scalars = tuple(name for name in self.scalars if name in used)
        reals = tuple(name for name in scalars if name in real_sizes(tuple(self.blocks[0])))
        constants = tuple(sorted(used - set(scalars)))
        sizes = tuple(self.sizes.items())
        body, buffers = tuple(self.blocks[0]), tuple(self.buffers.values())
        return check(Kernel(self.name, self.says, buffers, sizes, constants, scalars, reals, self.programs, body))

    def put(self, one: Statement) -> None:
        """Appends a statement to the innermost block."""
        self.blocks[-1].append(one)

    def fresh(self, name: str) -> str:
        """The name of a new tile."""
        if checked(name, "tile") in self.taken or name in self.buffers:
            raise TileError(f"{name} is assigned twice")
        self.taken.add(name)
        return name


def accessed(buffer: Buffer, index: tuple[Expr | Span | int, ...]) -> Index:
    """The index of an access, one entry for each dimension."""
    if len(index) != len(buffer.dims):
        raise TileError(f"{buffer.name} has the dimensions {listed(buffer.dims)}, the access names {len(index)}")
    return tuple(one if isinstance(one, Span) else number(one) for one in index)
