"""The choice: every schedule is asked what it would cost, the cheapest is taken, and everything else is kept with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from contractor.errors import ArgumentError, RefusedError
from contractor.plan.contraction import dense_view, equation, order
from contractor.plan.machine import Machine
from contractor.plan.plan import Choice, Offer, Plan, Refusal
from contractor.plan.problem import Problem
from contractor.plan.spread import Spread, spreads
from contractor.program.mixing import Core, Mixing, mixings, ordinary


class Schedule(Protocol):
    """One order of evaluation, as the planner sees it."""

    @property
    def name(self) -> str:
        """What it is called in plans and when it is asked for."""
        ...

    def offer(self, core: Core, problem: Problem, machine: Machine) -> Offer | Refusal:
        """What it would cost here at its best tiling, or why it may not be used."""
        ...


def choose(problem: Problem, machine: Machine, schedules: Sequence[Schedule], schedule: str | None = None) -> Plan:
    """The plan of a layer: for each core of each mixing the cheapest offer; for each ordinary contraction its pairwise order.

    schedule: take this one wherever it makes an offer, whatever it costs; where it refuses, nothing is chosen. A core with no offer
    has `chosen` None: `chosen(choice)` raises with the reasons. Raises ArgumentError for a schedule that does not exist.
    """
    names = [each.name for each in schedules]
    if schedule is not None and schedule not in names:
        raise ArgumentError(f"unknown schedule {schedule!r}; there are {', '.join(names)}")
    known = spreads(problem)
    choices = [
        choice(mixing, core, problem, machine, schedules, schedule, known) for mixing in mixings(problem.program) for core in mixing.terms
    ]
    contractions = [order(name, contract, problem, machine, known) for name, contract in ordinary(problem.program)]
    return Plan(problem, machine, tuple(choices), tuple(contractions))


def choice(
    mixing: Mixing,
    core: Core,
    problem: Problem,
    machine: Machine,
    schedules: Sequence[Schedule],
    wanted: str | None,
    known: Mapping[str, Spread],
) -> Choice:
    """One core's choice among all schedules."""
    answers = [each.offer(core, problem, machine) for each in schedules]
    offers = sorted((each for each in answers if isinstance(each, Offer)), key=lambda each: each.milliseconds)
    refusals = [each for each in answers if isinstance(each, Refusal)]
    best = next((each for each in offers if wanted in (None, each.schedule)), None)
    others = (*(each for each in offers if each is not best), *refusals)
    dense = dense_view(core.name, mixing.contract, problem, machine, known)
    return Choice(core.name, equation(mixing.contract), best, others, dense)


def chosen(choice: Choice) -> Offer:
    """What was chosen. Raises RefusedError with every reason if nothing could be."""
    if choice.chosen is not None:
        return choice.chosen
    offered = [each.schedule for each in choice.others if isinstance(each, Offer)]
    reasons = [f"  {each.schedule}: {each.reason}" for each in choice.others if isinstance(each, Refusal)]
    instead = [f"  possible instead: {', '.join(offered)}"] if offered else []
    raise RefusedError("\n".join([f"{choice.name}: no order of evaluation may be used here", *reasons, *instead]))
