"""What a kernel costs, counted from the kernel itself: arithmetic, bytes, shared memory, steps.

Every statement is counted as often as its loops run. Counts that differ between programs are averaged over the programs, or over an
evenly spread sample of them. Bytes are counted twice: `issued` is every load and store of every program; `read` and `written` take each
buffer at most once, as if what one program has read were still in the cache when its siblings want it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from contractor.tile.evaluate import Numbers, Places, mean, value
from contractor.tile.expression import Binary, Cast, Dot, Expr, Reduce, Select, Unary
from contractor.tile.kernel import Buffer, Kernel, Let, Load, Loop, Statement, Store
from contractor.tile.rules import BOOL, I32, I64, Axes
from contractor.tile.shared import element_width, shared_bytes
from contractor.tile.uses import nodes_read

ARITHMETIC = ("+", "-", "*", "/", "least", "most")
EXPONENTIALS = ("exp2", "log2")


@dataclass(frozen=True, slots=True)
class Count:
    """flops: operations on real numbers; tensor_flops: those of them inside products; exponentials: exp2 and log2, not among the flops.

    bytes_read, bytes_written: each buffer at most once; issued_read, issued_written: every access. shared: an estimate, from above, of the
    shared memory of a program. steps: serial iterations of the longest program; all_steps: of all programs together. programs: how many.
    """

    flops: int
    tensor_flops: int
    exponentials: int
    bytes_read: int
    bytes_written: int
    issued_read: int
    issued_written: int
    shared: int
    steps: int
    all_steps: int
    programs: int


@dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    """A statement and how often a program runs it, on average."""

    statement: Statement
    times: float


def count(
    kernel: Kernel,
    sizes: Mapping[str, int],
    element_bytes: Mapping[str, int] | None = None,
    assumed: Mapping[str, float] | None = None,
    stages: int = 1,
) -> Count:
    """What a kernel costs at some sizes.

    element_bytes: of each buffer that holds what the caller gives (2 where not said), and of "acc" where it is not 4. assumed: the
    values of tiles that loop counts read from memory; a count that only such a value bounds from below or above is taken without that
    bound. stages: of the software pipeline.
    A buffer with a dimension that `sizes` does not name counts every access. Raises TileError if a loop count depends on data alone.
    """
    widths = {**{buffer.name: 2 for buffer in kernel.buffers}, **(element_bytes or {})}
    places = Places(dict(sizes), programs_of(kernel, sizes), dict(assumed or {}))
    known = dict(places.start(kernel))
    repeated = tuple(unrolled(kernel.body, places, known, 1.0))
    programs = places.programs
    flops, products, exponentials = (round(one * programs) for one in arithmetic(kernel, repeated, sizes))
    read, written = (moved(kernel, moves, sizes, widths, programs) for moves in (loads(repeated), stores(repeated)))
    longest, average = steps(kernel.body, places, dict(places.start(kernel)))
    return Count(
        flops=flops + products, tensor_flops=products, exponentials=exponentials,
        bytes_read=read[0], bytes_written=written[0], issued_read=read[1], issued_written=written[1],
        shared=shared_bytes(kernel, sizes, widths, stages), steps=longest, all_steps=round(average * programs), programs=programs,
    )  # fmt: skip


def programs_of(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """How many programs a kernel has."""
    return int(value(kernel.programs, Places(dict(sizes), 1, {}), {}))


def unrolled(body: tuple[Statement, ...], places: Places, known: dict[str, Numbers], times: float) -> Iterator[Repeated]:
    """Every statement with how often it runs. known grows by the values of the tiles that loop counts may need."""
    for one in body:
        if isinstance(one, Loop):
            stop = value(one.stop, places, known)
            known[one.counter.name] = (stop - 1) / 2
            yield Repeated(one, times)
            yield from unrolled(one.body, places, known, times * mean(stop))
        else:
            if isinstance(one, Let):
                places.remember(one, known)
            yield Repeated(one, times)


def steps(body: tuple[Statement, ...], places: Places, known: dict[str, Numbers]) -> tuple[int, float]:
    """Serial iterations of the longest program, and of the average one."""
    longest, average = 0, 0.0
    for one in body:
        if isinstance(one, Let):
            places.remember(one, known)
        if isinstance(one, Loop):
            stop = value(one.stop, places, known)
            known[one.counter.name] = (stop - 1) / 2
            inner, inner_average = steps(one.body, places, known)
            longest += places.greatest(stop) * max(1, inner)
            average += mean(stop) * max(1.0, inner_average)
    return longest, average


def arithmetic(kernel: Kernel, repeated: tuple[Repeated, ...], sizes: Mapping[str, int]) -> tuple[float, float, float]:
    """Of one program: operations on real numbers outside products, inside them, exponentials."""
    plain = products = exponentials = 0.0
    for one in repeated:
        for x in nodes_read(one.statement):
            elements = extent(kernel, x.axes, sizes) * one.times
            match x:
                case Dot():
                    products += 2 * elements * extent(kernel, (x.shared,), sizes)
                case Unary() if x.function in EXPONENTIALS:
                    exponentials += elements
                case Reduce():
                    plain += extent(kernel, x.source.axes, sizes) * one.times
                case Unary() | Binary() if real(x):
                    plain += elements
                case _:
                    pass
    return plain, products, exponentials


def real(x: Expr) -> bool:
    """True for arithmetic on real numbers; conversions and choices are free."""
    match x:
        case Cast() | Select():
            return False
        case Binary():
            return x.sign in ARITHMETIC and x.dtype not in (I32, I64, BOOL)
        case _:
            return isinstance(x, Unary)


def extent(kernel: Kernel, axes: Axes, sizes: Mapping[str, int]) -> int:
    """How many elements a tile has."""
    return prod(sizes[kernel.extent(axis)] for axis in axes)


Moves = Iterator[tuple[Buffer, Axes, float]]


def loads(repeated: tuple[Repeated, ...]) -> Moves:
    """Each load: its buffer, the axes of its block, how often a program runs it."""
    return ((one.statement.source, one.statement.tile.axes, one.times) for one in repeated if isinstance(one.statement, Load))


def stores(repeated: tuple[Repeated, ...]) -> Moves:
    """Each store likewise."""
    return ((one.statement.target, one.statement.value.axes, one.times) for one in repeated if isinstance(one.statement, Store))


def moved(kernel: Kernel, moves: Moves, sizes: Mapping[str, int], widths: Mapping[str, int], programs: int) -> tuple[int, int]:
    """Bytes that all programs move: each buffer at most once, and every access."""
    issued: dict[str, float] = {}
    for buffer, axes, times in moves:
        amount = extent(kernel, axes, sizes) * times * programs * width(buffer, widths)
        issued[buffer.name] = issued.get(buffer.name, 0.0) + amount
    once = {name: min(amount, tensor_bytes(kernel.buffer(name), sizes, widths)) for name, amount in issued.items()}
    return round(sum(once.values())), round(sum(issued.values()))


def width(buffer: Buffer, widths: Mapping[str, int]) -> int:
    """Bytes of one element."""
    return element_width(buffer.dtype, widths)


def tensor_bytes(buffer: Buffer, sizes: Mapping[str, int], widths: Mapping[str, int]) -> float:
    """Bytes of a whole buffer; no bound where a dimension is not known."""
    if not set(buffer.dims) <= set(sizes):
        return float("inf")
    return prod(sizes[dim] for dim in buffer.dims) * width(buffer, widths)
