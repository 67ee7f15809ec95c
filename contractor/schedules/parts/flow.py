"""The gradient of scalar gates inside the passes of the backward.

The gradient of the log of the gate at j is the sum over the pairs (s, t) with s < j ≤ t of what each pair gives, its weight times the
weight's gradient: F(j) = ⟨state before j, faded; the state's gradient at j⟩. Sums of query·dQuery − key·dKey over everything after j would
give it too, but each row's rounding would then be in the gradient of every gate before it. Here a row's rounding stays in its chunk:
    F(j) = past + Σ over rows i ≥ j of crossing in [i] + Σ over i < j of crossing out [i] + the pairs inside the chunk across j
The pairs inside a chunk are summed over each side in float32, from the same products: `target_pairs` by the target's pass and
`source_pairs` by the source's, [B, H, COLUMN_BLOCKS, T], so that what ends in the chunk cancels to float32's last digits. What crosses a
chunk's border is summed where the carried state is read, `target_crossing` and `source_crossing`. `past`, the pairs around the whole
chunk, follows from chunk to chunk, is 0 where the chunk fades all that passes it, and begins anew every SPAN positions from ⟨state,
state's gradient⟩, `meets`: the target's pass leaves its state after every span, the source's meets it there. A last kernel puts them
together.

What a source is weighted by has the gradient Σ over n of key · dKey before the weight, and a target likewise of query · dQuery: each pass
weights its rows last, so both of its halves together are that sum, and it may make them for that alone (flow "weight").
"""

from __future__ import annotations

from contractor.schedules.parts.beside import weights_of
from contractor.schedules.parts.factors import CLOSED, LOG2E
from contractor.schedules.parts.form import Form, Gate
from contractor.schedules.parts.walk import Layout, Rows, Walk, head_of, rows, stream_of, table
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel
from contractor.tile.ops import ACC, I32, Expr, Span, cast, cdiv, cumsum, dot, iota, least, number, rename, select, size, total

SPAN = 512
"""Positions between two restarts."""

SPAN_STATE = ("SPANS", "H", "N", "P")
MEETS = ("SPANS", "H", "COLUMN_BLOCKS")
FLOW = ("B", "H", "COLUMN_BLOCKS", "T")
HALVES = ("target_crossing", "source_crossing", "target_pairs", "source_pairs")
SAYS = "gradient of the log gate at j: what the pairs (s, t) with s < j <= t give, summed"


