"""Chunked, in its one-pass form: scores inside a chunk, the state across chunks, the state never leaving the registers.

One program owns a batch element, a head and a block of the result's columns, and walks the chunks in order. Legal where every
transition of the mask is a scalar (causal, decay, 1-semiseparable); this is the state-space duality form of Mamba-2 (Dao and Gu, 2024,
section 6) with the passes of the states and of the outputs in one kernel, as each chunk's state is only needed by the next.
"""

from __future__ import annotations

from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.schedules.parts.factors import Factors, factors, fixed_points, gate_points, rates
from contractor.schedules.parts.form import Form, Task
from contractor.schedules.parts.support import directed
from contractor.schedules.parts.tilings import fitting, tiling
from contractor.schedules.parts.walk import Layout, Rows, Walk, inner, outer, rows, sizes, table, walk
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel, Span
from contractor.tile.ops import ACC, Expr, cast, cdiv, dot, iota, rename, select, size

SAYS = "result[t, p] = scale · Σ over s and n of L[t, s] · query[t, n] · key[s, n] · value[s, p]"


class Chunked:
    """Scores inside a chunk, a state across chunks."""

    name = "chunked"
    careful = True
    stepwise = False

    def refusal(self, form: Form) -> str:
        """Every transition must be one number for the whole state, and entries must be nothing else."""
        if not form.directed or form.support is not None or form.tables:
            return form.stateless or "the mask is more than a product of transitions, so no state can be carried across a chunk"
        if form.matrices:
            return "a transition is a matrix: its one-pass form would need products of matrices inside a chunk"
        if not form.scalar:
            return "a gate differs between the channels of the state, so the scores of a chunk are no product of query and key"
        return ""

    def tilings(self, task: Task, machine: Machine) -> tuple[Tiling, ...]:
        """Without gates all columns in one block; a gate's factors want registers, so fewer columns and stages."""
        if machine.kind == "cpu":
            return (tiling(task, machine, 0, 1, 1),)
        gates, inner = task.form.gates, task.dimensions.N
        if task.dtype == "float32":
            pairs = ((64, 8, 1),)
        elif inner > 128:
            pairs = ((64, 8, 2), (64, 8, 1))
        elif not gates:
            pairs = ((128, 4, 3), (64, 4, 3), (64, 4, 2), (64, 4, 1))
        else:
            pairs = ((64, 4, 3), (64, 4, 2), (64, 4, 1))
        return fitting(task, machine, tuple(tiling(task, machine, *pair) for pair in pairs))

    def kernel(self, form: Form, layout: Layout) -> Kernel:
        """The one-pass kernel."""
        return kernel(form, layout)


def kernel(form: Form, layout: Layout) -> Kernel:
    """The one-pass kernel of a form."""
    k = Builder("chunked", SAYS, sizes(layout), scalars=("scale", "T", "B"))
    w = walk(k, form, layout)
    n, p = inner(k, layout), outer(k, layout, w)
    lane = k.let("lane", iota("t"))
    seen = k.let("seen", directed(form, lane, rename(lane, t="s")))
    fixed = rates(k, form, w, {})
    steady = steady_factors(k, form, fixed, lane, seen)
    state = k.full("state", "n", "p")
    chunks = k.let("chunks", cdiv(size("T"), size("CHUNK")))
    with k.loop("step", chunks) as step:
        chunk = k.let("chunk", chunks - 1 - step) if form.future else step
        here = rows(k, lane, chunk)
        query, key, value = load_tiles(k, layout, w, here, n, p)
        fades = steady or factors(k, form, gate_points(k, form, w, fixed, here, lane, {}, layout.clamped), seen)
        k.note("inside the chunk: scores under the mask")
        scores = k.let("scores", dot(query, key, precision=layout.precision))
        weights = k.let("weights", select(seen, scores, 0.0) if fades.within is None else scores * fades.within)
        k.note(
            "from earlier chunks: the query reads the carried state"
            if not form.future
            else "from later chunks: the query reads the carried state"
        )
        carried = through(k, layout, query, state, "state", None)
        carried = k.let("carried", carried if fades.enter is None else carried * fades.enter)
        out = k.let("out", dot(cast(weights, value), value, into=carried, precision=layout.precision))
        target, head = table(k, w, "result", "P", via=layout.via)
        k.store(target, w.batch, here.span("t"), head, p, value=cast(k.let("scaled", out * size("scale", ACC)), target.name))
        k.note("carry: fade the state, add the chunk's outer products")
        advance(k, layout, state, key, value, fades)
    return k.done()


def steady_factors(k: Builder, form: Form, fixed: dict[str, Expr], lane: Expr, seen: Expr) -> Factors | None:
    """The factors, where they are the same in every chunk."""
    if not all(gate.fixed for gate in form.gates):
        return None
    if form.gates:
        k.note("the mask's tile does not change from chunk to chunk")
    return factors(k, form, tuple(fixed_points(k, form, gate, fixed[gate.name], lane) for gate in form.gates), seen)


def load_tiles(k: Builder, layout: Layout, w: Walk, here: Rows, n: Span, p: Span) -> tuple[Expr, Expr, Expr]:
    """The chunk's query over (t, n), key over (s, n) and value over (s, p)."""
    tiles: list[Expr] = []
    for name, axis, feature, span in (("query", "t", "N", n), ("key", "s", "N", n), ("value", "s", "P", p)):
        source, head = table(k, w, name, feature, via=layout.via)
        tiles.append(k.load(f"{name}_tile", source, w.batch, here.span(axis), head, span))
    query, key, value = tiles
    return query, key, value


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
