"""Chunked: scores inside a chunk, the state across chunks, the state never leaving the registers.

One program owns a sequence, a head and a block of the result's columns, and walks the chunks in order. Legal where every transition of
the mask is a scalar (causal, decay, 1-semiseparable); this is the state-space duality form of Mamba-2 (Dao and Gu, 2024, section 6) with
the passes of the states and of the outputs in one kernel, as each chunk's state is only needed by the next. Where sequences and heads are
too few to fill a GPU the sequence is cut into segments: a first kernel finds what each of them adds to the state, and each program of the
second begins with what those before it have left.
"""

from __future__ import annotations

from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.schedules.parts.chunk import Place, advance, carry_in, give_out, placed, score, weigh
from contractor.schedules.parts.ends import entering, leaving, segment, store_segment, walked_before
from contractor.schedules.parts.flow import leave_crossing, leave_own, leave_pairs, leave_state, meet_state, operand_tile
from contractor.schedules.parts.form import Form, Row, Task
from contractor.schedules.parts.sums import sums_kernels
from contractor.schedules.parts.tilings import fitting, segmented, summed, tiling
from contractor.schedules.parts.walk import Layout, sizes
from contractor.tile.build import Builder
from contractor.tile.expression import Tile
from contractor.tile.kernel import Kernel
from contractor.tile.ops import Expr, cdiv, least, select, size

SAYS = "result[t, p] = {}scale · Σ over s and n of L[t, s] · query[t, n] · key[s, n] · {}value[s, p]{}"
SEGMENT_SAYS = "what each segment adds to the state: Σ over its s of L[segment end, s] · key[s, n] · value[s, p]"
SCALARS = ("scale", "T", "B", "SEQUENCES")


class Chunked:
    """Scores inside a chunk, a state across chunks."""

    name = "chunked"
    stepwise = False
    fuses = True

    def refusal(self, form: Form) -> str:
        """Every transition must be one number for the whole state, and entries must be nothing else."""
        if not form.directed or form.support is not None or form.tables:
            return form.stateless or "the mask is more than a product of transitions, so no state can be carried across a chunk"
        if form.matrices:
            return "a transition is a matrix: its one-pass form would need products of matrices inside a chunk"
        if not form.scalar:
            return "a gate differs between the channels of the state, so the scores of a chunk are no product of query and key"
        return ""

    def careful(self, form: Form) -> bool:
        """With the state in two parts a gate's gradient is right where it is made inside the passes; sums outside want wider operands."""
        return form.flow != ""

    def flows(self, form: Form) -> bool:
        """The passes leave what gates' gradients are made of."""
        return form.scalar

    def tilings(self, task: Task, machine: Machine) -> tuple[Tiling, ...]:
        """Without gates all columns in one block; a gate's factors want registers, so fewer columns and stages."""
        if machine.kind == "cpu":
            return segmented(task, machine, (tiling(task, machine, 0, 1, 1),))
        gates, inner = task.form.gates, task.dimensions.N
        if task.dtype == "float32":
            pairs = ((64, 8, 1),)
        elif inner > 128:
            pairs = ((64, 8, 2), (64, 8, 1))
        elif task.form.flow and inner > 64:  # measured: beside what they leave, a second program is worth more than a third stage
            pairs = ((64, 4, 2), (64, 4, 1))
        elif not gates:
            pairs = ((128, 4, 3), (64, 4, 3), (64, 4, 2), (64, 4, 1))
        else:
            pairs = ((64, 4, 3), (64, 4, 2), (64, 4, 1))
        fit = fitting(task, machine, tuple(tiling(task, machine, *pair) for pair in pairs))
        piped = tuple(one for one in fit if one.stages > 1)  # one stage is for machines on which two find no room
        return segmented(task, machine, summed(task, piped or fit))

    def kernels(self, form: Form, layout: Layout) -> tuple[Kernel, ...]:
        """The one-pass kernel, after those of gates' running sums and of the segments' states where there are such."""
        segments = (segments_kernel(form, layout),) if layout.segmented else ()
        return (*sums_kernels(form, layout), *segments, kernel(form, layout))


