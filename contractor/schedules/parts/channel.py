"""The last step of the gradient of a gate for each channel: sums along the sequence of what the backward's passes gave in float32.

A gate at j is crossed by the pairs of a row at j or behind it with one before it. Summed over all rows from j on, the target's operand
times its gradient counts each of them once, and so does the source's, beside pairs that both have and that cancel. A gradient that arrives
at the final state adds what met it there.
"""

from __future__ import annotations

from dataclasses import replace

from contractor.schedules.parts.factors import CLOSED, LOG2E
from contractor.schedules.parts.form import Form, Gate
from contractor.schedules.parts.walk import Rows, Walk, rows, stream_of, table
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel
from contractor.tile.ops import ACC, Expr, Span, cast, cdiv, cumsum, iota, number, select, size, total

SAYS = "gradient of the log gate at j: Σ over rows i ≥ j of target[i] · its gradient − source[i] · its gradient"
OPERANDS = ("target", "source")


def channel_kernel(form: Form, gate: Gate, grouped: tuple[str, ...], met: bool) -> Kernel:
    """The gradient [B, T, H, CHANNELS] of a gate of the form. grouped: which of gate, target and source have fewer than H heads; their
    gradients have all. met: the final state times its gradient is among what is summed, [streams, H, CHANNELS]."""
    k = Builder("channel_gradient", SAYS, {"t": "CHUNK", "n": "BLOCK"}, scalars=("T", "B", "SEQUENCES"))
    blocks = cdiv(size("CHANNELS"), size("BLOCK"))
    streams = "SEQUENCES" if form.packed else "B"
    program = k.program(blocks * size("H") * size(streams))
    w = stream_of(k, replace(form, grouped=grouped), k.let("stream", program // blocks), number(0), None, None)
    first = k.let("first_channel", program % blocks * size("BLOCK"))
    column = k.let("n", first + iota("n"))
    n = Span("n", first, column, column < size("CHANNELS"))
    if met:
        k.note("what the final state and its gradient give")
        passing = k.carry("passing", k.load("met_tile", k.buffer("met", streams, "H", "CHANNELS", dtype=ACC), w.sequence, w.head, n))
    else:
        passing = k.full("passing", "n")
    lane = k.let("lane", iota("t"))
    chunks = k.let("chunks", cdiv(w.length, size("CHUNK")))
    with k.loop("step", chunks) as step:
        here = rows(k, w, lane, k.let("chunk", chunks - 1 - step))
        target, source = (paired(k, w, name, here, n) for name in OPERANDS)
        early, late = (source, target) if form.future else (target, source)
        change = k.let("change", early - late)
        whole = k.let("whole", total(change, "t"))
        value = passing + (whole - cumsum(change, "t") + change)
        store(k, form, gate, w, here, n, value - early if gate.shift else value)
        k.update(passing, passing + whole)
    return k.done()


def paired(k: Builder, w: Walk, name: str, here: Rows, n: Span) -> Expr:
    """An operand's rows times their gradient [t, n]."""
    source, head = table(k, w, name, "CHANNELS")
    given, whole = table(k, w, f"{name}_gradient", "CHANNELS")
    operand = k.load(f"{name}_tile", source, w.batch, here.span("t"), head, n)
    gradient = k.load(f"{name}_gradient_tile", given, w.batch, here.span("t"), whole, n)
    return k.let(f"{name}_product", cast(operand, ACC) * cast(gradient, ACC))


def store(k: Builder, form: Form, gate: Gate, w: Walk, here: Rows, n: Span, value: Expr) -> None:
    """Stores a chunk's gradients: exactly 0 where the gate is closed, and at the first position if nothing comes before it, as no rounding
    may be left there for a chain rule to multiply by a log of any size."""
    if not form.initial:
        value = select(here.place >= 1, value, 0.0)
    if gate.resets and not gate.fixed:
        source, head = table(k, w, gate.name, "CHANNELS", dtype=ACC)
        natural = k.load(f"{gate.name}_tile", source, w.batch, here.span("t"), head, n)
        value = select(natural * LOG2E < CLOSED, 0.0, value)
    k.store(k.buffer("gradient", "B", "T", "H", "CHANNELS", dtype=ACC), w.batch, here.span("t"), w.head, n, value=k.let("flow", value))
