"""A task and its tensors → its outputs: the schedule's best tiling, its kernels' text, built and launched.

On a GPU with Triton the Triton text runs, elsewhere the torch text: one lowering, two printers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
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
from contractor.run.choices import preferred
from contractor.run.launch import Started, aligned
from contractor.run.outside import around, own_scores, skipped
from contractor.schedules.parts.form import ROLES, Gate, Task
from contractor.schedules.parts.last import last_step
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import best, routine_of, sizes_of
from contractor.tile.access import descriptor_block
from contractor.tile.count import programs_of
from contractor.tile.kernel import Buffer, Kernel
from contractor.tile.routine import Launch, Routine
from contractor.tile.rules import DTYPES

Backend = Literal["triton", "torch"]
Tensors = dict[str, Tensor]
STEPWISE = tuple(schedule.name for schedule in SCHEDULES.values() if schedule.stepwise)
HALVES = ("query", "key")


@dataclass(frozen=True, slots=True)
class Execution:
    """Where and how tasks are run: the schedule by name, the machine that prices tilings, the backend."""

    schedule: str
    machine: Machine
    backend: Backend

    @property
    def on(self) -> Machine:
        """The machine that tilings are chosen for."""
        return self.machine if self.backend == "triton" else MACHINES["cpu"]

    @property
    def followed(self) -> bool:
        """True if autograd can follow what is run."""
        return self.backend == "torch"

    def kernel(self, task: Task, tensors: Tensors, dtype: torch.dtype) -> Tensors:
        """The outputs by name, the result [B, T, H, P] in `dtype`, by the backend's text."""
        if task.careful and not SCHEDULES[self.schedule].careful(task.form):
            task, tensors = widened(task, tensors)
        return run(self.schedule, self.on, self.backend, task, tensors, dtype)

    def text(self, task: Task, tensors: Tensors, dtype: torch.dtype) -> Tensors:
        """The same by the torch text, which autograd can follow."""
        return run(self.schedule, MACHINES["cpu"], "torch", task, tensors, dtype)

    def stepwise(self, task: Task, tensors: Tensors, dtype: torch.dtype) -> Tensors:
        """The same by the torch text of an order that takes transitions by value, one position after the other."""
        schedule = next(name for name in STEPWISE if not SCHEDULES[name].refusal(task.form))
        return run(schedule, MACHINES["cpu"], "torch", task, tensors, dtype)

    def flows(self, task: Task) -> bool:
        """True if the schedule's backward passes make the gradient of the task's gates themselves."""
        return SCHEDULES[self.schedule].flows(task.form)

    def gate(self, task: Task, gate: Gate, tensors: Tensors) -> Tensor:
        """The gradient [B, T, H, *features] of a gate from what both passes left."""
        read = tuple((name, tuple(one.shape)) for name, one in tensors.items())
        return launched(ready_gate(task, gate, read, self.backend), tensors, torch.float32)["gradient"]


def widened(task: Task, tensors: Tensors) -> tuple[Task, Tensors]:
    """A task on 16-bit operands as one on float32 operands."""
    if BYTES[task.dtype] > 2:
        return task, tensors
    wide = {name: tensor.float() if name in ROLES else tensor for name, tensor in tensors.items()}
    return replace(task, dtype="float32"), wide


# ---- what is run ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """A routine, built: its launches, every size by name, and the tensors that it makes: buffer, shape, whether it is an output."""

    launches: tuple[Started, ...]
    sizes: dict[str, Any]
    made: tuple[tuple[Buffer, tuple[int, ...], bool], ...]
    backend: Backend


def run(schedule: str, machine: Machine, backend: Backend, task: Task, tensors: Tensors, dtype: torch.dtype) -> Tensors:
    """One task by one schedule."""
    own, form = SCHEDULES[schedule], task.form
    if not (form.weights or form.skip or form.own):
        return inside(schedule, machine, backend, task, tensors, dtype)
    return around(partial(inside, schedule, machine, backend), task, tensors, dtype, own.fuses, own.flows(task.form))


def inside(schedule: str, machine: Machine, backend: Backend, task: Task, tensors: Tensors, dtype: torch.dtype) -> Tensors:
    """What its kernels do of it. A dimension of size 0 gives zeros, or nothing, without a launch."""
    shape = task.dimensions
    if 0 in (shape.B, shape.T, shape.H, shape.N, shape.P):
        return nothing(task, tensors, dtype)
    found = ready(schedule, machine, backend, task)
    if found is None:
        return halved(schedule, machine, backend, task, tensors, dtype)
    return launched(found, {**tensors, **table_sizes(task, tensors)}, dtype)