def kernel(form: Form, layout: Layout) -> Kernel:
    """The one-pass kernel."""
    k = Builder("chunked", says(form), sizes(layout), scalars=SCALARS)
    c = placed(k, form, layout)
    state = entering(k, form, layout, c.w, c.n, c.p)
    first, count = segment(k, form, layout, c.w)
    if form.spanned:
        spans(c, first, count, state)
    else:
        with k.loop("step", count) as step:
            one_chunk(c, numbered(k, form, first, count, step, "chunk"), state)
    leaving(k, form, layout, c.w, c.n, c.p, state)
    return k.done()


def says(form: Form) -> str:
    """The formula of a form."""
    target, source = ("".join(f"{name}[{axis}] · " for name in form.weighing(row)) for row, axis in ROWS)
    return SAYS.format(target, source, " + skip · value[t, p]" * form.skip)


ROWS: tuple[tuple[Row, str], ...] = (("target", "t"), ("source", "s"))


def numbered(k: Builder, form: Form, first: Expr | None, count: Expr, step: Expr, name: str) -> Expr:
    """The number of the step's chunk or span, from the last one on where the mask runs from the future."""
    along = count - 1 - step if form.future else step
    return along if first is None and not form.future else k.let(name, along if first is None else first + along)


def spans(c: Place, first: Expr | None, count: Expr, state: Tile) -> None:
    """The chunks in spans, at whose far ends a gate's gradient begins anew: there the target's pass has just come, and the source's is
    about to start."""
    k, each = c.k, size("SPAN") // size("CHUNK")
    number = k.let("spans", cdiv(count, each))
    with k.loop("turn", number) as turn:
        span = numbered(k, c.form, None, number, turn, "own_span")
        begin = k.let("span_chunk", span * each if first is None else first + span * each)
        whole = begin // each
        if c.form.flow == "source":
            meet_state(k, c.w, whole, c.n, c.p, state)
        inside = k.let("span_chunks", least(each, (count if first is None else first + count) - begin))
        with k.loop("step", inside) as step:
            one_chunk(c, numbered(k, c.form, begin, inside, step, "chunk"), state)
        if c.form.flow == "target":
            leave_state(k, c.w, whole, c.n, c.p, state)


def one_chunk(c: Place, chunk: Expr, state: Tile) -> None:
    """A chunk's results, and the state after it."""
    k = c.k
    here = c.rows(chunk)
    operand = operand_tile(k, c.layout, c.w, here.span("t"), c.p) if c.form.flow else None
    query, key, value = c.tile("query", "t", here), c.tile("key", "s", here), c.tile("value", "s", here)
    fades = c.factors(here)
    scores = score(c, query, key)
    if c.form.own:
        leave_own(k, c.w, here.span("t"), c.lane, scores)
    weights = weigh(c, scores, fades)
    if operand is not None:
        leave_pairs(k, c.layout, c.w, here.span("t"), operand, value, weights)
    carried = carry_in(c, query, fades, state)
    if operand is not None:
        leave_crossing(k, c.w, here.span("t"), operand, carried)
    give_out(c, here, weights, value, carried)
    k.note("carry: fade the state, add the chunk's outer products")
    advance(k, c.layout, state, key, value, fades)


def segments_kernel(form: Form, layout: Layout) -> Kernel:
    """What each segment but the last adds to the state, and how much it fades what was there."""
    k = Builder("segment_states", SEGMENT_SAYS, sizes(layout), scalars=SCALARS)
    c = placed(k, form, layout)
    state = k.full("state", "n", "p")
    passed = k.full("passed", value=1.0) if form.gates else None
    first, count = segment(k, form, layout, c.w)
    assert first is not None
    before_last = walked_before(form, c.w) < size("SEGMENTS") - 1
    with k.loop("step", k.let("needed", select(before_last, count, 0))) as step:
        here = c.rows(numbered(k, form, first, count, step, "chunk"))
        key, value = c.tile("key", "s", here), c.tile("value", "s", here)
        fades = c.factors(here)
        advance(k, layout, state, key, value, fades)
        if passed is not None and fades.fade is not None:
            k.update(passed, passed * fades.fade)
    store_segment(k, form, c.w, c.n, c.p, state, passed)
    return k.done()
