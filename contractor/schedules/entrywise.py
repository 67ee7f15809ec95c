"""Entrywise: every target walks away from itself through its sources and carries its query through each transition that it crosses.

Legal for every mask with transitions, whatever else stands beside them: matrices under a window, gates for every entry of the state under
documents. It costs T² steps in all and uses no tensor units, so it is chosen where nothing else may be used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.schedules.parts.factors import LOG2E
from contractor.schedules.parts.form import Form, Gate, Matrix, Task
from contractor.schedules.parts.support import bounds, supported
from contractor.schedules.parts.tables import looked_up
from contractor.schedules.parts.tilings import tiling
from contractor.schedules.parts.walk import Layout, Rows, Walk, head_of, inner, outer, rows, sizes, table, walk
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel, Span
from contractor.tile.ops import ACC, Expr, cast, exp2, iota, number, rename, select, size, total

SAYS = "result[t, p] = scale · Σ over s and n of L[t, s] · query[t, n] · key[s, n] · value[s, p], each entry of L by its transitions"


class Entrywise:
    """The query carried through the transitions."""

    name = "entrywise"
    stepwise = True
    fuses = False

    def refusal(self, form: Form) -> str:
        """There must be transitions to follow."""
        if not form.steps:
            return "the mask has no transitions to follow: scores first does the same with products of tiles"
        return form.walked

    def careful(self, _form: Form) -> bool:
        """A careful task wants wider operands."""
        return False

    def flows(self, _form: Form) -> bool:
        """Gradients of gates are made outside."""
        return False

    def tilings(self, task: Task, machine: Machine) -> tuple[Tiling, ...]:
        """One target at a time where it carries a matrix product, few otherwise."""
        if machine.kind == "cpu":
            return (tiling(task, machine, 0, 1, 1),)
        dense = any(step.kind == "dense" for step in task.form.matrices)
        return (replace(tiling(task, machine, 16, 4, 1, 1 if dense else 16, smallest=1), via="pointer"),)

    def kernels(self, form: Form, layout: Layout) -> tuple[Kernel, ...]:
        """The entrywise kernel."""
        return (kernel(form, layout),)


@dataclass(frozen=True, slots=True, eq=False)
class Crossing:
    """Where the walk stands: the program, its columns, the sources that its targets have come to."""

    k: Builder
    w: Walk
    n: Span
    p: Span
    m: Span | None
    source: Rows


def kernel(form: Form, layout: Layout) -> Kernel:
    """The entrywise kernel of a form."""
    k = Builder("entrywise", SAYS, sizes(layout), scalars=("scale", "T", "B", "offset"))
    w = walk(k, form, layout, split_rows=True)
    assert w.row_block is not None
    n, p, m = inner(k, layout), outer(k, layout, w), column(k, form, layout)
    lane = k.let("lane", iota("t"))
    targets = rows(k, w, lane, w.row_block)
    known = bounds(k, form, w)
    wide = any("p" in gate.features for gate in form.gates)
    source, head = table(k, w, "query", "N")
    query = cast(k.load("query_tile", source, w.batch, targets.span("t"), head, n), ACC)
    carried = k.full("carried", "t", "n", *(("p",) if wide else ()))
    k.update(carried, carried + query)
    out = k.full("out", "t", "p")
    early, every = tuple(step for step in form.steps if not step.shift), form.steps
    with k.loop("step", size("T")) as step:
        here = Crossing(k, w, n, p, m, moved(k, targets, step if form.future else 0 - step))
        first = k.let("first", step.same(0))
        entered = carried
        if form.future:
            entered = k.let("entered", select(first, carried, crossed(here, early, carried, "entering_")))
        k.update(out, out + read(here, form, known, targets, entered, first))
        passed = crossed(here, every, carried, "")
        short = carried if form.future else crossed(here, early, carried, "own_")
        k.update(carried, select(first, short, passed))
    target, head = table(k, w, "result", "P")
    k.store(target, w.batch, targets.span("t"), head, p, value=cast(k.let("scaled", out * size("scale", ACC)), target.name))
    return k.done()


def column(k: Builder, form: Form, layout: Layout) -> Span | None:
    """The columns of matrices, under an axis of their own; None without matrices."""
    if not any(step.kind == "dense" for step in form.matrices):
        return None
    k.axis("m", sizes(layout)["n"])
    index = k.let("m", iota("m"))
    return Span("m", number(0), index, index < size("N") if layout.padded_n else None)


def moved(k: Builder, targets: Rows, by: Expr) -> Rows:
    """The source of each target: as far from it as all others are from theirs."""
    first = k.let("source_first", targets.first + by)
    place = k.let("source_place", targets.place + by)
    inside = (place >= 0) & (place < size("T")) & targets.inside
    return Rows(first, place, k.let("source_row", targets.row + by), k.let("source_inside", inside))


def read(c: Crossing, form: Form, known: dict[str, Expr], targets: Rows, query: Expr, first: Expr) -> Expr:
    """What the sources add to the result."""
    k = c.k
    key_buffer, key_head = table(k, c.w, "key", "N")
    value_buffer, value_head = table(k, c.w, "value", "P")
    key = cast(k.load("key_tile", key_buffer, c.w.batch, c.source.span("t"), key_head, c.n), ACC)
    value = cast(k.load("value_tile", value_buffer, c.w.batch, c.source.span("t"), value_head, c.p), ACC)
    scores = k.let("scores", total(query * key, "n"))
    for one in form.tables:
        scores = scores * looked_up(k, form, c.w, one, targets, c.source, "", axis="t")
    if form.support is not None:
        scores = select(supported(k, form, c.w, known, targets, c.source, "", axis="t"), scores, 0.0)
    return select(first, 0.0, scores * value) if form.strict else scores * value


def crossed(c: Crossing, steps: tuple[Gate | Matrix, ...], carried: Expr, prefix: str) -> Expr:
    """The query after crossing the sources' positions: the factor nearest the target first."""
    for step in steps:
        if isinstance(step, Gate):
            carried = carried * faded(c, step, prefix)
        elif step.kind == "dense":
            carried = multiplied(c, step, carried, prefix)
        else:
            carried = erased(c, step, carried, prefix)
    return carried


