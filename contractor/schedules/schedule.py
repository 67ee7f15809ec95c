"""What a schedule is: an order of evaluation that refuses a form or offers tilings, and writes the kernel of a form.

A price is counted from the kernel itself: the text of a form is built once, and counted at the sizes of each tiling.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from contractor.plan.cost import Cost, seconds
from contractor.plan.machine import Machine
from contractor.plan.plan import Offer, Refusal, Tiling
from contractor.plan.problem import BYTES, Problem
from contractor.program.mixing import Core
from contractor.schedules.parts.form import Form, Task
from contractor.schedules.parts.task import task
from contractor.schedules.parts.tilings import layout_of
from contractor.schedules.parts.waits import waits
from contractor.schedules.parts.walk import Layout
from contractor.tile.count import count
from contractor.tile.kernel import Kernel


class Schedule(Protocol):
    """One order of evaluation. One instance stands in the register. careful: its kernels can do a careful task on 16-bit operands; else
    they are widened first."""

    name: str
    careful: bool
    stepwise: bool  # it crosses one position after the other, so it takes transitions by value

    def refusal(self, form: Form) -> str:
        """Why this order may not evaluate a form, in the user's words; "" if it may."""
        ...

    def tilings(self, task: Task, machine: Machine) -> tuple[Tiling, ...]:
        """Block sizes worth pricing, all of them right for the task; none if its tiles do not fit the machine."""
        ...

    def kernel(self, form: Form, layout: Layout) -> Kernel:
        """The kernel of a form."""
        ...


@dataclass(frozen=True, slots=True)
class Priced:
    """A schedule as the planner sees it."""

    schedule: Schedule

    @property
    def name(self) -> str:
        """What it is called in plans."""
        return self.schedule.name

    def offer(self, core: Core, problem: Problem, machine: Machine) -> Offer | Refusal:
        """What a core would cost at its best tiling, or why it may not be evaluated in this order."""
        if problem.packed is not None:
            return Refusal(self.name, "packed sequences (cu_seqlens) are not evaluated yet")
        return best(self.schedule, task(core, problem), machine)


@lru_cache(maxsize=4096)
def best(schedule: Schedule, wanted: Task, machine: Machine) -> Offer | Refusal:
    """The cheapest tiling of a task, or the refusal."""
    if reason := schedule.refusal(wanted.form):
        return Refusal(schedule.name, reason)
    offers = [priced(schedule, wanted, machine, tiling) for tiling in schedule.tilings(wanted, machine)]
    if not offers:
        width, room = wanted.dimensions.N, machine.shared // 1024
        return Refusal(
            schedule.name,
            f"tiles {width} wide in {wanted.dtype} do not fit the {room} KB of shared memory that a program has on {machine.name}",
        )
    return min(offers, key=lambda offer: offer.milliseconds)


@lru_cache(maxsize=1024)
def kernel_of(schedule: Schedule, form: Form, layout: Layout) -> Kernel:
    """The kernel of a form, built once."""
    return schedule.kernel(form, layout)


def priced(schedule: Schedule, wanted: Task, machine: Machine, tiling: Tiling) -> Offer:
    """What a task costs at one tiling."""
    kernel = kernel_of(schedule, wanted.form, layout_of(wanted, tiling))
    sizes = sizes_of(wanted, tiling)
    counted = count(kernel, sizes, widths_of(wanted), stages=tiling.stages)
    waited = waits(kernel, sizes, tiling.warps, tiling.stages)
    cost = Cost(
        flops=counted.flops,
        tensor_flops=counted.tensor_flops,
        bytes=counted.bytes_read + counted.bytes_written,
        launches=1,
        steps=counted.steps,
        programs=counted.programs,
        exponentials=counted.exponentials,
        all_steps=counted.all_steps,
        shared=counted.shared,
        threads=32 * tiling.warps,
        registers=waited.registers,
        trips=waited.trips,
        products=waited.products,
        exchanges=waited.exchanges,
        fresh=counted.bytes_read / max(1, counted.issued_read),
    )
    time, bound = seconds(cost, machine, wanted.dtype)
    return Offer(schedule.name, tiling, cost, time * 1e3, bound)


def sizes_of(wanted: Task, tiling: Tiling) -> dict[str, int]:
    """Every size that a kernel names: the task's, the tiling's blocks, and how long its tables are."""
    shape = wanted.dimensions
    tables = {f"{table.name.upper()}_{axis}": shape.T for table in wanted.form.tables for axis in ("ROWS", "COLUMNS")}
    return {**tables, **shape.mapping, **dict(tiling.constants)}


def widths_of(wanted: Task) -> dict[str, int]:
    """Bytes of an element by dtype or buffer."""
    operand = BYTES[wanted.dtype]
    return {"acc": max(4, operand), "i32": 4, "i64": 8, **dict.fromkeys(("query", "key", "value", "result"), operand)}
