"""The direct route: a contraction whose tensors lie at the call as its kernel reads them.

Most layers hand a kernel what they were given: query [B, T, heads, N], key, value and a gate, each one operand or one expression, with
nothing to multiply, pad, flip, turn or double. Whether a core is of this kind depends on letters and sizes alone, so it is settled once,
when a problem is prepared. A call then only sees that every tensor has the shape foreseen (a batch of 1 may stand for all), and where
one has not, or a transition is so near 0 that its gradient needs care, the general way of `normal` is gone, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from contractor.plan.problem import Problem
from contractor.program.core import Core, Factor
from contractor.program.expression import Axes, Constant, Expression, Number, Relabel, Variable
from contractor.program.program import Program
from contractor.program.values import Value
from contractor.run.gates import any_below, gradient_limit
from contractor.run.transition import log_of
from contractor.schedules.parts.form import WEIGHTS, Gate, Task
from contractor.schedules.parts.task import Crossing, complex_sides, crossings, promised

Find = Callable[[Expression], Value]


@dataclass(frozen=True, slots=True)
class Buffer:
    """One tensor of the kernel: its shape there, its dtype, and the value that it is (None: ones).

    operand: the operand that the value is, if it is one: its tensor is taken as it was given. fixed: without batch and positions.
    transition: the value is a transition and the kernel's tensor its log. limit: a transition with a gradient must not be smaller.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    value: Expression | None
    operand: str = ""
    fixed: bool = False
    transition: bool = False
    limit: float = 0.0

    def tensor(self, given: Mapping[str, Tensor], find: Find, device: torch.device) -> Tensor | None:
        """The kernel's tensor, or None if this call's is not what was foreseen."""
        if self.value is None:
            return torch.ones(self.shape, dtype=self.dtype, device=device)
        tensor = given[self.operand] if self.operand else self.laid_out(find(self.value).tensor, device)
        if self.fixed and tensor.dim() == len(self.shape) - 1:
            tensor = tensor.unsqueeze(0)
        if tensor.shape != self.shape:
            return None
        if self.transition:
            magnitude = tensor.abs()
            if magnitude.requires_grad and self.limit and any_below(magnitude, self.limit):
                return None
            tensor = log_of(magnitude, positive=self.limit > 0)
        return (tensor if tensor.dtype is self.dtype else tensor.to(self.dtype)).contiguous()

    def laid_out(self, tensor: Tensor, device: torch.device) -> Tensor:
        """A value's tensor [batch, heads, …] as the kernel reads it; a plain number stays one."""
        if not tensor.dim():
            return tensor.to(device)
        return tensor[0] if self.fixed else tensor.transpose(1, 2)


@dataclass(frozen=True, slots=True)
class Direct:
    """A core by the direct route: its task and its tensors. axes: the result's; column: the result has no feature."""

    task: Task
    buffers: tuple[Buffer, ...]
    axes: Axes
    column: bool

    def tensors(self, given: Mapping[str, Tensor], find: Find, device: torch.device) -> dict[str, Tensor] | None:
        """The kernel's tensors by name, or None if this call has to go the general way. given: the operands as they lie at the call."""
        found: dict[str, Tensor] = {}
        for buffer in self.buffers:
            tensor = buffer.tensor(given, find, device)
            if tensor is None:
                return None
            found[buffer.name] = tensor
        return found

    def restore(self, output: Tensor) -> Value:
        """The mixing's value from the kernel's result [B, T, heads, P]."""
        turned = output.transpose(1, 2)
        return Value(turned.squeeze(-1) if self.column else turned, self.axes)


# ---- settled when a problem is prepared --------------------------------------------------------------------------------------


def direct(core: Core, task: Task, problem: Problem) -> Direct | None:
    """The direct route of a core; None if its tensors have to be made."""
    if made(core, task, problem):
        return None
    sides = (("query", core.query, "T", core.inner), ("key", core.key, "S", core.inner), ("value", core.value, "S", core.outer))
    found = [side(task, problem.program, *one) for one in sides]
    found += beside(core, task, problem.program)
    found += [crossed(core, task, problem.program, step) for step in crossings(core, problem.program) if isinstance(step, Crossing)]
    buffers = tuple(buffer for buffer in found if buffer is not None)
    axes = ("S" if core.exchanged else "T", *core.outer)
    return Direct(task, buffers, axes, not core.outer) if len(buffers) == len(found) else None


