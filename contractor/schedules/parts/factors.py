"""The factors of a chunk: how a mask fades inside it, from the state before, into the state after, and across.

All four are one transition at different pairs of points, so every mask and both directions come from `between`. Exponents are masked
before they are exponentiated, in base 2, and none is positive. A gate of −inf (or one that underflows) closes the past: closings are
counted beside the sum, and a pair of points is open only if their counts agree, so no difference of infinities is ever formed; and a
sum is kept in two parts, multiples of 1/16 (whose sums and differences are exact in float32) and what is left, so that a strong gate
costs the weak ones beside it no digits. With
operands of 16 bits a closing is summed as −150, whose factor is 0 in float32: sums stay below 1e4, so their differences keep three
digits even where every gate closes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from contractor.schedules.parts.form import Form, Gate, Side
from contractor.schedules.parts.walk import Layout, Rows, Walk, head_of, table
from contractor.tile.build import Builder
from contractor.tile.ops import ACC, I32, I64, Expr, Span, cast, cumsum, exp2, least, most, number, rename, select, size, total

LOG2E = 1 / math.log(2)
CLOSED = -150.0  # base 2: a factor this small is zero in float32
NEVER = -math.inf
Spans = dict[Side, Span]


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A place between two positions: the sum of the gates up to it and, where gates may close, the rest of that sum below multiples of
    1/16 and how many closed."""

    sum: Expr
    rest: Expr | None = None
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
    if later.closings is None or earlier.closings is None or later.rest is None or earlier.rest is None:
        return passed
    return select(later.closings.same(earlier.closings), passed + (later.rest - earlier.rest), NEVER)


def factors(k: Builder, form: Form, points: tuple[Points, ...], seen: Expr, within: Expr | None = None) -> Factors:
    """The factors of one chunk under all gates; within, if it is known already."""
    if not points:
        return Factors()
    logs = exponents(points, form.future)
    return Factors(
        within_of(k, form, points, seen) if within is None else within,
        k.let("enter", exp2(logs.enter)),
        k.let("leave", exp2(logs.leave)),
        k.let("fade", exp2(logs.fade)),
    )


def within_of(k: Builder, form: Form, points: tuple[Points, ...], seen: Expr) -> Expr | None:
    """The factor between the positions of one chunk under all gates."""
    return k.let("within", exp2(select(seen, exponents(points, form.future).within, NEVER))) if points else None


@dataclass(frozen=True, slots=True, eq=False)
class Logs:
    """The base-2 logs of the factors of one chunk."""

    within: Expr
    enter: Expr
    leave: Expr
    fade: Expr


def exponents(points: tuple[Points, ...], future: bool) -> Logs:
    """The logs of all gates together. In the future direction a state comes from the chunk's end and goes to its start."""
    return Logs(
        added([between(one.source, one.target) if future else between(one.target, one.source) for one in points]),
        added([between(one.end, one.target) if future else between(one.target, one.start) for one in points]),
        added([between(one.source, one.start) if future else between(one.end, one.source) for one in points]),
        added([between(one.end, one.start) for one in points]),
    )


def added(terms: list[Expr]) -> Expr:
    """The sum of several logs."""
    result, *rest = terms
    for term in rest:
        result = result + term
    return result


def rates(k: Builder, form: Form, w: Walk, spans: Spans) -> dict[str, Expr]:
    """The base-2 log of every fixed decay, read once."""
    return {gate.name: rate_of(k, w, gate, spans) for gate in form.gates if gate.fixed}


def gate_points(
    k: Builder, form: Form, layout: Layout, w: Walk, fixed: dict[str, Expr], here: Rows, lane: Expr, spans: Spans, prefix: str = ""
) -> tuple[Points, ...]:
    """The points of one block of rows under every gate."""
    return tuple(
        fixed_points(k, gate, form.future, fixed[gate.name], lane, prefix, lasting(w, form, here))
        if gate.fixed
        else varying_points(k, form, layout, w, gate, here, spans, prefix)
        for gate in form.gates
    )


def fixed_points(k: Builder, gate: Gate, future: bool, rate: Expr, lane: Expr, prefix: str = "", lasting: Expr | None = None) -> Points:
    """A decay that is the same at every position: sums are multiples of its rate. lasting: how many positions the block has, None where
    that does not matter as nothing passes its end."""
    count = size("CHUNK", ACC) if lasting is None else cast(lasting, ACC)
    last = cast(lane + 1, ACC) if lasting is None else least(cast(lane + 1, ACC), count)
    upto = k.let(f"{prefix}{gate.name}_sum", last * rate)
    short = upto
    if gate.shift:
        before = cast(lane, ACC) if lasting is None else least(cast(lane, ACC), count)
        short = k.let(f"{prefix}{gate.name}_before", before * rate)
    target, source = (upto, short) if future else (short, upto)
    return Points(Point(number(0.0)), Point(target), Point(rename(source, t="s")), Point(count * rate))


