"""What a schedule is: an order of evaluation that refuses a form or offers tilings, and writes the kernel of a form.

A price is counted from the kernel itself: the text of a form is built once, and counted at the sizes of each tiling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Protocol

from contractor.plan.cost import Cost, seconds
from contractor.plan.machine import Machine
from contractor.plan.plan import Offer, Refusal, Tiling
from contractor.plan.problem import BYTES, Problem
from contractor.program.mixing import Core
from contractor.schedules.parts.form import Form, Task
from contractor.schedules.parts.task import task
from contractor.schedules.parts.tilings import layout_of, piece_of
from contractor.schedules.parts.waits import waits
from contractor.schedules.parts.walk import Layout
from contractor.tile.count import count
from contractor.tile.kernel import Kernel
from contractor.tile.routine import Launch, Routine, Scratch
from contractor.tile.shared import element_width


class Schedule(Protocol):
    """One order of evaluation. One instance stands in the register. fuses: its kernels multiply by weights and add what skips past; else
    both are done around them."""

    name: str
    fuses: bool
    stepwise: bool  # it crosses one position after the other, so it takes transitions by value

    def refusal(self, form: Form) -> str:
        """Why this order may not evaluate a form, in the user's words; "" if it may."""
        ...

    def careful(self, form: Form, /) -> bool:
        """True if its kernels can do a careful task of the form on 16-bit operands; else they are widened first."""
        ...

    def flows(self, form: Form, /) -> bool:
        """True if its passes make the gradient of the form's gates on their way (`parts.flow`)."""
        ...

    def tilings(self, task: Task, machine: Machine) -> tuple[Tiling, ...]:
        """Block sizes worth pricing, all of them right for the task; none if its tiles do not fit the machine."""
        ...

    def kernels(self, form: Form, layout: Layout) -> tuple[Kernel, ...]:
        """The kernels of a form, in the order in which they are launched."""
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
def kernels_of(schedule: Schedule, form: Form, layout: Layout) -> tuple[Kernel, ...]:
    """The kernels of a form, built once."""
    return schedule.kernels(form, layout)


def routine_of(schedule: Schedule, wanted: Task, tiling: Tiling) -> Routine:
    """The launches of a task at a tiling; what one kernel leaves for another is the routine's own."""
    kernels = kernels_of(schedule, wanted.form, layout_of(wanted, tiling))
    launches = tuple(Launch(one, (), warps_of(one, tiling), tiling.stages, tiling.constants) for one in kernels)
    return Routine(launches, tuple(between(kernels)))


def warps_of(kernel: Kernel, tiling: Tiling) -> int:
    """How many warps a kernel's programs have: the tiling's, unless it says another number for this kernel."""
    return dict(tiling.constants).get(f"{kernel.name}_warps", tiling.warps)


def between(kernels: tuple[Kernel, ...]) -> Iterator[Scratch]:
    """The tensors that one kernel stores and a later one reads, but for gradients: those are the caller's."""
    for place, kernel in enumerate(kernels):
        read = {buffer.name for later in kernels[place + 1 :] for buffer in later.buffers if not buffer.name.endswith("_gradient")}
        yield from (Scratch(name, kernel.buffer(name).dims, kernel.buffer(name).dtype) for name in kernel.stored if name in read)


def priced(schedule: Schedule, wanted: Task, machine: Machine, tiling: Tiling) -> Offer:
    """What a task costs at one tiling: its launches follow one another."""
    routine = routine_of(schedule, wanted, tiling)
    costs = [cost_of(launch.kernel, wanted, tiling) for launch in routine.launches]
    spent = [seconds(cost, machine, wanted.dtype) for cost in costs]
    longest = max(range(len(costs)), key=lambda index: spent[index][0])
    whole = together(costs, longest, scratch_bytes(routine, wanted, tiling))
    return Offer(schedule.name, tiling, whole, 1e3 * sum(time for time, _ in spent), spent[longest][1])


