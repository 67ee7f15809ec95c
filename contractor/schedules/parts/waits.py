"""What a program waits for, counted from its kernel: memory, products, exchanges between its threads; and how many registers it holds.

A program's statements follow one another, so what each of them waits for adds up, however little it does. While one program waits, the
others on its multiprocessor work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from contractor.tile.count import Repeated, extent, programs_of, unrolled
from contractor.tile.evaluate import Places
from contractor.tile.expression import Dot, Reduce, Rename
from contractor.tile.kernel import Carry, Full, Kernel, Let, Load, Loop, Statement, statements
from contractor.tile.rules import ACC
from contractor.tile.shared import source
from contractor.tile.uses import nodes_read

THREAD = 48  # registers of a thread for places, addresses and constants


@dataclass(frozen=True, slots=True)
class Waits:
    """Of one program, on average. trips: to memory and back, those not counted that a pipeline hides; products: of matrices, one after
    the other; exchanges: values that pass between threads (sums, running sums, a computed tile turned to another axis or made a right
    operand). registers: 32-bit, held at once."""

    trips: float
    products: float
    exchanges: float
    registers: int


def waits(kernel: Kernel, sizes: Mapping[str, int], warps: int, stages: int, assumed: Mapping[str, float] | None = None) -> Waits:
    """What a program of a kernel waits for. assumed: as `count` takes it."""
    places = Places(dict(sizes), programs_of(kernel, sizes), dict(assumed or {}))
    repeated = tuple(unrolled(kernel.body, places, dict(places.start(kernel)), 1.0))
    lets = {one.tile: one.value for one in statements(kernel.body) if isinstance(one, Let)}
    read = [(x, one.times) for one in repeated for x in nodes_read(one.statement)]
    products = [(x, times) for x, times in read if isinstance(x, Dot)]
    computed = sum(times for x, times in products if source(x.right, lets) is None)
    exchanged = sum(times for x, times in read if isinstance(x, Reduce) or (isinstance(x, Rename) and x.dtype == ACC))
    times = {id(one.statement): one.times for one in repeated}
    trips = sum(times[id(one)] for one in trip_statements(kernel.body, stages))
    return Waits(trips, sum(times for _, times in products), exchanged + computed, registers(kernel, repeated, sizes, warps))


def trip_statements(body: tuple[Statement, ...], stages: int) -> Iterator[Statement]:
    """The statements that wait for memory.

    An innermost loop with products is pipelined: with three stages or more it waits once, until the pipeline is full; with two it waits
    once an iteration, as the next loads are sent for when this iteration has let go of its tiles. Otherwise a load through a descriptor
    waits by itself, and loads through pointers that follow one another wait together.
    """
    waiting = False
    for one in body:
        match one:
            case Loop() if stages > 1 and innermost(one) and multiplies(one):
                yield one if stages > 2 else one.body[0]
            case Loop():
                yield from trip_statements(one.body, stages)
            case Load() if one.source.via == "descriptor" or not waiting:
                yield one
            case _:
                pass
        if isinstance(one, Load):
            waiting = one.source.via == "pointer"
        elif isinstance(one, Loop) or has_product(one):
            waiting = False


def innermost(loop: Loop) -> bool:
    """True if a loop holds no other: only such a one is pipelined."""
    return not any(isinstance(one, Loop) for one in loop.body)


def multiplies(loop: Loop) -> bool:
    """True if a loop has products, so that its loads are pipelined."""
    return any(has_product(one) for one in statements(loop.body))


def has_product(one: Statement) -> bool:
    """True if a statement multiplies matrices."""
    return any(isinstance(x, Dot) for x in nodes_read(one))


def registers(kernel: Kernel, repeated: tuple[Repeated, ...], sizes: Mapping[str, int], warps: int) -> int:
    """An estimate: what is carried, the largest tile beside it, and some for each thread."""
    carried = sum(extent(kernel, one.tile.axes, sizes) for one in statements(kernel.body) if isinstance(one, Full | Carry))
    made = {x.axes for one in repeated for x in nodes_read(one.statement) if x.dtype == ACC}
    largest = max((extent(kernel, axes, sizes) for axes in made), default=0)
    return carried + largest + THREAD * 32 * warps