def lasting(w: Walk, form: Form, here: Rows) -> Expr | None:
    """How many of a block's positions the sequence has, where a state enters or leaves at its end."""
    return least(size("CHUNK"), w.length - here.first) if form.initial or form.final else None


def rate_of(k: Builder, w: Walk, gate: Gate, spans: Spans) -> Expr:
    """The base-2 log of a fixed decay; 0 to the power 0 stays 1, so the log of 0 is large but finite."""
    count, head = head_of(w, gate.name)
    dims = (side.upper() for side in gate.features)
    natural = k.load(f"{gate.name}_natural", k.buffer(gate.name, count, *dims, dtype=ACC), head, *spans_of(gate, spans))
    return k.let(f"{gate.name}_rate", most(natural * LOG2E, number(-1e4)) if gate.resets else natural * LOG2E)


def spans_of(gate: Gate, spans: Spans) -> tuple[Span, ...]:
    """The feature axes of a gate."""
    return tuple(spans[side] for side in gate.features)


def summable(gate: Gate, layout: Layout) -> bool:
    """True if plain running sums of a gate are all that a pass needs."""
    return not gate.fixed and not gate.features and not gate.shift and (layout.clamped or not gate.resets)


def read_points(k: Builder, w: Walk, gate: Gate, here: Rows, name: str) -> Points:
    """A gate whose sums inside the block were made before (`parts.sums`); rows past the end read what the last row has."""
    count, head = head_of(w, gate.name)
    sums = k.buffer(f"{gate.name}_sums", "B", count, "T", dtype=ACC)
    begin: Expr | int = 0 if w.begin is None else w.begin
    upto = Point(k.load(f"{name}_sum", sums, w.batch, head, Span("t", here.first, least(here.row, begin + cast(w.length - 1, I64)))))
    last = least(here.first + size("CHUNK"), w.length) - 1
    whole = Point(k.load(f"{name}_sum_whole", sums, w.batch, head, begin + last))
    return Points(Point(number(0.0)), upto, as_source(upto), whole)


def varying_points(k: Builder, form: Form, layout: Layout, w: Walk, gate: Gate, here: Rows, spans: Spans, prefix: str) -> Points:
    """A gate at each position: sums inside the block. Rows past the end read a gate of 0."""
    name, clamped = prefix + gate.name, layout.clamped
    if layout.summed and summable(gate, layout):
        return read_points(k, w, gate, here, name)
    buffer, head = table(k, w, gate.name, *(side.upper() for side in gate.features), dtype=ACC)
    natural = k.load(f"{name}_natural", buffer, w.batch, here.span("t"), head, *spans_of(gate, spans))
    step = k.let(f"{name}_step", most(natural * LOG2E, CLOSED) if gate.resets and clamped else natural * LOG2E)
    if not gate.resets or clamped:
        sums, whole = summed(k, f"{name}_sum", step)
        upto, start, end = Point(sums), Point(number(0.0)), Point(whole)
        short = Point(k.let(f"{name}_before", sums - step)) if gate.shift else upto
    else:
        upto, short, start, end = counted_points(k, gate, name, step)
    target, source = (upto, short) if form.future else (short, upto)
    return Points(start, target, as_source(source), end)


def counted_points(k: Builder, gate: Gate, name: str, step: Expr) -> tuple[Point, Point, Point, Point]:
    """(after each row's gate, before it where the gate is late, the start, the end), in two parts and with closings counted."""
    closed = k.let(f"{name}_closed", step < CLOSED)
    passing = k.let(f"{name}_passing", select(closed, 0.0, step))
    coarse = k.let(f"{name}_coarse", cast(cast(passing * 16.0, I32), ACC) * (1 / 16))
    parts = (coarse, k.let(f"{name}_fine", passing - coarse), k.let(f"{name}_flags", select(closed, 1.0, 0.0)))
    names = (f"{name}_sum", f"{name}_rest", f"{name}_closings")
    sums = [summed(k, label, part) for label, part in zip(names, parts, strict=True)]
    upto, end = Point(*(one for one, _ in sums)), Point(*(whole for _, whole in sums))
    short = upto
    if gate.shift:
        short = Point(*(k.let(f"{label}_before", one - part) for label, (one, _), part in zip(names, sums, parts, strict=True)))
    nothing = number(0.0)
    return upto, short, Point(nothing, nothing, nothing), end


def summed(k: Builder, name: str, values: Expr) -> tuple[Expr, Expr]:
    """Running sums along the block, and the block's whole sum."""
    return k.let(name, cumsum(values, "t")), k.let(f"{name}_whole", total(values, "t"))


def as_source(point: Point) -> Point:
    """The same point under the axis s."""
    rest = None if point.rest is None else rename(point.rest, t="s")
    return Point(rename(point.sum, t="s"), rest, None if point.closings is None else rename(point.closings, t="s"))