def cost_of(kernel: Kernel, wanted: Task, tiling: Tiling) -> Cost:
    """What one launch costs."""
    sizes = sizes_of(wanted, tiling)
    counted = count(kernel, sizes, widths_of(wanted), assumed(wanted), stages=tiling.stages)
    warps = warps_of(kernel, tiling)
    waited = waits(kernel, sizes, warps, tiling.stages, assumed(wanted))
    return Cost(
        flops=counted.flops,
        tensor_flops=counted.tensor_flops,
        bytes=counted.bytes_read + counted.bytes_written,
        launches=1,
        steps=counted.steps,
        programs=counted.programs,
        exponentials=counted.exponentials,
        all_steps=counted.all_steps,
        shared=counted.shared,
        threads=32 * warps,
        registers=waited.registers,
        trips=waited.trips,
        products=waited.products,
        exchanges=waited.exchanges,
        fresh=counted.bytes_read / max(1, counted.issued_read),
    )


def together(costs: list[Cost], longest: int, scratch: int) -> Cost:
    """Several launches as one cost: amounts add up, what is said of a program is said of the longest launch's."""
    total = {name: sum(getattr(cost, name) for cost in costs) for name in ADDED}
    return replace(costs[longest], scratch=scratch, **total)


ADDED = ("flops", "tensor_flops", "bytes", "launches", "exponentials", "steps", "all_steps")


def scratch_bytes(routine: Routine, wanted: Task, tiling: Tiling) -> int:
    """The memory of what a routine keeps between its launches."""
    sizes, widths = sizes_of(wanted, tiling), widths_of(wanted)
    return sum(prod(sizes[dim] for dim in one.dims) * element_width(one.dtype, widths) for one in routine.scratch)


def sizes_of(wanted: Task, tiling: Tiling) -> dict[str, int]:
    """Every size that a kernel names: the task's, the tiling's blocks, and how long its tables are."""
    shape = wanted.dimensions
    tables = {f"{table.name.upper()}_{axis}": shape.T for table in wanted.form.tables for axis in ("ROWS", "COLUMNS")}
    return {**tables, **shape.mapping, **span_sizes(wanted, tiling), **dict(tiling.constants)}


def span_sizes(wanted: Task, tiling: Tiling) -> dict[str, int]:
    """How many spans all sequences have together, where a gate's gradient is made in spans; chunks, where a backward keeps states."""
    faded = any(gate.features for gate in wanted.form.gates)
    if not wanted.form.spanned and wanted.form.flow != "whole" and not faded:
        return {}
    shape, name, long = wanted.dimensions, *(("SPANS", tiling["SPAN"]) if wanted.form.spanned else ("CHUNKS", tiling["CHUNK"]))
    pieces = {"PIECE": piece_of(wanted, tiling)} if faded else {}
    return {name: shape.T // long + shape.sequences if wanted.form.packed else shape.B * -(-shape.T // long), **pieces}


def assumed(wanted: Task) -> dict[str, float]:
    """The bounds of packed sequences as a plan takes them: all of one length."""
    shape = wanted.dimensions
    return {"begin": 0.0, "end": shape.T / shape.sequences} if wanted.form.packed and shape.sequences else {}


def widths_of(wanted: Task) -> dict[str, int]:
    """Bytes of an element by dtype or buffer. What stands inside a mask is in float32 at least."""
    operand = BYTES[wanted.dtype]
    wide = max(4, operand)
    own = ("query", "key", "value", "result", "operand", "states")
    inside = (f"{step.name}_{part}" for step in wanted.form.matrices for part in ("key", "erase", "log"))
    return {
        "acc": wide,
        "i32": 4,
        "i64": 8,
        "initial": 4,
        "final": 4,
        "pool": 4,
        **dict.fromkeys(own, operand),
        **dict.fromkeys(inside, wide),
    }
