"""What tuning found: every tiling of every task, whether its numbers hold, how long it takes, and which was chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from contractor.plan.plan import Tiling
from contractor.plan.show import duration, tiling_text

HEADINGS = ("", "tiling", "expected", "measured", "")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One tiling. expected: milliseconds by the cost model; milliseconds: as measured, None if its numbers did not hold, for the reason
    given ("" if they did)."""

    tiling: Tiling
    expected: float
    reason: str = ""
    milliseconds: float | None = None


@dataclass(frozen=True, slots=True)
class Tuned:
    """One task. says: which it is; candidates: the planner's choice first, cheapest first; chosen: the place of what was chosen among
    them, None if nothing may be used; kept: "" or why the choice is not kept on the disk."""

    says: str
    schedule: str
    candidates: tuple[Candidate, ...]
    chosen: int | None
    kept: str = ""

    @property
    def ratio(self) -> float | None:
        """The time of what the planner would have chosen, in times of the best; None if it may not be used."""
        times = [one.milliseconds for one in self.candidates if one.milliseconds is not None]
        planned = self.candidates[0].milliseconds
        return None if planned is None else planned / min(times)


@dataclass(frozen=True, slots=True)
class Report:
    """What `tune` found. place: what it holds for, by name. Prints as a table."""

    place: tuple[tuple[str, str], ...]
    tasks: tuple[Tuned, ...]

    def __str__(self) -> str:
        where = ", ".join(f"{name} {value}" for name, value in self.place if value)
        return "\n".join([f"tuned on {where}", *(line for task in self.tasks for line in ("", *task_lines(task)))])

    def as_json(self) -> dict[str, Any]:
        """The report as values that JSON knows; times in milliseconds."""
        return {"place": dict(self.place), "tasks": [task_json(task) for task in self.tasks]}


def task_lines(task: Tuned) -> Iterator[str]:
    """One task: what it is, its candidates, what follows."""
    yield f"{task.says}  {task.schedule}"
    yield from aligned([HEADINGS, *(cells(place, one, task) for place, one in enumerate(task.candidates))])
    if task.chosen is None:
        yield "  nothing was chosen: no tiling may be trusted here"
    elif len(task.candidates) == 1:
        yield "  there is one candidate: nothing to choose"
    else:
        same = "the planner's choice" if task.chosen == 0 else "not the planner's choice"
        yield f"  chosen: {same}" + ("" if task.ratio is None else f"; planner / best = {task.ratio:.2f}")
    if task.kept:
        yield f"  {task.kept}"


def cells(place: int, one: Candidate, task: Tuned) -> tuple[str, ...]:
    """One candidate's row."""
    mark = ("*" if place == task.chosen else "") + ("p" if place == 0 else "")
    measured = "" if one.milliseconds is None else duration(one.milliseconds)
    return (mark, tiling_text(one.tiling), duration(one.expected), measured, f"OUT: {one.reason}" if one.reason else "numbers hold")


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows under one another, times to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        parts = (
            text.rjust(width) if heading in ("expected", "measured") else text.ljust(width)
            for text, width, heading in zip(row, widths, HEADINGS, strict=True)
        )
        yield ("  " + "  ".join(parts)).rstrip()


def task_json(task: Tuned) -> dict[str, Any]:
    """One task for programs."""
    candidates = [
        {
            "tiling": asdict(one.tiling) | {"constants": dict(one.tiling.constants)},
            "expected": one.expected,
            "milliseconds": one.milliseconds,
            "reason": one.reason,
        }
        for one in task.candidates
    ]
    return {
        "task": task.says,
        "schedule": task.schedule,
        "candidates": candidates,
        "chosen": task.chosen,
        "planned": 0,
        "ratio": task.ratio,
        "kept": task.kept,
    }
