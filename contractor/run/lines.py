"""What a sweep shows: a line for each order and peer, time against the size that is swept, and where two of them cross."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from contractor.run.rows import Table

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One order or peer. points: (size, milliseconds), where it was timed. chosen: the planner's choice, whatever it was at each size."""

    name: str
    ours: bool
    points: Points
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where two lines cross: the one that is faster before, the one that is faster behind, the size and the time."""

    before: str
    behind: str
    size: float
    milliseconds: float


def lines(tables: Sequence[Table], axis: str, both: bool = False) -> tuple[Line, ...]:
    """Each row that was timed somewhere, forward or (both) forward and backward, along an axis. The planner's choice is a line of its own:
    it changes along the way."""
    found: dict[tuple[str, bool, bool], list[tuple[int, float]]] = {}
    for table in tables:
        for row in table.rows:
            if (time := row.both if both else row.forward) is not None:
                found.setdefault(("planner's choice" if row.chosen else row.name, row.ours, row.chosen), []).append(
                    (table.problem.sizes[axis], time)
                )
    return tuple(Line(name, ours, tuple(sorted(points)), chosen) for (name, ours, chosen), points in found.items())


def crossovers(found: Sequence[Line]) -> tuple[Crossing, ...]:
    """Every crossing of two of our orders, or of a line of ours with a peer's."""
    pairs = [(one, other) for one, other in combinations(found, 2) if one.ours != other.ours]
    pairs += list(combinations([line for line in found if line.ours and not line.chosen], 2))
    return tuple(sorted((crossing for pair in pairs for crossing in crossings(*pair)), key=lambda crossing: crossing.size))


def crossings(first: Line, second: Line) -> Iterator[Crossing]:
    """Where two lines cross, both taken as straight on logarithmic axes between the sizes that they share."""
    other = dict(second.points)
    shared = [(math.log(size), math.log(time), math.log(other[size])) for size, time in first.points if size in other]
    for (left, own, others), (right, own_after, others_after) in pairwise(shared):
        apart, after = own - others, own_after - others_after
        if apart * after < 0 or (after == 0 and apart != 0):
            share = apart / (apart - after)
            names = (first.name, second.name) if apart < 0 else (second.name, first.name)
            yield Crossing(*names, math.exp(left + share * (right - left)), math.exp(own + share * (own_after - own)))
