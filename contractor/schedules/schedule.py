"""What a schedule is: an order of evaluation that refuses a form or offers tilings, and writes the kernel of a form."""

from __future__ import annotations

from functools import cache
from typing import Protocol

from contractor.plan.cost import Cost, seconds
from contractor.plan.machine import Machine
from contractor.plan.plan import Offer, Refusal, Tiling
from contractor.plan.problem import BYTES, Problem
from contractor.program.mixing import Core
from contractor.schedules.parts.form import Form, Task
from contractor.schedules.parts.task import task
from contractor.schedules.parts.walk import Layout
from contractor.tile.ops import Kernel


class Schedule(Protocol):
    """One order of evaluation. One instance stands in the register."""

    name: str

    def refusal(self, form: Form) -> str:
        """Why this order may not evaluate a form, in the user's words; "" if it may."""
        ...

    def tilings(self, task: Task, machine: Machine) -> tuple[Tiling, ...]:
        """Block sizes worth pricing, all of them right for the task; at least one."""
        ...

    def kernel(self, form: Form, layout: Layout) -> Kernel:
        """The kernel of a form."""
        ...
