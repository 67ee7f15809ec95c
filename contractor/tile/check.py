"""Every kernel produced is checked: names, scopes, single assignment, accumulators, bounds of loads, blocks of descriptors."""

from __future__ import annotations

from typing import assert_never

from contractor.errors import TileError
from contractor.tile.access import address, axes_of, bounds, descriptor_block, spans, whole
from contractor.tile.expression import Binary, Dot, Expr, Iota, Size, Tile
from contractor.tile.kernel import Buffer, Carry, Full, Index, Kernel, Let, Load, Loop, Note, Span, Statement, Store, Update, statements
from contractor.tile.names import checked
from contractor.tile.ops import is_product
from contractor.tile.rules import ACC, DTYPES, Axes, listed
from contractor.tile.uses import nodes, read_by


def check(kernel: Kernel) -> Kernel:
    """The kernel itself. Raises TileError for the first rule that it breaks."""
    names(kernel)
    dtypes(kernel)
    scopes(kernel.body, frozenset(), kernel)
    transposed_accumulators(kernel)
    for one in statements(kernel.body):
        match one:
            case Load():
                access(kernel, one.source, one.index, one.tile.axes)
            case Store():
                access(kernel, one.target, one.index, one.value.axes)
                stored(one)
            case Full() if one.tile.dtype != ACC:
                raise TileError(f"{one.tile.name}: an accumulator of {one.tile.dtype}")
            case Loop() if not any(isinstance(inner, Update | Store) for inner in statements(one.body)):
                raise TileError(f"the loop over {one.counter.name} neither updates nor stores")
            case _:
                pass
    for buffer in kernel.buffers:
        if buffer.via == "descriptor":
            descriptor_block(kernel, buffer.name)
    return kernel


def names(kernel: Kernel) -> None:
    """Tiles, buffers, constants and scalars have usable names of their own; every tile is assigned once."""
    tiles = [one.tile.name for one in statements(kernel.body) if isinstance(one, Let | Load | Full | Carry)]
    counters = [one.counter.name for one in statements(kernel.body) if isinstance(one, Loop)]
    every = [*tiles, *counters, *(buffer.name for buffer in kernel.buffers), *kernel.constants, *kernel.scalars, kernel.name]
    for name in every:
        checked(name, "part of a kernel")
        if every.count(name) > 1:
            raise TileError(f"{name} names two things")


def dtypes(kernel: Kernel) -> None:
    """A dtype is one of ours or a buffer's name, and a buffer that lends its dtype holds what the caller gives."""
    own = {buffer.name for buffer in kernel.buffers if buffer.dtype == buffer.name}
    read = [x for one in statements(kernel.body) for part in read_by(one) for x in nodes(part)]
    for dtype in {x.dtype for x in read} | {buffer.dtype for buffer in kernel.buffers}:
        if dtype not in own | set(DTYPES):
            raise TileError(f"the dtype {dtype} is neither one of {', '.join(DTYPES)} nor a buffer that holds what it is given")


def scopes(body: tuple[Statement, ...], outer: frozenset[Tile], kernel: Kernel) -> None:
    """Every tile is assigned before it is read, in the same loop or one around it."""
    known = set(outer)
    sizes = {*kernel.constants, *kernel.scalars}
    for one in body:
        for x in (inner for part in read_by(one) for inner in nodes(part)):
            readable(x, known, sizes, kernel)
        match one:
            case Let() | Load() | Full() | Carry():
                known.add(one.tile)
            case Update():
                updated(one, known)
            case Loop():
                scopes(one.body, frozenset({*known, one.counter}), kernel)
            case Store() | Note():
                pass
            case _:
                assert_never(one)


def readable(x: Expr, known: set[Tile], sizes: set[str], kernel: Kernel) -> None:
    """Raises TileError if a part of an expression names what is not there."""
    if isinstance(x, Tile) and x not in known:
        raise TileError(f"{x.name} is read where it has no value")
    if isinstance(x, Size) and x.name not in sizes:
        raise TileError(f"{x.name} is neither a constant nor a scalar of {kernel.name}")
    if isinstance(x, Iota) and x.axes[0] not in dict(kernel.sizes):
        raise TileError(f"the axis {x.axes[0]} has no block size")


