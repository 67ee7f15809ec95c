"""Chunked under a gate for each channel: gated linear attention (Yang et al., 2024), HGRN2, and their gradients by roles.

Inside a chunk the fading between two rows has no factors over the whole chunk that stay below 1, so pairs are taken level by level, each
anchored at the middle of a block (`parts.dyadic`). A gate on the key's channels (n) stands between query and key: a first kernel makes, for
all chunks at once, the weights of the chunk's pairs, the query as it reads the state that enters and the key as it writes the one that
leaves; the second is the walk along the chunks, the state in its registers, without an exponential. A gate on the value's channels (p)
leaves the scores alone: one kernel fades the values at the sources and the results at the targets. Each is the other's backward.
"""

from __future__ import annotations

from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.plan.problem import BYTES
from contractor.schedules.parts.faded import entering_kernel, inner_kernel, outer_kernel, segments_kernel
from contractor.schedules.parts.form import Form, Side, Task
from contractor.schedules.parts.tilings import layout_of, segmented, tiling
from contractor.schedules.parts.walk import Layout
from contractor.tile.kernel import Kernel


class Diagonal:
    """Chunks under one gate for each channel of the key or of the value."""

    name = "chunked"
    stepwise = False
    fuses = True

    def refusal(self, form: Form) -> str:
        """One gate by its log, over one side of the state, and nothing else."""
        if not form.directed or form.support is not None or form.tables:
            return form.stateless or "the mask is more than a product of transitions, so no state can be carried across a chunk"
        if form.matrices:
            return "a transition is a matrix: its one-pass form would need products of matrices inside a chunk"
        if any(len(gate.features) > 1 for gate in form.gates):
            return "a gate differs for every entry of the state: inside a chunk every pair of positions would need N · P scores"
        if len(form.gates) != 1 or not form.gates[0].features:
            return "two gates are crossed at different places, one of them for each channel of the state"
        return ""

    def careful(self, form: Form) -> bool:
        """What leaves and enters is rounded once where the gate is on the key's side, so a careful task there wants wider operands."""
        return side(form) == "p"

    def flows(self, _form: Form) -> bool:
        """Gradients of gates are made outside."""
        return False

    def tilings(self, task: Task, machine: Machine) -> tuple[Tiling, ...]:
        """A walk without exponentials holds all columns of the state, one with them a block of 64. The first that fits is the best."""
        if machine.kind == "cpu":
            return (tiling(task, machine, 0, 1, 1),)
        if task.dtype == "float32":
            pairs = ((64, 8, 1),)
        elif side(task.form) == "n":
            pairs = ((128, 4, 3), (64, 4, 3), (64, 4, 2), (64, 4, 1))
        else:
            pairs = ((64, 4, 1),)
        fit = tuple(one for pair in pairs if fits(task, machine, one := tiling(task, machine, *pair)))
        return segmented(task, machine, fit[:1])

    def kernels(self, form: Form, layout: Layout) -> tuple[Kernel, ...]:
        """What the chunks' rows are to each other and to the state, what segments add to it, and the walk; or the last two alone."""
        segments = (segments_kernel(form, layout),) if layout.segmented else ()
        if side(form) == "n":
            return entering_kernel(form, layout), *segments, inner_kernel(form, layout)
        return *segments, outer_kernel(form, layout)


def fits(task: Task, machine: Machine, one: Tiling) -> bool:
    """True if the tiles of all stages (weights or gates in two parts among them), the state as an operand and the result find room."""
    rows, inner, outer = one["CHUNK"], one["BLOCK_N"], one["BLOCK_P"]
    beside = rows if side(task.form) == "n" else 2 * outer
    state, width = inner * outer * (2 if layout_of(task, one).split else 1), BYTES[task.dtype]
    result = rows * outer * (4 if task.careful else width)
    return (rows * (2 * inner + outer + beside) * one.stages + state) * width + result <= machine.shared


def side(form: Form) -> Side:
    """The side of the state that the gate differs over."""
    return form.gates[0].features[0]
