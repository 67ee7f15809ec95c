"""The last step of a gate's gradient, as a kernel and its sizes: of what the passes left on their way, or of their results in float32."""

from __future__ import annotations

from collections.abc import Mapping

from contractor.plan.problem import BYTES
from contractor.schedules.parts.channel import OPERANDS, channel_kernel
from contractor.schedules.parts.flow import SPAN, gate_kernel
from contractor.schedules.parts.form import Gate, Task, heads_name
from contractor.schedules.parts.tilings import ROWS
from contractor.schedules.parts.walk import Layout
from contractor.tile.kernel import Kernel

Sizes = dict[str, int | float]


def last_step(task: Task, gate: Gate, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Kernel, Sizes]:
    """The kernel of a task's gate and every size that it names. shapes: of the tensors that it reads."""
    sizes: Sizes = {**task.dimensions.mapping, "CHUNK": ROWS}
    if not gate.features:
        spans, _, blocks = shapes["meets"]
        kernel = gate_kernel(task.form, gate, Layout(clamped=BYTES[task.dtype] == 2))
        return kernel, {**sizes, "scale": task.scale, "SPAN": SPAN, "SPANS": spans, "COLUMN_BLOCKS": blocks}
    counts = {name: shapes[name][2] for name in (*OPERANDS, *(() if gate.fixed else (gate.name,)))}
    grouped = tuple(name for name, count in counts.items() if count != task.dimensions.H)
    heads = {heads_name(name): count for name, count in counts.items()}
    kernel = channel_kernel(task.form, gate, grouped, "met" in shapes)
    return kernel, {**sizes, **heads, "CHANNELS": shapes["target"][-1], "BLOCK": ROWS}