def made(core: Core, task: Task, problem: Problem) -> bool:
    """True if a core has more than a plain query, key, value and gates, its sequence is padded or flipped, or its result summed."""
    several = len(core.inner) > 1 or len(core.outer) > 1 or bool(core.batch) or core.keeps
    more = several or any(complex_sides(core)) or bool(task.form.matrices or task.form.tables or task.form.arguments)
    summed = not {"T", "S"} & set(core.axes)
    return more or summed or core.term.mirrored or problem.sizes.T != problem.sizes.S


def side(task: Task, program: Program, name: str, factors: tuple[Factor, ...], position: str, features: Axes) -> Buffer | None:
    """Query, key or value, if it is one value or ones."""
    sizes = task.dimensions
    shape = (sizes.B, sizes.T, heads_of(task, name), sizes.P if name == "value" else sizes.N)
    dtype: torch.dtype = getattr(torch, task.dtype)
    if not factors:
        return Buffer(name, shape, dtype, None)
    first, *others = factors
    if others or not features or first.letters != (position, *features):
        return None
    return Buffer(name, shape, dtype, first.value, operand_of(program, first.value, "input"))


def beside(core: Core, task: Task, program: Program) -> Iterator[Buffer | None]:
    """The weights of rows, where each is one value, and what skips past."""
    shape = task.dimensions
    exact = torch.promote_types(getattr(torch, task.dtype), torch.float32)
    for row, own in core.weights:
        if own:
            name, value = WEIGHTS[row], own[0].value
            size = (shape.B, shape.T, heads_of(task, name))
            yield Buffer(name, size, exact, value, operand_of(program, value, "input")) if len(own) == 1 else None
    if core.skip is not None:
        heads = (heads_of(task, "skip"),)
        yield (
            None
            if isinstance(core.skip, Constant)
            else Buffer("skip", heads, exact, core.skip, operand_of(program, core.skip, "param"), True)
        )


def crossed(core: Core, task: Task, program: Program, crossing: Crossing) -> Buffer | None:
    """A gate, if it is one real value that turns no sign."""
    gate, fade = crossing.gate, crossing.members[0]
    low, _ = promised(program, fade.value)
    names = dict(core.mask_letters)
    letters = tuple(names.get(axis, axis) for axis in fade.value.axes)
    turns = fade.value.number is Number.COMPLEX or not (fade.log or low >= 0)
    if len(crossing.members) > 1 or turns or letters != (*(() if gate.fixed else ("S",)), *features_of(core, gate)):
        return None
    exact = torch.promote_types(getattr(torch, task.dtype), torch.float32)
    limit = gradient_limit(exact)
    return Buffer(
        name=gate.name,
        shape=gate_shape(task, gate),
        dtype=exact,
        value=fade.value,
        operand=operand_of(program, fade.value, "param" if gate.fixed else "input"),
        fixed=gate.fixed,
        transition=not fade.log,
        limit=0.0 if fade.log or low >= limit else limit,
    )


def features_of(core: Core, gate: Gate) -> Axes:
    """The letters of a gate's features."""
    return (*(core.inner if "n" in gate.features else ()), *(core.outer if "p" in gate.features else ()))


def gate_shape(task: Task, gate: Gate) -> tuple[int, ...]:
    """[B, T, heads, *features] or, fixed, [heads, *features]."""
    sizes = task.dimensions
    features = (sizes.N if feature == "n" else sizes.P for feature in gate.features)
    return (*(() if gate.fixed else (sizes.B, sizes.T)), heads_of(task, gate.name), *features)


def heads_of(task: Task, name: str) -> int:
    """The head count of a buffer."""
    return dict(task.dimensions.heads).get(name, task.dimensions.H)


def operand_of(program: Program, value: Expression, role: str) -> str:
    """The operand of a role that a value is, in the operand's own order of axes; "" if it is none."""
    variable = value.value if isinstance(value, Relabel) else value
    if not isinstance(variable, Variable):
        return ""
    same = (one.name for one in program.operands if (one.name, one.axes, one.role) == (variable.name, variable.axes, role))
    return next(same, "")