def updated(one: Update, known: set[Tile]) -> None:
    """Raises TileError unless a carried tile with a value takes one of its own axes and dtype."""
    if one.tile.kind != "carried" or one.tile not in known:
        raise TileError(f"{one.tile.name} is updated, but is not carried from before")
    if one.value.axes != one.tile.axes or one.value.dtype != one.tile.dtype:
        raise TileError(f"{one.tile.name} {listed(one.tile.axes)} {one.tile.dtype} takes {listed(one.value.axes)} {one.value.dtype}")


def transposed_accumulators(kernel: Kernel) -> None:
    """The left operand of a dot is no transpose of an accumulator that products were added to."""
    fed = {one.tile for one in statements(kernel.body) if isinstance(one, Update) and is_product(one.value)}
    for x in (inner for one in statements(kernel.body) for part in read_by(one) for inner in nodes(part)):
        if isinstance(x, Dot) and x.left.axes[-1] != x.shared and any(tile in fed for tile in nodes(x.left) if isinstance(tile, Tile)):
            raise TileError("dot: the left operand would be the transpose of an accumulator of products; compute the transposed product")


def access(kernel: Kernel, buffer: Buffer, index: Index, axes: Axes) -> None:
    """Every dimension is an integer or a block that cannot leave the buffer."""
    if kernel.buffer(buffer.name) != buffer or len(index) != len(buffer.dims):
        raise TileError(f"{buffer.name}: an access of another shape than the kernel's buffer")
    sizes = dict(kernel.sizes)
    for axis in axes_of(index):
        if axis not in sizes:
            raise TileError(f"{buffer.name}: the axis {axis} has no block size")
    for one, dim in zip(index, buffer.dims, strict=True):
        if isinstance(one, Span):
            spanned(one, dim, buffer, sizes)
        elif one.axes:
            raise TileError(f"{buffer.name}: a tile over {listed(one.axes)} as an index; name its axes with a Span")
    if buffer.via == "pointer":
        address(index, buffer, axes)
        bounds(index, axes)
    elif sorted(axes) != sorted(axes_of(index)):
        raise TileError(f"{buffer.name}: a descriptor gives its block over {listed(axes_of(index))}, not {listed(axes)}")


def spanned(span: Span, dim: str, buffer: Buffer, sizes: dict[str, str]) -> None:
    """Raises TileError if a block may leave its dimension, or its places run over other axes than it says."""
    if span.index.axes != span.axes or (span.inside is not None and not set(span.inside.axes) <= set(span.axes)):
        raise TileError(f"{buffer.name}: a span over {listed(span.axes)} whose places are over {listed(span.index.axes)}")
    bounded = span.inside is not None or span.block is not None or buffer.via == "descriptor" or whole(span, dim, sizes)
    if not bounded and not held(span.index):
        raise TileError(f"{buffer.name}: nothing keeps the block over {listed(span.axes)} inside {dim}: say which elements are inside")


def held(places: Expr) -> bool:
    """True if places are held at or below a number: the last place, by the word of who wrote the kernel."""
    return isinstance(places, Binary) and places.sign == "least" and not places.right.axes


def stored(one: Store) -> None:
    """What is stored has the block's axes and the buffer's dtype."""
    axes = axes_of(one.index)
    if sorted(one.value.axes) != sorted(axes):
        raise TileError(f"store of {listed(one.value.axes)} into {listed(axes)} of {one.target.name}")
    if one.value.dtype != one.target.dtype:
        raise TileError(f"store of {one.value.dtype} into {one.target.name}, which holds {one.target.dtype}: cast it")
    if any(len(span.axes) > 1 for span in spans(one.index)):
        raise TileError(f"{one.target.name}: stores go to blocks, not to places of a tile")