def nothing(task: Task, tensors: Tensors, dtype: torch.dtype) -> Tensors:
    """The outputs where there is nothing to compute: a state stays as it is."""
    shape, device = task.dimensions, tensors["value"].device
    found = {"result": torch.zeros(shape.B, shape.T, shape.H, shape.P, dtype=dtype, device=device) * task.scale}
    if task.form.skip:
        found["result"] = skipped(found["result"], tensors).to(dtype)
    if task.form.own:
        found["own"] = own_scores(tensors["query"], tensors["key"], shape.H)
    if task.form.final and not task.form.pooled:
        empty = torch.zeros(shape.streams, shape.H, shape.N, shape.P, dtype=exact(tensors), device=device)
        found["final"] = tensors.get("initial", empty).clone()
    return found


def exact(tensors: dict[str, Any]) -> torch.dtype:
    """The accumulators' dtype for some operands."""
    return torch.float64 if any(getattr(one, "dtype", None) == torch.float64 for one in tensors.values()) else torch.float32


def launched(found: Ready, tensors: dict[str, Any], dtype: torch.dtype) -> Tensors:
    """The outputs of a routine."""
    values: dict[str, Any] = {**found.sizes, **tensors}
    device = next(one.device for one in tensors.values() if isinstance(one, Tensor))
    outputs: Tensors = {}
    for buffer, shape, returned in found.made:
        values[buffer.name] = torch.empty(shape, dtype=dtype_of(buffer, tensors, dtype), device=device)
        if returned:
            outputs[buffer.name] = values[buffer.name]
    for name, one in tensors.items():
        if isinstance(one, Tensor):
            values[name] = aligned(one)
    if found.backend == "torch":
        with torch.autocast(device.type, enabled=False):  # operands are in the dtype that was promised
            for launch in found.launches:
                launch.on_cpu(values)
    elif device.index in (None, torch.cuda.current_device()):
        launch_all(found, values)
    else:
        with torch.cuda.device(device):
            launch_all(found, values)
    return outputs


def dtype_of(buffer: Buffer, tensors: Tensors, dtype: torch.dtype) -> torch.dtype:
    """The dtype of a tensor that a routine makes: a state's is that of the one given, if one is."""
    if buffer.dtype in DTYPES:
        return exact(tensors)
    return dtype if buffer.dtype == buffer.name else tensors[buffer.dtype].dtype


def launch_all(found: Ready, values: dict[str, Any]) -> None:
    """The grids, on the current device."""
    for launch in found.launches:
        launch.on_gpu(values)


