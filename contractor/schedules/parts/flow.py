"""The gradient of scalar gates inside the passes of the backward.

The gradient of the log of the gate at j is the sum of the pairs (s, t) with s < j ≤ t, each pair's weight times its gradient: the suffix
sum of query·dQuery − key·dKey. Each of the two passes sums its half over the features where its result still is an accumulator, `flow`
[B, H, COLUMN_BLOCKS, T]. A suffix sum over a long sequence would drift, as states are rounded on their way, so it begins anew every
SPAN chunks from ⟨state, state's gradient⟩, `meets`: the target's pass leaves its state after every span, the source's meets it there.
A last kernel sums up.
"""

from __future__ import annotations

from contractor.schedules.parts.factors import CLOSED, LOG2E
from contractor.schedules.parts.form import Form, Gate
from contractor.schedules.parts.walk import Rows, Walk, stream_of, table
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel
from contractor.tile.ops import ACC, I32, I64, Expr, Span, cast, cdiv, cumsum, iota, number, select, size, total

SPAN = 512
"""Positions between two restarts: the error of a suffix sum of this length stays below that of its terms."""

SPAN_STATE = ("SPANS", "H", "N", "P")
MEETS = ("SPANS", "H", "COLUMN_BLOCKS")
FLOW = ("B", "H", "COLUMN_BLOCKS", "T")
SAYS = "gradient of the log gate at j: what the pairs (s, t) with s < j <= t give, summed up from both passes' halves"


def slot(w: Walk, span: Expr) -> Expr:
    """Where a span of the program's sequence stands among all: those of a batch element follow one another; packed sequences have one
    more than their full spans, so that none is in another's place."""
    if w.begin is None:
        return w.sequence * cdiv(size("T"), size("SPAN")) + span
    return cast(w.begin // size("SPAN"), I32) + w.sequence + span


def operand_tile(k: Builder, w: Walk, rows: Span, p: Span) -> Expr:
    """The operand whose gradient a pass makes. Read before the products that it waits for anyway, and through pointers: no product reads
    it, so a pipeline would not send for it ahead."""
    source, head = table(k, w, "operand", "P")
    return k.load("operand_tile", source, w.batch, rows, head, p)


def leave_flow(k: Builder, w: Walk, rows: Span, operand: Expr, result: Expr) -> None:
    """Stores what a pass gives to the flow: its result times the operand of which it is the gradient, summed over the columns."""
    flow = k.let("flow_row", total(cast(operand, ACC) * result, "p"))
    k.store(k.buffer("flow", *FLOW, dtype=ACC), w.batch, w.head, w.column_block, rows, value=flow)


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


def gate_kernel(form: Form, gate: Gate) -> Kernel:
    """The last step: both halves and the restarts → the gradient [B, T, H] of a scalar gate of the form."""
    k = Builder("gate_gradient", SAYS, {"t": "SPAN"}, scalars=("T", "B", "SEQUENCES"))
    spans = number(1) if form.packed else cdiv(size("T"), size("SPAN"))
    program = k.program(spans * size("H") * size("SEQUENCES" if form.packed else "B"))
    w = stream_of(k, form, k.let("stream", program // spans), number(0), None, None)
    if form.packed:
        with k.loop("span", cdiv(w.length, size("SPAN"))) as span:
            span_gradient(k, form, gate, w, span)
    else:
        span_gradient(k, form, gate, w, k.let("span", program % spans))
    return k.done()


def span_gradient(k: Builder, form: Form, gate: Gate, w: Walk, span: Expr) -> None:
    """The gradient over one span. Exactly 0 where the gate is closed, and at the first position if nothing comes before it: no rounding
    may be left there for a chain rule to multiply by a log of any size."""
    place = k.let("place", span * size("SPAN") + iota("t"))
    row = k.let("row", cast(place, I64) if w.begin is None else w.begin + place)
    here = Rows(place, place, row, k.let("inside", place < w.length)).span("t")
    early, late = k.full("early", "t"), k.full("late", "t")
    met = k.full("met")
    with k.loop("block", size("COLUMN_BLOCKS")) as block:
        names = ("source", "target") if form.future else ("target", "source")
        for name, total_flow in zip(names, (early, late), strict=True):
            flow = k.load(f"{name}_tile", k.buffer(f"{name}_flow", *FLOW, dtype=ACC), w.batch, w.head, block, here)
            k.update(total_flow, total_flow + flow)
        k.update(met, met + k.load("met_here", k.buffer("meets", *MEETS, dtype=ACC), slot(w, span), w.head, block))
    change = k.let("change", early - late)
    upto = k.let("upto", cumsum(change, "t"))
    value = met - upto + change if form.future else met + (total(change, "t") - upto + change)
    value = value - early if gate.shift else value
    if not (form.final if form.future else form.initial):
        value = select(place >= 1, value, 0.0)
    if gate.resets and not gate.fixed:
        source, head = table(k, w, gate.name, dtype=ACC)
        natural = k.load("gate_row", source, w.batch, here, head)
        value = select(natural * LOG2E < CLOSED, 0.0, value)
    k.store(k.buffer("gradient", "B", "T", "H", dtype=ACC), w.batch, here, w.head, value=k.let("flow", value))
