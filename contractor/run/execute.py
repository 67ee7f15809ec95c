"""A task and its tensors → the result: the schedule's best tiling, its kernel's text, built and launched.

On a GPU with Triton the Triton text runs, elsewhere the torch text: one lowering, two printers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from contractor.emit.torch import emit_torch
from contractor.emit.triton import emit_triton
from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.run.build import module
from contractor.run.launch import launch
from contractor.schedules.parts.form import Task
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import best, layout_of

Backend = Literal["triton", "torch"]


@dataclass(frozen=True, slots=True)
class Execution:
    """Where and how tasks are run: the schedule by name, the machine that prices tilings, the backend."""

    schedule: str
    machine: Machine
    backend: Backend

    def kernel(self, task: Task, tensors: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        """The result [B, T, H, P] in `dtype`, by the backend's text."""
        return run(task, tensors, dtype, self.schedule, self.machine, self.backend)

    def text(self, task: Task, tensors: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        """The same by the torch text, which autograd can follow."""
        return run(task, tensors, dtype, self.schedule, self.machine, "torch")
