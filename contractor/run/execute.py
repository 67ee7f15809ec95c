"""A task and its tensors → the result: the schedule's best tiling, its kernel's text, built and launched.

On a GPU with Triton the Triton text runs, elsewhere the torch text: one lowering, two printers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from contractor.emit import torch as torch_text
from contractor.emit import triton as triton_text
from contractor.errors import RefusedError
from contractor.plan.machine import MACHINES, Machine
from contractor.plan.plan import Refusal, Tiling
from contractor.plan.problem import BYTES
from contractor.run.build import module
from contractor.run.descriptor import described
from contractor.schedules.parts.form import ROLES, Form, Task
from contractor.schedules.parts.tilings import layout_of
from contractor.schedules.parts.walk import Layout
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import best, kernel_of, sizes_of
from contractor.tile.access import descriptor_block
from contractor.tile.count import programs_of
from contractor.tile.kernel import Kernel

Backend = Literal["triton", "torch"]
STEPWISE = tuple(schedule.name for schedule in SCHEDULES.values() if schedule.stepwise)


@dataclass(frozen=True, slots=True)
class Execution:
    """Where and how tasks are run: the schedule by name, the machine that prices tilings, the backend."""

    schedule: str
    machine: Machine
    backend: Backend

    def kernel(self, task: Task, tensors: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        """The result [B, T, H, P] in `dtype`, by the backend's text."""
        machine = self.machine if self.backend == "triton" else MACHINES["cpu"]
        if task.careful and not SCHEDULES[self.schedule].careful:
            task, tensors = widened(task, tensors)
        return run(self.schedule, machine, self.backend, task, tensors, dtype)

    def text(self, task: Task, tensors: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        """The same by the torch text, which autograd can follow."""
        return run(self.schedule, MACHINES["cpu"], "torch", task, tensors, dtype)

    def stepwise(self, task: Task, tensors: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        """The same by the torch text of an order that takes transitions by value, one position after the other."""
        schedule = next(name for name in STEPWISE if not SCHEDULES[name].refusal(task.form))
        return run(schedule, MACHINES["cpu"], "torch", task, tensors, dtype)


def widened(task: Task, tensors: dict[str, Tensor]) -> tuple[Task, dict[str, Tensor]]:
    """A task on 16-bit operands as one on float32 operands."""
    if BYTES[task.dtype] > 2:
        return task, tensors
    wide = {name: tensor.float() if name in ROLES else tensor for name, tensor in tensors.items()}
    return replace(task, dtype="float32"), wide


@dataclass(frozen=True, slots=True)
class Ready:
    """A task's kernel, built: the function of its text, the names of its arguments in order, its sizes and how many programs run."""

    kernel: Kernel
    tiling: Tiling
    function: Any
    names: tuple[str, ...]
    sizes: dict[str, Any]
    programs: int


def run(schedule: str, machine: Machine, backend: Backend, task: Task, tensors: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
    """One task by one schedule. A dimension of size 0 gives zeros, or nothing, without a launch."""
    shape = task.dimensions
    device = tensors["value"].device
    if 0 in (shape.B, shape.T, shape.H, shape.N, shape.P):
        return torch.zeros(shape.B, shape.T, shape.H, shape.P, dtype=dtype, device=device)
    found = ready(schedule, machine, backend, task)
    if found is None:
        return halved(schedule, machine, backend, task, tensors, dtype)
    result = torch.empty(shape.B, shape.T, shape.H, shape.P, dtype=dtype, device=device)
    given = {name: tensor.contiguous() for name, tensor in tensors.items()}
    values = {**found.sizes, **table_sizes(task, tensors), **given, "result": result, "programs": found.programs, "device": device}
    if backend == "triton":
        launch_triton(found, values)
    else:
        found.function(*(values[name] for name in found.names))
    return result


def halved(schedule: str, machine: Machine, backend: Backend, task: Task, tensors: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
    """A task whose tiles are too wide, as the sum of two over half of n each."""
    width = task.dimensions.N
    exact = torch.promote_types(dtype, torch.float32)
    total: Tensor | None = None
    for part in (slice(0, width // 2), slice(width // 2, width)):
        narrow = replace(task, dimensions=replace(task.dimensions, N=part.stop - part.start))
        cut = {name: tensor[..., part] if name in ("query", "key") else tensor for name, tensor in tensors.items()}
        for gate in task.form.gates:
            if "n" in gate.features:
                cut[gate.name] = tensors[gate.name].movedim(-len(gate.features), -1)[..., part].movedim(-1, -len(gate.features))
        one = run(schedule, machine, backend, narrow, cut, exact)
        total = one if total is None else total + one
    assert total is not None
    return total.to(dtype)


@lru_cache(maxsize=4096)
def ready(schedule: str, machine: Machine, backend: Backend, task: Task) -> Ready | None:
    """The kernel of a task at its best tiling; None if no tiling fits the machine. Raises RefusedError if the form may not be evaluated
    in this order."""
    if reason := SCHEDULES[schedule].refusal(task.form):
        raise RefusedError(f"{schedule}: {reason}")
    if not SCHEDULES[schedule].tilings(task, machine) and not task.form.matrices and task.dimensions.N > 1:
        return None
    tiling = tiling_of(schedule, task, machine)
    layout = layout_of(task, tiling)
    kernel = kernel_of(SCHEDULES[schedule], task.form, layout)
    names = triton_text.arguments(kernel) if backend == "triton" else torch_text.arguments(kernel)
    sizes: dict[str, Any] = {**sizes_of(task, tiling), "scale": 1.0}
    return Ready(kernel, tiling, built(schedule, task.form, layout, backend), names, sizes, programs_of(kernel, sizes))


def launch_triton(found: Ready, values: dict[str, Any]) -> None:
    """One grid, on the tensors' device."""
    for name, block in descriptors(found.kernel):
        values[name] = described(values[name], [values.get(size, 1) for size in block])
    arguments = {name: values[name] for name in found.names}
    with torch.cuda.device(values["device"]):
        found.function[(found.programs,)](**arguments, num_warps=found.tiling.warps, num_stages=found.tiling.stages)


@lru_cache(maxsize=1024)
def descriptors(kernel: Kernel) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The buffers that are reached through host descriptors, with their blocks by the names of sizes."""
    return tuple((one.name, descriptor_block(kernel, one.name)) for one in kernel.buffers if one.via == "descriptor")


def tiling_of(schedule: str, task: Task, machine: Machine) -> Tiling:
    """The cheapest tiling. Raises RefusedError with the reason if the schedule may not evaluate the task."""
    answer = best(SCHEDULES[schedule], task, machine)
    if isinstance(answer, Refusal):
        raise RefusedError(f"{schedule}: {answer.reason}")
    return answer.tiling


def table_sizes(task: Task, tensors: dict[str, Tensor]) -> dict[str, int]:
    """How long each table is."""
    found: dict[str, int] = {}
    for table in task.form.tables:
        axes = [f"{table.name.upper()}_{axis}" for axis in ("ROWS", "COLUMNS")[: len(table.index)]]
        found |= dict(zip(axes, tensors[table.name].shape[-len(axes) :], strict=True))
    return found


@lru_cache(maxsize=1024)
def built(schedule: str, form: Form, layout: Layout, backend: Backend) -> Callable[..., Any]:
    """The function of a kernel's text."""
    kernel = kernel_of(SCHEDULES[schedule], form, layout)
    return getattr(module(printed(kernel, backend)), kernel.name)


def printed(kernel: Kernel, backend: Backend) -> str:
    """A module that holds one kernel."""
    return triton_text.emit_triton(kernel) if backend == "triton" else torch_text.emit_torch(kernel)


def source_of(schedule: str, task: Task, tiling: Tiling, backend: Backend) -> str:
    """The text of a task's kernel."""
    return printed(kernel_of(SCHEDULES[schedule], task.form, layout_of(task, tiling)), backend)