def faded(c: Crossing, gate: Gate, prefix: str) -> Expr:
    """The factor of a scalar or diagonal gate."""
    spans = tuple(c.n if side == "n" else c.p for side in gate.features)
    natural = loaded(c, gate.name, gate.fixed, spans, prefix)
    return natural if gate.by_value else c.k.let(f"{prefix}{gate.name}_factor", exp2(natural * LOG2E))


def loaded(c: Crossing, name: str, fixed: bool, spans: tuple[Span, ...], prefix: str) -> Expr:
    """A transition's tensor at the sources, or the one that holds for all."""
    count, head = head_of(c.w, name)
    dims = tuple("N" if span.axis == "m" else span.axis.upper() for span in spans)
    if fixed:
        return c.k.load(f"{prefix}{name}_tile", c.k.buffer(name, count, *dims, dtype=ACC), head, *spans)
    buffer = c.k.buffer(name, "B", "T", count, *dims, dtype=ACC)
    return c.k.load(f"{prefix}{name}_tile", buffer, c.w.batch, c.source.span("t"), head, *spans)


def multiplied(c: Crossing, step: Matrix, carried: Expr, prefix: str) -> Expr:
    """carried [n] · matrix [n, m]."""
    assert c.m is not None
    matrix = loaded(c, step.name, step.fixed, (c.n, c.m), prefix)
    before = c.k.let(f"{prefix}{step.name}_before", carried)
    return c.k.let(f"{prefix}{step.name}_carried", rename(total(before * matrix, "n"), m="n"))


def erased(c: Crossing, step: Matrix, carried: Expr, prefix: str) -> Expr:
    """carried · diag(exp log) − (carried · key) eraseᵀ."""
    k, name = c.k, f"{prefix}{step.name}"
    key, erase = vector(c, f"{step.name}_key", prefix), vector(c, f"{step.name}_erase", prefix)
    before = k.let(f"{name}_before", carried)
    kept = before
    if step.log:
        kept = before * k.let(f"{name}_factor", exp2(vector(c, f"{step.name}_log", prefix) * LOG2E))
    return k.let(f"{name}_carried", kept - k.let(f"{name}_read", total(before * key, "n")) * erase)


def vector(c: Crossing, name: str, prefix: str) -> Expr:
    """A vector of a rank-one step at the sources, in the accumulators' precision."""
    source, head = table(c.k, c.w, name, "N")
    return cast(c.k.load(f"{prefix}{name}_row", source, c.w.batch, c.source.span("t"), head, c.n), ACC)
