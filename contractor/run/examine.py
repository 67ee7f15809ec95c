"""Whether a tiling's numbers may be trusted, and only then how long it takes.

Some choices of blocks, warps and stages are compiled wrongly or fault (FLA #984, Triton #10486, #10573, #11366), so what has not passed
is neither timed nor used: on fresh random inputs, three times, under gates of several strengths, with NaN in all memory that the kernels
are to fill, the results must be within rounding of the same order's torch text in float64, and the same bit for bit when repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from contractor.plan.machine import MACHINES
from contractor.plan.plan import Tiling
from contractor.run.draw import STRENGTHS, USUAL, drawn
from contractor.run.execute import Backend, Ready, at_tiling, launched, table_sizes
from contractor.run.timing import measured
from contractor.run.trial import ALLOWED
from contractor.schedules.parts.form import Task
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import routine_of, sizes_of

LENGTH, STEP = 2048, 512  # positions that numbers are compared on at most, and by how many a sequence is shortened
ENTRIES = {"cuda": 1 << 26, "cpu": 1 << 21}  # of all operands together, in float64
REPLAYED = 10  # milliseconds of the calls that are timed together
memory: Any = torch.utils.deterministic  # it makes its attribute itself, and says so to no checker
Clock = Callable[[Callable[[], object], str], float]


@dataclass(frozen=True, slots=True)
class Job:
    """One tiling of a task by a schedule: dtype is the result's, by name."""

    schedule: str
    task: Task
    tiling: Tiling
    dtype: str
    backend: Backend


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of it: why it may not be used ("" if it may), and the median milliseconds of one evaluation."""

    reason: str = ""
    milliseconds: float | None = None


def examine(job: Job, device: str, seed: int = 0) -> Finding:
    """The numbers, then the time, in this process: a fault of the GPU leaves it without one."""
    return examined(job, device, seed, clocked)


def examined(job: Job, device: str, seed: int, clock: Clock) -> Finding:
    """The same by a clock."""
    found = answer(job, device, seed, clock)
    if found.reason:  # it may have written where it should not
        question.cache_clear()
    return found


def answer(job: Job, device: str, seed: int, clock: Clock) -> Finding:
    """What there is to say, whatever happens."""
    try:
        reason = disproof(job, device, seed)
        return Finding(reason) if reason else Finding("", clock(evaluation(job, device, seed), device))
    except torch.OutOfMemoryError:
        return Finding("out of memory")
    except Exception as error:  # a compiler or a driver may fail in any way, and that is the answer
        return Finding(f"raised {type(error).__name__}: {next(iter(str(error).splitlines()), '')[:120]}")


def clocked(call: Callable[[], object], device: str) -> float:
    """Milliseconds of one call, the median."""
    return measured(call, device, REPLAYED).milliseconds


# ---- numbers --------------------------------------------------------------------------------------------------------------------


def disproof(job: Job, device: str, seed: int) -> str:
    """Why the numbers may not be trusted; "" if they may."""
    task = shortened(job.task, job.tiling, ENTRIES[torch.device(device).type])
    found = at_tiling(job.schedule, task, job.tiling, job.backend)
    for number in range(len(STRENGTHS)):
        asked = question(job.schedule, task, number, device, seed)
        first, second = (outputs(found, task, asked.tensors, job.dtype) for _ in range(2))
        if reason := repeated(first, second) or off(task, whole(found, first), asked.wanted):
            return reason
    return ""


@dataclass(frozen=True, slots=True)
class Question:
    """The tensors of a task, and the outputs that they should give."""

    tensors: dict[str, Tensor]
    wanted: dict[str, Tensor]


@lru_cache(maxsize=2 * len(STRENGTHS))
def question(schedule: str, task: Task, number: int, device: str, seed: int) -> Question:
    """Random tensors under the numbered strength of gates, and the outputs by the same order's torch text in float64."""
    exact = replace(task, dtype="float64", careful=False)
    tiling = SCHEDULES[schedule].tilings(exact, MACHINES["cpu"])[0]
    made = torch.Generator(device).manual_seed(seed * len(STRENGTHS) + number)
    tensors = drawn(task, routine_of(SCHEDULES[schedule], exact, tiling), sizes_of(exact, tiling), STRENGTHS[number], made)
    wide = {name: one.double() if one.is_floating_point() else one for name, one in tensors.items()}
    found = at_tiling(schedule, exact, tiling, "torch")
    return Question(tensors, whole(found, outputs(found, exact, wide, "float64")))


