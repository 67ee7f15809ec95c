"""Tuning: the tasks of a call, the tilings that the cost model thinks best for each, and the best of those whose numbers hold.

The call is run once and every task that reaches a kernel is noted. The candidates of a task are the cheapest tilings of its schedule that
differ in what is kept of a choice. They are examined in another process where they run as Triton text: some fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from contractor.plan.machine import Machine
from contractor.plan.plan import Offer
from contractor.run.apart import apart
from contractor.run.choices import keep, key_of, place, stored_part
from contractor.run.examine import Finding, Job, examine, question
from contractor.run.execute import Backend, Execution, Tensors, ready, widened
from contractor.run.layer import Prepared
from contractor.run.mix import Evaluator
from contractor.run.state import State
from contractor.run.tuned import Candidate, Report, Tuned
from contractor.schedules.parts.form import Task
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import priced

MOST = 6  # candidates of a task
BETTER = 0.98  # what is hardly faster than the planner's choice may be so by chance
Examine = Callable[[Sequence[Job], str], Sequence[Finding]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A task that a call evaluated, and how: name: of its core; dtype: of its result."""

    name: str
    schedule: str
    machine: Machine
    backend: Backend
    task: Task
    dtype: torch.dtype
    backward: bool = False

    @property
    def key(self) -> str:
        """What a choice for it is kept under."""
        return key_of(SCHEDULES[self.schedule], self.task, self.machine)

    def __str__(self) -> str:
        shape, form = self.task.dimensions, self.task.form
        packed = f" {shape.sequences} packed sequences" if form.packed else ""
        beside = (
            (" a state in" if form.initial else "") + (" a state out" if form.final else "") + (" careful" if self.task.careful else "")
        )
        turned = " from the future" if form.future else ""
        flow = f", the {form.flow}'s pass" if form.flow else ""
        sizes = f"B={shape.B} T={shape.T} H={shape.H} N={shape.N} P={shape.P} {self.task.dtype}"
        return f"{self.name} {'backward' if self.backward else 'forward'}{flow}{turned}  {sizes}{packed}{beside}"


@dataclass(frozen=True, slots=True)
class Noting(Execution):
    """An execution that notes what it is asked for."""

    name: str
    noted: list[Asked]

    def kernel(self, task: Task, tensors: Tensors, dtype: torch.dtype) -> Tensors:
        """The same outputs."""
        for own in own_tasks(self, task):
            self.noted.append(Asked(self.name, self.schedule, self.on, self.backend, own, dtype))
        return Execution.kernel(self, task, tensors, dtype)


def own_tasks(execution: Execution, task: Task) -> Iterator[Task]:
    """The tasks that an execution makes of one: none where there is nothing to compute, wider or narrower ones where its order wants
    them so."""
    shape, schedule = task.dimensions, SCHEDULES[execution.schedule]
    if 0 in (shape.B, shape.T, shape.H, shape.N, shape.P):
        return
    if task.careful and not schedule.careful(task.form):
        task, _ = widened(task, {})
    if schedule.tilings(task, execution.on):
        yield task
    elif shape.N > 1 and not task.form.matrices:
        for width in {shape.N // 2, shape.N - shape.N // 2}:
            yield from own_tasks(execution, replace(task, dimensions=replace(shape, N=width)))


def noting(prepared: Prepared, noted: list[Asked]) -> Prepared:
    """The same preparation, whose kernels are noted as they are run."""
    return replace(prepared, evaluators={name: watched(name, one, noted) for name, one in prepared.evaluators.items()})


def watched(name: str, one: Evaluator, noted: list[Asked]) -> Evaluator:
    """An evaluator that notes; only what is an execution has tilings."""
    return Noting(one.schedule, one.machine, one.backend, name, noted) if isinstance(one, Execution) else one


# ---- a call ---------------------------------------------------------------------------------------------------------------------


def tuned_call(call: Callable[[], Any], operands: tuple[Any, ...], noted: list[Asked], examine: Examine | None = None) -> Report:
    """Runs a call whose kernels are noted, with its backward if an operand wants gradients, and tunes what was noted."""
    outputs = tuple(tensors_of(call()))
    forward = len(noted)
    sources = [one for one in tensors_of(operands) if one.requires_grad]
    followed = [one for one in outputs if one.requires_grad]
    if sources and followed:
        torch.autograd.grad(followed, sources, [torch.randn_like(one) for one in followed], allow_unused=True)
    asked = [replace(one, backward=number >= forward) for number, one in enumerate(noted)]
    device = next((one.device for one in (*outputs, *tensors_of(operands))), torch.device("cpu"))
    return tuned(asked, str(device), examine)


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors of an answer or of arguments."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, State):
        yield from value.tensors.values()
    elif isinstance(value, tuple):
        for one in value:
            yield from tensors_of(one)


def tuned(asked: Sequence[Asked], device: str, examine: Examine | None = None) -> Report:
    """Tunes tasks, those of one kind once. examine: what looks at candidates; by default another process for Triton text, else this one."""
    kinds: dict[str, Asked] = {}
    for one in asked:
        kinds.setdefault(one.key, one)
    wanted = [(key, one, candidates(one)) for key, one in kinds.items()]
    jobs = [job(one, offer) for _, one, offers in wanted for offer in offers]
    findings = iter(examined(jobs, device, examine))
    tasks = tuple(settled(key, one, offers, [next(findings) for _ in offers]) for key, one, offers in wanted)
    ready.cache_clear()
    return Report(tuple(place().items()), tasks)


def candidates(asked: Asked) -> tuple[Offer, ...]:
    """The cheapest tilings that differ in what is kept, the cheapest first."""
    schedule = SCHEDULES[asked.schedule]
    offers = [priced(schedule, asked.task, asked.machine, one) for one in schedule.tilings(asked.task, asked.machine)]
    first: dict[Any, Offer] = {}
    for offer in sorted(offers, key=lambda offer: offer.milliseconds):
        first.setdefault(stored_part(offer.tiling), offer)
    return tuple(first.values())[:MOST]


def job(asked: Asked, offer: Offer) -> Job:
    """A candidate as it is examined."""
    return Job(asked.schedule, asked.task, offer.tiling, str(asked.dtype).removeprefix("torch."), asked.backend)


def examined(jobs: Sequence[Job], device: str, how: Examine | None) -> Sequence[Finding]:
    """The findings of all jobs."""
    if how is not None:
        return how(jobs, device)
    if any(one.backend == "triton" for one in jobs):
        return tuple(apart(jobs, device))
    found = tuple(map(partial(examine, device=device), jobs))
    question.cache_clear()
    return found


def settled(key: str, asked: Asked, offers: Sequence[Offer], findings: Sequence[Finding]) -> Tuned:
    """A task's choice, kept."""
    found = tuple(
        Candidate(offer.tiling, offer.milliseconds, finding.reason, finding.milliseconds)
        for offer, finding in zip(offers, findings, strict=True)
    )
    chosen = best_of(found)
    kept = ""
    if chosen is not None and len(found) > 1 and not keep(key, found[chosen].tiling):
        kept = "kept while this process runs: no private folder can be written"
    return Tuned(str(asked), asked.schedule, found, chosen, kept)


def best_of(found: Sequence[Candidate]) -> int | None:
    """The place of the fastest candidate whose numbers hold; the planner's, which is the first, where none is clearly faster."""
    times = {number: one.milliseconds for number, one in enumerate(found) if one.milliseconds is not None and not one.reason}
    if not times:
        return None
    fastest = min(times, key=times.__getitem__)
    return 0 if 0 in times and times[fastest] > BETTER * times[0] else fastest
