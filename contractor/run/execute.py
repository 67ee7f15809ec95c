"""A task and its tensors → the result: the schedule's best tiling, its kernel's text, built and launched.

On a GPU with Triton the Triton text runs, elsewhere the torch text: one lowering, two printers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from contractor.emit.torch import emit_torch
from contractor.emit.triton import emit_triton
from contractor.errors import RefusedError
from contractor.plan.machine import MACHINES, Machine
from contractor.plan.plan import Refusal, Tiling
from contractor.run.build import module
from contractor.run.launch import launch_torch, launch_triton
from contractor.schedules.parts.form import Form, Task
from contractor.schedules.parts.tilings import layout_of
from contractor.schedules.parts.walk import Layout
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import best, kernel_of, sizes_of
from contractor.tile.kernel import Kernel

Backend = Literal["triton", "torch"]


@dataclass(frozen=True, slots=True)
class Execution:
    """Where and how tasks are run: the schedule by name, the machine that prices tilings, the backend."""

    schedule: str
    machine: Machine
    backend: Backend

    def kernel(self, task: Task, tensors: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        """The result [B, T, H, P] in `dtype`, by the backend's text."""
        machine = self.machine if self.backend == "triton" else MACHINES["cpu"]
        return run(self.schedule, machine, self.backend, task, tensors, dtype)

    def text(self, task: Task, tensors: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        """The same by the torch text, which autograd can follow."""
        return run(self.schedule, MACHINES["cpu"], "torch", task, tensors, dtype)


def run(schedule: str, machine: Machine, backend: Backend, task: Task, tensors: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
    """One task by one schedule. A dimension of size 0 gives zeros, or nothing, without a launch."""
    shape = task.dimensions
    device = tensors["value"].device
    if 0 in (shape.B, shape.T, shape.H, shape.N, shape.P):
        return torch.zeros(shape.B, shape.T, shape.H, shape.P, dtype=dtype, device=device)
    result = torch.empty(shape.B, shape.T, shape.H, shape.P, dtype=dtype, device=device)
    tiling = tiling_of(schedule, task, machine)
    kernel = kernel_of(SCHEDULES[schedule], task.form, layout_of(task, tiling))
    function = built(schedule, task.form, layout_of(task, tiling), backend)
    known: dict[str, Any] = {**sizes_of(task, tiling), **table_sizes(tensors), "scale": 1.0}
    given = {**{name: tensor.contiguous() for name, tensor in tensors.items()}, "result": result}
    if backend == "triton":
        launch_triton(function, kernel, given, known, tiling)
    else:
        launch_torch(function, kernel, given, known)
    return result


def tiling_of(schedule: str, task: Task, machine: Machine) -> Tiling:
    """The cheapest tiling. Raises RefusedError with the reason if the schedule may not evaluate the task."""
    answer = best(SCHEDULES[schedule], task, machine)
    if isinstance(answer, Refusal):
        raise RefusedError(f"{schedule}: {answer.reason}")
    return answer.tiling


def table_sizes(tensors: dict[str, Tensor]) -> dict[str, int]:
    """How long each table is."""
    tables = {name: tensor for name, tensor in tensors.items() if name.startswith("table")}
    found: dict[str, int] = {}
    for name, tensor in tables.items():
        found |= dict(zip((f"{name.upper()}_ROWS", f"{name.upper()}_COLUMNS"), tensor.shape[-2:] if tensor.dim() > 2 else tensor.shape[-1:], strict=False))
    return found


@lru_cache(maxsize=1024)
def built(schedule: str, form: Form, layout: Layout, backend: Backend) -> Callable[..., Any]:
    """The function of a kernel's text."""
    kernel = kernel_of(SCHEDULES[schedule], form, layout)
    return getattr(module(printed(kernel, backend)), kernel.name)


def printed(kernel: Kernel, backend: Backend) -> str:
    """A module that holds one kernel."""
    return emit_triton(kernel) if backend == "triton" else emit_torch(kernel)


def source_of(schedule: str, task: Task, tiling: Tiling, backend: Backend) -> str:
    """The text of a task's kernel."""
    return printed(kernel_of(SCHEDULES[schedule], task.form, layout_of(task, tiling)), backend)