def shortened(task: Task, tiling: Tiling, entries: int) -> Task:
    """The task on as many positions as float64 is worth: not so few that segments or ends of blocks are lost, and as divisible."""
    shape = task.dimensions
    if shape.offset:
        return task
    width = max(1, shape.B * shape.H * 2 * (shape.N + shape.P))
    segments = dict(tiling.constants).get("SEGMENTS", 1)
    most = max(STEP, min(max(LENGTH, 2 * tiling["CHUNK"] * segments), entries // width))
    if most >= shape.T:
        return task
    return replace(task, dimensions=replace(shape, T=shape.T % STEP + max(1, most // STEP - 1) * STEP))


def evaluation(job: Job, device: str, seed: int) -> Callable[[], object]:
    """One evaluation of a task, ready to be timed."""
    found, routine = at_tiling(job.schedule, job.task, job.tiling, job.backend), routine_of(SCHEDULES[job.schedule], job.task, job.tiling)
    made = torch.Generator(device).manual_seed(seed)
    tensors = drawn(job.task, routine, sizes_of(job.task, job.tiling), USUAL, made)
    given, dtype = {**tensors, **table_sizes(job.task, tensors)}, getattr(torch, job.dtype)
    return lambda: launched(found, given, dtype)


def outputs(found: Ready, task: Task, tensors: Mapping[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """The outputs of one evaluation into memory full of NaN."""
    with poisoned():
        return launched(found, {**tensors, **table_sizes(task, dict(tensors))}, getattr(torch, dtype))


def whole(found: Ready, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Outputs in float64, what several blocks of columns gave added up."""
    blocks = {buffer.name: buffer.dims.index(COLUMNS) for buffer, _, _ in found.made if COLUMNS in buffer.dims}
    return {name: one.double().sum(blocks[name]) if name in blocks else one.double() for name, one in given.items()}


COLUMNS = "COLUMN_BLOCKS"


@contextmanager
def poisoned() -> Generator[None]:
    """New memory holds NaN."""
    before, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled = memory.fill_uninitialized_memory
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        memory.fill_uninitialized_memory = True
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
        memory.fill_uninitialized_memory = filled


def repeated(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> str:
    """Why two evaluations are not the same; "" if they are, bit for bit."""
    differing = [name for name in first if not torch.equal(bits(first[name]), bits(second[name]))]
    return f"{', '.join(differing)}: not the same bit for bit when repeated" if differing else ""


def bits(tensor: Tensor) -> Tensor:
    """A tensor's bits as integers."""
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(kinds[tensor.element_size()])


def off(task: Task, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """Why the outputs are not the right ones; "" if they are. What no program writes, as slots between packed sequences, is not
    compared."""
    forward, gradient = ALLOWED[task.dtype]
    for name, one in found.items():
        written = ~wanted[name].isnan()
        if not bool(written.all()) and (not task.form.packed or name in PLAIN):
            return f"{name}: float64 is no number itself"
        error, allowed = distance(one[written], wanted[name][written]), forward if name in PLAIN else gradient
        if not error <= allowed:
            return f"{name} is not finite" if not math.isfinite(error) else f"{name} is off by {error:.1e} (at most {allowed:.0e})"
    return ""


PLAIN = ("result", "final")  # all else is made for the gradients of gates


def distance(found: Tensor, wanted: Tensor) -> float:
    """‖found − wanted‖ / ‖wanted‖."""
    return float((found - wanted).norm()) / (float(wanted.norm()) or 1.0)
