"""A family: several lowerings of one order, each for a state algebra of its own. Users meet one order; a form is taken by the first
member that does not refuse it."""

from __future__ import annotations

from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.schedules.parts.form import Form, Task
from contractor.schedules.parts.walk import Layout
from contractor.schedules.schedule import Schedule
from contractor.tile.kernel import Kernel

ELSEWHERE = "another member's"  # why a member refuses a form of another state algebra; the first member never says so


class Family:
    """One order by several lowerings, in the order in which they are asked."""

    def __init__(self, name: str, members: tuple[Schedule, ...]) -> None:
        self.name, self.members = name, members
        self.fuses = all(member.fuses for member in members)
        self.stepwise = all(member.stepwise for member in members)

    def taker(self, form: Form) -> Schedule | None:
        """The member that takes a form, None if all refuse it."""
        return next((member for member in self.members if not member.refusal(form)), None)

    def refusal(self, form: Form) -> str:
        """Where all have a reason, that of the last member whose state algebra the form's is."""
        reasons = [member.refusal(form) for member in self.members]
        return "" if "" in reasons else next(reason for reason in reversed(reasons) if reason != ELSEWHERE)

    def careful(self, form: Form) -> bool:
        """As the member that takes the form says."""
        taker = self.taker(form)
        return taker is not None and taker.careful(form)

    def flows(self, form: Form) -> bool:
        """As the member that takes the form says."""
        taker = self.taker(form)
        return taker is not None and taker.flows(form)

    def tilings(self, task: Task, machine: Machine) -> tuple[Tiling, ...]:
        """Of the member that takes the task's form."""
        taker = self.taker(task.form)
        return () if taker is None else taker.tilings(task, machine)

    def kernels(self, form: Form, layout: Layout) -> tuple[Kernel, ...]:
        """Of the member that takes the form, which one must."""
        taker = self.taker(form)
        assert taker is not None
        return taker.kernels(form, layout)