def halved(schedule: str, machine: Machine, backend: Backend, task: Task, tensors: Tensors, dtype: torch.dtype) -> Tensors:
    """A task whose tiles are too wide, as two over half of n each: results add up, states lie side by side."""
    width = task.dimensions.N
    wide = torch.promote_types(dtype, torch.float32)
    halves: list[Tensors] = []
    for part in (slice(0, width // 2), slice(width // 2, width)):
        form = replace(task.form, skip=task.form.skip and not halves)
        narrow = replace(task, form=form, dimensions=replace(task.dimensions, N=part.stop - part.start))
        cut = {name: tensor[..., part] if name in HALVES else tensor for name, tensor in tensors.items()}
        cut |= {name: tensors[name][..., part, :] for name in STATES if name in tensors}
        for gate in task.form.gates:
            if "n" in gate.features:
                cut[gate.name] = tensors[gate.name].movedim(-len(gate.features), -1)[..., part].movedim(-1, -len(gate.features))
        if POOL in cut:
            cut[POOL] = cut[POOL].contiguous()
        halves.append(run(schedule, machine, backend, narrow, cut, wide))
        if POOL in cut:
            tensors[POOL][..., part, :] = cut[POOL]
    first, second = halves
    joined = {name: torch.cat((one, second[name]), -2) if name in STATES else one + second[name] for name, one in first.items()}
    return joined | {"result": joined["result"].to(dtype)}


STATES, POOL = ("initial", "final", "states", "pool"), "pool"  # the last is updated in place


# ---- what is ready --------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def ready(schedule: str, machine: Machine, backend: Backend, task: Task) -> Ready | None:
    """The routine of a task at its best tiling; None if no tiling fits the machine. Raises RefusedError if the form may not be evaluated
    in this order."""
    if reason := SCHEDULES[schedule].refusal(task.form):
        raise RefusedError(f"{schedule}: {reason}")
    if not SCHEDULES[schedule].tilings(task, machine) and not task.form.matrices and task.dimensions.N > 1:
        return None
    return at_tiling(schedule, task, tiling_of(schedule, task, machine), backend)


def at_tiling(schedule: str, task: Task, tiling: Tiling, backend: Backend) -> Ready:
    """The routine of a task at a tiling."""
    return started(routine_of(SCHEDULES[schedule], task, tiling), backend, tuple({**sizes_of(task, tiling), "scale": task.scale}.items()))


def started(routine: Routine, backend: Backend, sizes: tuple[tuple[str, Any], ...]) -> Ready:
    """A routine, built."""
    named = dict(sizes)
    own = {buffer.name: buffer for launch in routine.launches for buffer in launch.kernel.buffers if buffer.name in launch.kernel.stored}
    given = (*(one.name for one in routine.scratch), *routine.outputs)
    made = tuple((own[name], tuple(named[dim] for dim in own[name].dims), name in routine.outputs) for name in given)
    return Ready(tuple(built_launch(launch, backend, named) for launch in routine.launches), named, made, backend)


def built_launch(launch: Launch, backend: Backend, sizes: dict[str, Any]) -> Started:
    """One launch, built."""
    kernel = launch.kernel
    names = triton_text.arguments(kernel) if backend == "triton" else torch_text.arguments(kernel)
    blocks = (
        tuple((name, tuple(sizes.get(size, 1) for size in block)) for name, block in descriptors(kernel)) if backend == "triton" else ()
    )
    return Started(function_of(kernel, backend), names, blocks, programs_of(kernel, sizes), launch.warps, launch.stages)


@lru_cache(maxsize=1024)
def function_of(kernel: Kernel, backend: Backend) -> Callable[..., Any]:
    """The function of a kernel's text."""
    return getattr(module(printed(kernel, backend)), kernel.name)


@lru_cache(maxsize=1024)
def ready_gate(task: Task, gate: Gate, read: tuple[tuple[str, tuple[int, ...]], ...], backend: Backend) -> Ready:
    """The last step of a gate's gradient. read: the shapes of what it reads, by name."""
    kernel, sizes = last_step(task, gate, dict(read))
    return started(Routine((Launch(kernel, stages=1),)), backend, tuple(sizes.items()))


@lru_cache(maxsize=1024)
def descriptors(kernel: Kernel) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The buffers that are reached through host descriptors, with their blocks by the names of sizes."""
    return tuple((one.name, descriptor_block(kernel, one.name)) for one in kernel.buffers if one.via == "descriptor")


def tiling_of(schedule: str, task: Task, machine: Machine) -> Tiling:
    """The tiling that was measured to be best, else the cheapest. Raises RefusedError with the reason if the schedule may not evaluate
    the task."""
    answer = best(SCHEDULES[schedule], task, machine)
    if isinstance(answer, Refusal):
        raise RefusedError(f"{schedule}: {answer.reason}")
    return preferred(SCHEDULES[schedule], task, machine) or answer.tiling


def table_sizes(task: Task, tensors: dict[str, Tensor]) -> dict[str, int]:
    """How long each table is."""
    found: dict[str, int] = {}
    for table in task.form.tables:
        axes = [f"{table.name.upper()}_{axis}" for axis in ("ROWS", "COLUMNS")[: len(table.index)]]
        found |= dict(zip(axes, tensors[table.name].shape[-len(axes) :], strict=True))
    return found


def printed(kernel: Kernel, backend: Backend) -> str:
    """A module that holds one kernel."""
    return triton_text.emit_triton(kernel) if backend == "triton" else torch_text.emit_torch(kernel)


def source_of(schedule: str, task: Task, tiling: Tiling, backend: Backend) -> str:
    """The text of a task's kernels."""
    kernels = [launch.kernel for launch in routine_of(SCHEDULES[schedule], task, tiling).launches]
    return (triton_text.emit_triton if backend == "triton" else torch_text.emit_torch)(*kernels)
