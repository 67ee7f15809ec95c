"""One chunk of a sequence: its tiles, the factors of its mask, what its targets read, how it moves the state on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import mul

from contractor.schedules.parts.beside import skip_of, weights_of
from contractor.schedules.parts.factors import Factors, factors, fixed_points, gate_points, rates, within_of
from contractor.schedules.parts.form import Form
from contractor.schedules.parts.support import directed
from contractor.schedules.parts.walk import Layout, Rows, Walk, inner, outer, rows, table, walk
from contractor.tile.build import Builder
from contractor.tile.ops import ACC, Expr, Span, cast, dot, iota, rename, select, size


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """What does not change from chunk to chunk: the program's place, its blocks of features, the positions of a chunk and which pairs of
    them are seen, the rates of fixed decays and, where every gate is fixed, the factors (or, if chunks may end early, `within` alone);
    how much of its own value a target gets (None: nothing)."""

    k: Builder
    form: Form
    layout: Layout
    w: Walk
    n: Span
    p: Span
    lane: Expr
    seen: Expr
    fixed: dict[str, Expr]
    steady: Factors | None
    skip: Expr | None

    def rows(self, chunk: Expr) -> Rows:
        """The chunk's rows."""
        return rows(self.k, self.w, self.lane, chunk)

    def tile(self, name: str, axis: str, here: Rows) -> Expr:
        """A chunk's tile of an operand: over n for query and key, over p for the others."""
        feature, span = ("N", self.n) if name in ("query", "key") else ("P", self.p)
        source, head = table(self.k, self.w, name, feature, via=self.layout.via)
        return self.k.load(f"{name}_tile", source, self.w.batch, here.span(axis), head, span)

    def factors(self, here: Rows) -> Factors:
        """The chunk's factors, each source's weight in them."""
        rows = tuple(weights_of(self.k, self.form.weighing("source"), self.w, here, "s"))
        if self.steady is not None and not early_ends(self.form):
            found = self.steady
        else:
            points = gate_points(self.k, self.form, self.layout, self.w, self.fixed, here, self.lane, {})
            found = factors(self.k, self.form, points, self.seen, None if self.steady is None else self.steady.within)
        if not rows:
            return found
        row = reduce(mul, rows)
        within = select(self.seen, row, 0.0) if found.within is None else found.within * row
        leave = row if found.leave is None else found.leave * row
        return replace(found, within=self.k.let("weighted_within", within), leave=self.k.let("weighted_leave", leave))


def placed(k: Builder, form: Form, layout: Layout) -> Place:
    """The program's place, and what all chunks share."""
    w = walk(k, form, layout)
    n, p = inner(k, layout), outer(k, layout, w)
    lane = k.let("lane", iota("t"))
    seen = k.let("seen", directed(form, lane, rename(lane, t="s")))
    fixed = rates(k, form, w, {})
    return Place(
        k, form, layout, w, n, p, lane, seen, fixed, steady_factors(k, form, fixed, lane, seen), skip_of(k, w) if form.skip else None
    )


def early_ends(form: Form) -> bool:
    """True if it matters that the last chunk may end before its block does: a state enters or leaves there."""
    return form.initial or form.final


def steady_factors(k: Builder, form: Form, fixed: dict[str, Expr], lane: Expr, seen: Expr) -> Factors | None:
    """The factors, where they are the same in every chunk."""
    if not all(gate.fixed for gate in form.gates):
        return None
    if form.gates:
        k.note("the mask's tile does not change from chunk to chunk")
    prefix = "steady_" if early_ends(form) else ""
    points = tuple(fixed_points(k, gate, form.future, fixed[gate.name], lane, prefix) for gate in form.gates)
    return Factors(within_of(k, form, points, seen)) if early_ends(form) else factors(k, form, points, seen)


def score(c: Place, query: Expr, key: Expr) -> Expr:
    """The scores [t, s] of the chunk's own pairs."""
    c.k.note("inside the chunk: scores under the mask")
    return c.k.let("scores", dot(query, key, precision=c.layout.precision))


def weigh(c: Place, scores: Expr, fades: Factors) -> Expr:
    """The weights [t, s] of the chunk's own pairs."""
    return c.k.let("weights", select(c.seen, scores, 0.0) if fades.within is None else scores * fades.within)


def carry_in(c: Place, query: Expr, fades: Factors, state: Expr) -> Expr:
    """What the chunk's targets read from the carried state [t, p]."""
    c.k.note(f"from {'later' if c.form.future else 'earlier'} chunks: the query reads the carried state")
    carried = through(c.k, c.layout, query, state, "state", None)
    return c.k.let("carried", carried if fades.enter is None else carried * fades.enter)


def give_out(c: Place, here: Rows, weights: Expr, value: Expr, carried: Expr) -> None:
    """Stores what the chunk's targets read in all, scaled and weighted, and what skips past to them."""
    k = c.k
    out = k.let("out", dot(cast(weights, value), value, into=carried, precision=c.layout.precision))
    target, head = table(k, c.w, "result", "P", via=c.layout.via)
    given = out * size("scale", ACC)
    for row in weights_of(k, c.form.weighing("target"), c.w, here, "t"):
        given = given * row
    if c.skip is not None:
        given = given + c.skip * cast(rename(value, s="t"), ACC)
    k.store(target, c.w.batch, here.span("t"), head, c.p, value=cast(k.let("scaled", given), target.name))


def through(k: Builder, layout: Layout, left: Expr, right: Expr, name: str, into: Expr | None) -> Expr:
    """left · right, added to `into`, where right is an accumulator: rounded to the operands' dtype, or in two parts that keep it."""
    high = k.let(f"{name}_high", cast(right, left)) if layout.split else cast(right, left)
    product = dot(left, high, into=into, precision=layout.precision)
    if not layout.split:
        return product
    low = k.let(f"{name}_low", cast(right - cast(high, ACC), left))
    return dot(left, low, into=product, precision=layout.precision)


def advance(k: Builder, layout: Layout, state: Expr, key: Expr, value: Expr, fades: Factors) -> None:
    """state ← fade · state + keyᵀ (leave · value)."""
    faded = state if fades.fade is None else state * fades.fade
    if fades.leave is None:
        k.update(state, dot(key, value, into=faded, precision=layout.precision))
        return
    leaving = cast(value, ACC) * fades.leave
    if layout.split:
        leaving = k.let("leaving", leaving)
    k.update(state, through(k, layout, key, leaving, "leaving", faded))
