"""`contractor bench`: what is measured, printed as an aligned table for each problem, as JSON, and drawn along a sweep."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from contractor.cli.arguments import DTYPES, device_of, problem_of, runnable, running, sizes_of, whole
from contractor.errors import ArgumentError
from contractor.pipeline import Options, operator
from contractor.plan.problem import Problem
from contractor.plan.show import amount, duration, three_digits
from contractor.run.bench import Order, Setting, bench
from contractor.run.doctor import gpu, version
from contractor.run.lines import crossovers, lines
from contractor.run.peers import PEERS
from contractor.run.rows import Row, Table
from contractor.schedules.register import SCHEDULES

EVERY = "all"
WIDTH = 200  # columns where no terminal says otherwise
BOTH = "forward + backward"
LEFT = ("order or peer", "held to", "function")
HEADINGS = ("order or peer", "forward", "× floor", "bandwidth", "FLOP/s", BOTH, "× floor ", "× ours", "host", "memory", "first", "error",
            "held to", "function")  # fmt: skip
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
    empty_cache(given.first)
    tables: list[Table] = []
    for problem in posed:
        found = bench(setting_of(given, problem, device), orders(given, problem), peers)
        tables.append(found)
        if not given.json:
            shown(found)
    if given.json:
        print(json.dumps(as_json(tables, axis), indent=2))
    elif axis:
        print("\n".join(crossing_lines(tables, axis)))
    if picture is not None:
        picture.plot(tables, axis, title(tables[0], axis), Path(given.plot))
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


def empty_cache(wanted: bool) -> None:
    """Has Triton compile everything again, into a folder of this run."""
    if wanted:
        os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="contractor-bench-")


# ---- answers --------------------------------------------------------------------------------------------------------------------


def shown(found: Table) -> None:
    """Prints a table as soon as it is there."""
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        console.print(rendered(found))
    print("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n", flush=True)


def rendered(found: Table) -> RenderableType:
    """A table as something rich can print: what was timed, then what was not and why."""
    timed = [row for row in found.rows if row.forward is not None]
    made = [cells(row, found) for row in timed]
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    kept = [heading for heading in HEADINGS if any(one[heading] for one in made)]
    for heading in kept:
        grid.add_column(heading.rstrip(), justify="left" if heading in LEFT else "right", no_wrap=True)
    for row, one in zip(timed, made, strict=True):
        grid.add_row(*(one[heading] for heading in kept), style="bold" if row is found.baseline else "")
    notes = Grid.grid(padding=(0, 2))
    for row in found.rows:
        if row.note:
            notes.add_row(row.name, Text(row.note + error_note(row)))
    parts: list[RenderableType] = [Text(headline(found), style="bold"), Text(floors(found))]
    return Group(*parts, *((grid,) if timed else ()), *((notes,) if notes.row_count else ()))


def cells(row: Row, found: Table) -> dict[str, str]:
    """A row that was timed, by heading."""
    assert row.forward is not None and row.both is not None
    texts = (
        f"{row.name} *" if row.chosen else row.name,
        duration(row.forward),
        times(row.forward, found.floor),
        amount(rate(found.bytes_forward, row.forward), "B/s"),
        "" if row.flops is None else amount(rate(row.flops, row.forward), "FLOP/s"),
        duration(row.both),
        times(row.both, found.floor_both),
        against(row, found.baseline),
        "" if row.host is None else f"{row.host:.0f} µs",
        "" if row.memory is None else amount(row.memory, "B"),
        "" if row.first is None else f"{three_digits(row.first)} s",
        "" if row.errors is None else f"{row.errors[0]:.1e}, {row.errors[1]:.1e}",
        row.held_to if row.errors is not None else "",
        row.says,
    )
    return dict(zip(HEADINGS, texts, strict=True))


def times(value: float, unit: float) -> str:
    """How many times one is the other."""
    return "" if not unit else f"{value / unit:.2f}" if value < 10 * unit else three_digits(value / unit)


def rate(count: float, milliseconds: float) -> float:
    """A count a second."""
    return count / milliseconds * 1e3


def against(row: Row, baseline: Row | None) -> str:
    """How many times as long as ours: forward, both."""
    if baseline is None or row is baseline:
        return ""
    pairs = ((row.forward, baseline.forward), (row.both, baseline.both))
    return ", ".join(times(one, other) for one, other in pairs if one is not None and other is not None)


def error_note(row: Row) -> str:
    """The errors of a row that is wrong."""
    return f" (errors {row.errors[0]:.1e}, {row.errors[1]:.1e} to {row.held_to})" if row.wrong and row.errors is not None else ""


def headline(found: Table) -> str:
    """The problem and where it ran, in one line."""
    problem = found.problem
    sizes = " ".join(f"{axis}={size}" for axis, size in problem.sizes.mapping.items())
    heads = "".join(f", {count} {'head' if count == 1 else 'heads'} of {name}" for name, count in problem.heads)
    return f"{problem.program.name}  {sizes} {problem.dtype}{heads}  on {where(found.device)}"


def where(device: str) -> str:
    """The device and the versions that its times depend on."""
    triton = version("triton")
    versions = f"torch {torch.__version__}" + (f", triton {triton}" if triton and device != "cpu" else "")
    return f"{f'{torch.get_num_threads()} CPU threads' if device == 'cpu' else gpu()}, {versions}"


def floors(found: Table) -> str:
    """What the bytes alone take."""
    counts = f"{amount(found.bytes_forward, 'B')} forward, {amount(found.bytes_both, 'B')} both ways"
    times = f"{duration(found.floor)} and {duration(found.floor_both)} at {amount(found.bandwidth, 'B/s')}"
    return f"floor: inputs, outputs and gradients once: {counts}: {times}"


def crossing_lines(tables: list[Table], axis: str) -> Iterator[str]:
    """Where one becomes faster than another."""
    for both, says in ((False, "forward"), (True, BOTH)):
        for one in crossovers(lines(tables, axis, both)):
            yield f"{says}: from {axis} = {one.size:.0f} on {one.behind} is faster than {one.before} ({duration(one.milliseconds)})"


def title(found: Table, axis: str) -> str:
    """The picture's: the problem but for what is swept."""
    sizes = found.problem.sizes.mapping
    swept_too = ("T", "S") if axis in ("T", "S") else (axis,)
    kept = " ".join(f"{name}={size}" for name, size in sizes.items() if name not in swept_too)
    return f"{found.problem.program.name}  {kept} {found.problem.dtype}  on {where(found.device)}"


def as_json(tables: list[Table], axis: str) -> dict[str, Any]:
    """Everything, in milliseconds, bytes, flops and seconds."""
    first = tables[0]
    return {
        "layer": first.problem.program.name,
        "device": where(first.device),
        "tables": [table_json(table) for table in tables],
        "crossovers": {says: [asdict(one) for one in crossovers(lines(tables, axis, both))] for says, both in WAYS} if axis else {},
    }


WAYS = (("forward", False), ("both", True))


def table_json(found: Table) -> dict[str, Any]:
    """One problem."""
    problem = found.problem
    return {
        "sizes": problem.sizes.mapping,
        "dtype": problem.dtype,
        "heads": dict(problem.heads),
        "bandwidth": found.bandwidth,
        "bytes": {"forward": found.bytes_forward, "both": found.bytes_both},
        "floor": {"forward": found.floor, "both": found.floor_both},
        "rows": [asdict(row) for row in found.rows],
    }
