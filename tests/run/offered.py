"""An order that offers several tilings for every task, whatever the cost model's authors think worth offering today."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.schedules.parts.form import Task
from contractor.schedules.register import SCHEDULES


def offer_more(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Has an order offer its tilings for a GPU with one, two and three stages."""
    kind = type(SCHEDULES[name])
    own = kind.tilings

    def tilings(self: object, task: Task, machine: Machine) -> tuple[Tiling, ...]:
        found = own(self, task, machine)
        more = tuple(replace(one, stages=stages) for one in found for stages in (3, 2, 1))
        return found if machine.kind == "cpu" else tuple(dict.fromkeys((*found, *more)))

    monkeypatch.setattr(kind, "tilings", tilings)