def slot(w: Walk, span: Expr) -> Expr:
    """Where a span of the program's sequence stands among all: those of a batch element follow one another; packed sequences have one
    more than their full spans, so that none is in another's place."""
    if w.begin is None:
        return w.sequence * cdiv(size("T"), size("SPAN")) + span
    return cast(w.begin // size("SPAN"), I32) + w.sequence + span


def operand_tile(k: Builder, layout: Layout, w: Walk, rows: Span, p: Span) -> Expr:
    """The operand whose gradient a pass makes."""
    source, head = table(k, w, "operand", "P", via=layout.via)
    return k.load("operand_tile", source, w.batch, rows, head, p)


def leave_crossing(k: Builder, w: Walk, rows: Span, operand: Expr, carried: Expr) -> None:
    """Stores what each row's pairs with other chunks give: what it read from the state, times the operand of which that is the gradient."""
    crossing = k.let("crossing_row", total(cast(operand, ACC) * carried, "p"))
    k.store(k.buffer("crossing", *FLOW, dtype=ACC), w.batch, w.head, w.column_block, rows, value=crossing)


def leave_pairs(k: Builder, layout: Layout, w: Walk, rows: Span, operand: Expr, value: Expr, weights: Expr) -> None:
    """Stores what each row's pairs inside the chunk give: their weights times the weights' gradients, of these columns."""
    pairs = total(weights * dot(operand, value, precision=layout.precision), "s")
    target = k.buffer("pairs", *FLOW, dtype=ACC)
    k.store(target, w.batch, w.head, w.column_block, rows, value=k.let("pairs_row", pairs))


def leave_own(k: Builder, w: Walk, rows: Span, lane: Expr, scores: Expr) -> None:
    """Stores each row's own score, in the first block of columns; 0 in the others."""
    own = k.let("own_row", total(select(lane.same(rename(lane, t="s")), scores, 0.0), "s"))
    target = k.buffer("own", *FLOW, dtype=ACC)
    k.store(target, w.batch, w.head, w.column_block, rows, value=select(w.column_block.same(0), own, 0.0))


def leave_state(k: Builder, w: Walk, span: Expr, n: Span, p: Span, state: Expr) -> None:
    """Stores the state after a span, in the operands' dtype."""
    k.note("the state after the span, for the other pass to meet")
    k.store(k.buffer("states", *SPAN_STATE, dtype="key"), slot(w, span), w.head, n, p, value=cast(state, "key"))


def meet_state(k: Builder, w: Walk, span: Expr, n: Span, p: Span, state: Expr) -> None:
    """Stores ⟨state, state's gradient⟩ at the far end of a span."""
    k.note("the state that the other pass has left at this end of the span")
    met = k.load("met_tile", k.buffer("states", *SPAN_STATE, dtype="key"), slot(w, span), w.head, n, p)
    product = k.let("met", total(total(state * cast(met, ACC), "p"), "n"))
    k.store(k.buffer("meets", *MEETS, dtype=ACC), slot(w, span), w.head, w.column_block, value=product)


def gate_kernel(form: Form, gate: Gate, layout: Layout) -> Kernel:
    """The last step: what both passes left → the gradient [B, T, H] of a scalar gate of the form. layout.clamped: operands are of 16
    bits."""
    k = Builder("gate_gradient", SAYS, {"t": "CHUNK"}, scalars=("scale", "T", "B", "SEQUENCES"))
    spans = number(1) if form.packed else cdiv(size("T"), size("SPAN"))
    program = k.program(spans * size("H") * size("SEQUENCES" if form.packed else "B"))
    w = stream_of(k, form, k.let("stream", program // spans), number(0), None, None)
    lane = k.let("lane", iota("t"))
    if form.packed:
        with k.loop("span", cdiv(w.length, size("SPAN"))) as span:
            span_gradient(k, form, gate, layout, w, lane, span)
    else:
        span_gradient(k, form, gate, layout, w, lane, k.let("span", program % spans))
    return k.done()


def span_gradient(k: Builder, form: Form, gate: Gate, layout: Layout, w: Walk, lane: Expr, span: Expr) -> None:
    """The gradient over one span, chunk by chunk from its far end, where `meets` says what passes."""
    each = size("SPAN") // size("CHUNK")
    chunks = k.let("chunks", least(each, cdiv(w.length, size("CHUNK")) - span * each))
    passing = k.full("passing")
    with k.loop("met_block", size("COLUMN_BLOCKS")) as block:
        met = k.load("met_here", k.buffer("meets", *MEETS, dtype=ACC), slot(w, span), w.head, block)
        k.update(passing, passing + met)
    with k.loop("step", chunks) as step:
        along = step if form.future else chunks - 1 - step
        here = rows(k, w, lane, k.let("chunk", span * each + along))
        found = summed_blocks(k, w, here)
        if form.weights:
            k.note("passes leave their rows without the rows' own weights")
        for buffer, side in form.weights:
            (weight,) = weights_of(k, (buffer,), w, here, "t")
            found |= {name: part * weight for name, part in found.items() if name.startswith(side)}
        target, source = ("source", "target") if form.future else ("target", "source")
        late, early = (found[f"{name}_crossing"] for name in (target, source))
        inside = found[f"{target}_pairs"] - found[f"{source}_pairs"]
        k.note("what passes the chunk as a whole, then what ends, begins or lies in it")
        near, far = (early, late) if not form.future else (late, early)
        past = k.let("past", select(fade_of(k, form, w, here) < (FADED if layout.clamped else VANISHED), 0.0, passing - total(near, "t")))
        change = k.let("change", late + inside - early)
        value = past + total(early, "t") + (total(change, "t") - cumsum(change, "t") + change)
        store_gradient(k, form, gate, w, here, value, late + found[f"{target}_pairs"])
        k.update(passing, past + total(far, "t"))


FADED, VANISHED = -9.0, -60.0  # base 2: what a chunk fades by so much is less than the rounding of what is beside it


def summed_blocks(k: Builder, w: Walk, here: Rows) -> dict[str, Expr]:
    """What the passes left for a chunk's rows, summed over the blocks of columns."""
    sums = {name: k.full(f"{name}_sum", "t") for name in HALVES}
    with k.loop("block", size("COLUMN_BLOCKS")) as block:
        for name, so_far in sums.items():
            part = k.load(f"{name}_tile", k.buffer(name, *FLOW, dtype=ACC), w.batch, w.head, block, here.span("t"))
            k.update(so_far, so_far + part)
    return dict(sums)


def fade_of(k: Builder, form: Form, w: Walk, here: Rows) -> Expr:
    """The base-2 log of what a chunk leaves of what passes it, under all gates."""
    whole: Expr = number(0.0)
    for one in form.gates:
        count, head = head_of(w, one.name)
        if one.fixed:
            rate = k.load(f"{one.name}_rate", k.buffer(one.name, count, dtype=ACC), head)
            whole = whole + rate * cast(least(size("CHUNK"), w.length - here.first), ACC)
        else:
            source, head = table(k, w, one.name, dtype=ACC)
            whole = whole + total(k.load(f"{one.name}_row", source, w.batch, here.span("t"), head), "t")
    return k.let("chunk_fade", whole * LOG2E)


def store_gradient(k: Builder, form: Form, gate: Gate, w: Walk, here: Rows, value: Expr, ending: Expr) -> None:
    """Stores the gradient of a chunk's gates. ending: of the pairs that end at each row, which do not cross a late gate there. Exactly 0
    where the gate is closed, and at the first position if nothing comes before it: no rounding may be left there for a chain rule to
    multiply by a log of any size."""
    value = value - ending if gate.shift else value
    if not (form.final if form.future else form.initial):
        value = select(here.place >= 1, value, 0.0)
    if gate.resets and not gate.fixed:
        source, head = table(k, w, gate.name, dtype=ACC)
        natural = k.load(f"{gate.name}_here", source, w.batch, here.span("t"), head)
        value = select(natural * LOG2E < CLOSED, 0.0, value)
    k.store(
        k.buffer("gradient", "B", "T", "H", dtype=ACC), w.batch, here.span("t"), w.head, value=k.let("flow", value * size("scale", ACC))
    )
