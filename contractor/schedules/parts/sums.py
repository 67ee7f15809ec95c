"""Running sums of gates, made before the pass that reads them: they are small, and inside a pass each of its programs would make them
again, while its products wait."""

from __future__ import annotations

from contractor.schedules.parts.factors import CLOSED, LOG2E, summable
from contractor.schedules.parts.form import Form, Gate, heads_name
from contractor.schedules.parts.walk import Layout
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel
from contractor.tile.ops import ACC, I64, Span, cast, cdiv, cumsum, iota, most, size

SAYS = "the base-2 log of what a gate leaves from the start of each row's chunk on: running sums"


def sums_kernels(form: Form, layout: Layout) -> tuple[Kernel, ...]:
    """A kernel for each gate whose sums are made before."""
    return tuple(sums_kernel(form, gate, layout.clamped) for gate in form.gates if layout.summed and summable(gate, layout))


def sums_kernel(form: Form, gate: Gate, clamped: bool) -> Kernel:
    """gate [B, T, heads] → [B, heads, T]."""
    count = heads_name(gate.name) if gate.name in form.grouped else "H"
    k = Builder(f"sum_{gate.name}", SAYS, {"t": "CHUNK", "h": "HEAD_BLOCK"}, scalars=("T", "B"))
    chunks, blocks = cdiv(size("T"), size("CHUNK")), cdiv(size(count), size("HEAD_BLOCK"))
    program = k.program(blocks * chunks * size("B"))
    chunk = k.let("chunk", program // blocks % chunks)
    batch = k.let("batch", program // (blocks * chunks))
    row = k.let("row", cast(chunk * size("CHUNK") + iota("t"), I64))
    head = k.let("head", program % blocks * size("HEAD_BLOCK") + iota("h"))
    rows, heads = Span("t", row, row, row < size("T")), Span("h", head, head, head < size(count))
    natural = k.load("natural", k.buffer(gate.name, "B", "T", count, dtype=ACC), batch, rows, heads)
    step = most(natural * LOG2E, CLOSED) if gate.resets and clamped else natural * LOG2E
    k.store(k.buffer(f"{gate.name}_sums", "B", count, "T", dtype=ACC), batch, heads, rows, value=k.let("sums", cumsum(step, "t")))
    return k.done()
