"""The factors of a chunk: how a mask fades inside it, from the state before, into the state after, and across.

All four are one transition at different pairs of points, so every mask and both directions come from `between`. Exponents are masked
before they are exponentiated, in base 2, and none is positive. A gate of −inf (or one that underflows) closes the past: closings are
counted beside the sum, and a pair of points is open only if their counts agree, so no difference of infinities is ever formed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from contractor.schedules.parts.form import Form, Gate
from contractor.schedules.parts.walk import Rows, Walk, head_of, table
from contractor.tile.build import Builder
from contractor.tile.ops import ACC, Expr, cast, cumsum, exp2, number, rename, select, size, total

LOG2E = 1 / math.log(2)
CLOSED = -150.0  # base 2: a factor this small is zero in float32
NEVER = -math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A place between two positions: the sum of the gates up to it and, where gates may close, how many did."""

    sum: Expr
    closings: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """The four points of a chunk under one gate: its start, each target, each source, its end."""

    start: Point
    target: Point
    source: Point
    end: Point


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """within [t, s] (zero where unseen), enter [t] from the state, leave [s] into the state, fade of the state; None where it is 1."""

    within: Expr | None = None
    enter: Expr | None = None
    leave: Expr | None = None
    fade: Expr | None = None


def between(later: Point, earlier: Point) -> Expr:
    """The log of the transition from one point to a later one."""
    passed = later.sum - earlier.sum
    if later.closings is None or earlier.closings is None:
        return passed
    return select(later.closings.same(earlier.closings), passed, NEVER)


def factors(k: Builder, form: Form, points: tuple[Points, ...], seen: Expr) -> Factors:
    """The factors of one chunk under all gates."""
    if not points:
        return Factors()
    pairs = [exponents(one, form.future) for one in points]
    within, enter, leave, fade = (added(list(column)) for column in zip(*pairs, strict=True))
    return Factors(
        k.let("within", exp2(select(seen, within, NEVER))),
        k.let("enter", exp2(enter)),
        k.let("leave", exp2(leave)),
        k.let("fade", exp2(fade)),
    )


def exponents(points: Points, future: bool) -> tuple[Expr, Expr, Expr, Expr]:
    """The logs of within, enter, leave and fade. In the future direction a state comes from the chunk's end and goes to its start."""
    fade = between(points.end, points.start)
    if future:
        return between(points.source, points.target), between(points.end, points.target), between(points.source, points.start), fade
    return between(points.target, points.source), between(points.target, points.start), between(points.end, points.source), fade


def added(terms: list[Expr]) -> Expr:
    """The sum of several logs."""
    result = terms[0]
    for term in terms[1:]:
        result = result + term
    return result


def fixed_points(k: Builder, form: Form, w: Walk, gate: Gate, lane: Expr) -> Points:
    """A decay that is the same at every position: sums are multiples of its rate."""
    count, head = head_of(k, form, w, gate.name)
    natural = k.load(f"{gate.name}_natural", k.buffer(gate.name, count, dtype=ACC), head)
    rate = k.let(f"{gate.name}_rate", natural * LOG2E)
    upto = (cast(lane, ACC) + 1.0) * rate
    short = cast(lane, ACC) * rate if gate.shift else upto
    target, source = (upto, short) if form.future else (short, upto)
    return Points(Point(number(0.0)), Point(target), Point(rename(source, t="s")), Point(cast(size("CHUNK"), ACC) * rate))


def varying_points(k: Builder, form: Form, w: Walk, gate: Gate, here: Rows) -> Points:
    """A gate at each position: sums inside the chunk. Rows past the end read a gate of 0."""
    buffer, head = table(k, form, w, gate.name, dtype=ACC)
    natural = k.load(f"{gate.name}_natural", buffer, w.batch, here.span("t"), head)
    step = k.let(f"{gate.name}_step", natural * LOG2E)
    closed = k.let(f"{gate.name}_closed", step < CLOSED) if gate.resets else None
    open_step = step if closed is None else k.let(f"{gate.name}_open", select(closed, 0.0, step))
    flags = None if closed is None else select(closed, 1.0, 0.0)
    sums, whole = summed(k, gate, "sum", open_step)
    counts, all_counts = (None, None) if flags is None else summed(k, gate, "closings", flags)
    upto = Point(sums, counts)
    short = upto if not gate.shift else Point(sums - open_step, None if counts is None or flags is None else counts - flags)
    target, source = (upto, short) if form.future else (short, upto)
    start = Point(number(0.0), None if counts is None else number(0.0))
    return Points(start, target, as_source(source), Point(whole, all_counts))


def summed(k: Builder, gate: Gate, what: str, values: Expr) -> tuple[Expr, Expr]:
    """Running sums along the chunk, and the chunk's whole sum."""
    return k.let(f"{gate.name}_{what}", cumsum(values, "t")), k.let(f"{gate.name}_whole_{what}", total(values, "t"))


def as_source(point: Point) -> Point:
    """The same point under the axis s."""
    return Point(rename(point.sum, t="s"), None if point.closings is None else rename(point.closings, t="s"))
