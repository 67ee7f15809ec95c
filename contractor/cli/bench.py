"""`contractor bench`: what is measured, against whom, along which sweep; the answer is in `measured`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from contractor.cli.arguments import DTYPES, device_of, problem_of, runnable, running, sizes_of, whole
from contractor.cli.measured import as_json, crossing_lines, shown, title, where
from contractor.errors import ArgumentError
from contractor.pipeline import Options, operator
from contractor.plan.problem import Problem
from contractor.run.bench import Order, Setting, bench
from contractor.run.peers import PEERS
from contractor.run.rows import Table
from contractor.schedules.register import SCHEDULES

EVERY = "all"
CACHE = "TRITON_CACHE_DIR"
Axis = tuple[str, tuple[int, ...]]


def add(made: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    orders = (*SCHEDULES, EVERY)
    says = f"instead of the planner's choice; give it again for more: {', '.join(orders)}"
    made.add_argument("--schedule", action="append", choices=orders, metavar="NAME", help=says)
    made.add_argument("--against", default="", metavar="PEERS", help=f"beside it, where installed: {','.join(PEERS)}")
    made.add_argument("--sweep", metavar="AXIS=FROM:TO[:FACTOR]", help="at sizes that grow by a factor (default: 2): T=1024:65536")
    made.add_argument("--plot", metavar="FILE.png", help="draw the sweep: time against size, crossovers marked")
    made.add_argument("--first", action="store_true", help="time first calls too, from an empty Triton cache")
    made.add_argument("--json", action="store_true", help="as JSON")
    running(made)


def do_bench(given: argparse.Namespace) -> int:
    """Measures a layer; returns 1 if a number of ours is wrong."""
    device = device_of(given)
    axis, sizes = swept(given)
    peers = [name for name in given.against.split(",") if name]
    if unknown := [name for name in peers if name not in PEERS]:
        raise ArgumentError(f"unknown peer {', '.join(unknown)}; there are {', '.join(PEERS)}")
    picture: Any = picture_of(given, axis)
    posed = problems(given, device, axis, sizes)
    place = where(device)
    tables: list[Table] = []
    with empty_cache(given.first):
        for problem in posed:
            tables.append(bench(setting_of(given, problem, device), orders(given, problem), peers))
            if not given.json:
                shown(tables[-1], place)
    if given.json:
        print(json.dumps(as_json(tables, axis, place), indent=2))
    elif axis:
        print("\n".join(crossing_lines(tables, axis)) or "no two lines cross")
    if picture is not None:
        picture.plot(tables, axis, title(tables[0], axis, place), Path(given.plot))
    return 1 if any(row.ours and row.wrong for table in tables for row in table.rows) else 0


# ---- arguments ------------------------------------------------------------------------------------------------------------------


def swept(given: argparse.Namespace) -> Axis:
    """The axis of a sweep and its sizes; no axis without a sweep."""
    if given.sweep is None:
        return "", ()
    axis, equals, text = given.sweep.partition("=")
    parts = text.split(":")
    if not axis or not equals or len(parts) not in (2, 3):
        raise ArgumentError(f"{given.sweep!r} is no sweep; write T=1024:65536, or T=1024:65536:4 for another factor")
    first, last, factor = (whole(axis, part) for part in (*parts, "2")[:3])
    if not 0 < first <= last or factor < 2:
        raise ArgumentError(f"{given.sweep!r}: a sweep grows, from 1 at least and by a factor of 2 at least")
    if any(pair.partition("=")[0] == axis for pair in given.sizes):
        raise ArgumentError(f"{axis} is swept and given as a size too")
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return axis, tuple(sizes)


def picture_of(given: argparse.Namespace, axis: str) -> Any:
    """The module that draws, if a picture is asked for; refused now rather than after the measurement."""
    if given.plot is None:
        return None
    if not axis:
        raise ArgumentError("a plot shows a sweep; give --sweep T=1024:65536 too")
    if not Path(given.plot).absolute().parent.is_dir():
        raise ArgumentError(f"cannot write {given.plot}: there is no such folder")
    picture = importlib.import_module("contractor.run.plot")
    picture.require()
    return picture


def problems(given: argparse.Namespace, device: str, axis: str, sizes: tuple[int, ...]) -> tuple[Problem, ...]:
    """What is measured, at every size of the sweep."""
    every = [[f"{axis}={size}"] for size in sizes] or [[]]
    sizes_of(given.sizes)
    posed = (argparse.Namespace(file=given.file, layer=given.layer, sizes=[*given.sizes, *one]) for one in every)
    return tuple(runnable(problem_of(one, DTYPES[device])) for one in posed)


def orders(given: argparse.Namespace, problem: Problem) -> tuple[Order, ...]:
    """Our rows."""
    asked: list[str] = given.schedule or []
    names = tuple(SCHEDULES) if EVERY in asked else tuple(dict.fromkeys(asked)) or (None,)
    return tuple(Order(name, operator(problem.program, Options(schedule=name))) for name in names)


def setting_of(given: argparse.Namespace, problem: Problem, device: str) -> Setting:
    """What is measured, and what its numbers are held to."""
    return Setting(problem, operator(problem.program, Options(backend="torch")), device, given.seed, given.first)


@contextmanager
def empty_cache(wanted: bool) -> Generator[None]:
    """Has Triton compile everything again, into a folder that is gone afterwards."""
    before = os.environ.get(CACHE)
    with tempfile.TemporaryDirectory(prefix="contractor-") if wanted else nullcontext() as place:
        try:
            os.environ |= {} if place is None else {CACHE: place}
            yield
        finally:
            if wanted:
                os.environ.pop(CACHE)
            os.environ |= {} if before is None else {CACHE: before}
