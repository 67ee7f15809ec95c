"""What `contractor bench` answers: an aligned table for each problem, the crossovers of a sweep in words, or all of it as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from contractor.plan.show import amount, duration, three_digits
from contractor.run.doctor import gpu, version
from contractor.run.lines import crossovers, lines
from contractor.run.rows import Row, Table

WIDTH = 240  # columns where no terminal says otherwise
BOTH = "forward + backward"
LEFT = ("order or peer", "held to", "function")
HEADINGS = ("order or peer", "forward", "× floor", "bandwidth", "FLOP/s", BOTH, "× floor ", "× ours", "host", "memory", "first", "error",
            "held to", "function")  # fmt: skip


def shown(found: Table, place: str) -> None:
    """Prints a table as soon as it is there."""
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        console.print(rendered(found, place))
    print("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n", flush=True)


def rendered(found: Table, place: str) -> RenderableType:
    """A table as something rich can print: what was timed, then what was not and why."""
    timed = [row for row in found.rows if row.forward is not None]
    made = [cells(row, found) for row in timed]
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    kept = [heading for heading in HEADINGS if any(one[heading] for one in made)]
    for heading in kept:
        grid.add_column(heading.rstrip(), justify="left" if heading in LEFT else "right")
    for row, one in zip(timed, made, strict=True):
        grid.add_row(*(one[heading] for heading in kept), style="bold" if row is found.baseline else "")
    notes = Grid.grid(padding=(0, 2))
    for row in found.rows:
        if row.note:
            notes.add_row(row.name, Text(note(row)))
    parts: list[RenderableType] = [Text(headline(found, place), style="bold"), Text(floors(found))]
    return Group(*parts, *((grid,) if timed else ()), *((notes,) if notes.row_count else ()))


def cells(row: Row, found: Table) -> dict[str, str]:
    """A row that was timed, by heading."""
    assert row.forward is not None
    texts = (
        f"{row.name} *" if row.chosen else row.name,
        duration(row.forward),
        times(row.forward, found.floor),
        amount(rate(found.bytes_forward, row.forward), "B/s"),
        "" if row.flops is None else amount(rate(row.flops, row.forward), "FLOP/s"),
        "" if row.both is None else duration(row.both),
        "" if row.both is None else times(row.both, found.floor_both),
        against(row, found.baseline),
        "" if row.host is None else f"{row.host:.0f} µs",
        "" if row.memory is None else amount(row.memory, "B"),
        "" if row.first is None else f"{three_digits(row.first)} s",
        error_text(row),
        row.held_to if row.errors else "",
        f"{row.says} ({row.version})" if row.version else row.says,
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
    return ", ".join("–" if one is None or other is None else times(one, other) for one, other in pairs)


def error_text(row: Row) -> str:
    """The errors of outputs and gradients."""
    return ", ".join(f"{error:.1e}" for error in row.errors)


def note(row: Row) -> str:
    """What is to be said about a row; with its errors, where it is not in the table."""
    return f"{row.note} (errors {error_text(row)} to {row.held_to})" if row.errors and row.forward is None else row.note


def headline(found: Table, place: str) -> str:
    """The problem and where it ran, in one line."""
    problem = found.problem
    sizes = " ".join(f"{axis}={size}" for axis, size in problem.sizes.mapping.items())
    heads = "".join(f", {count} {'head' if count == 1 else 'heads'} of {name}" for name, count in problem.heads)
    return f"{problem.program.name}  {sizes} {problem.dtype}{heads}  on {place}"


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


def title(found: Table, axis: str, place: str) -> str:
    """The picture's: the problem but for what is swept."""
    sizes = found.problem.sizes.mapping
    swept_too = ("T", "S") if axis in ("T", "S") else (axis,)
    kept = " ".join(f"{name}={size}" for name, size in sizes.items() if name not in swept_too)
    return f"{found.problem.program.name}  {kept} {found.problem.dtype}\n{place}"


def as_json(tables: list[Table], axis: str, place: str) -> dict[str, Any]:
    """Everything, in milliseconds, bytes, flops and seconds."""
    first = tables[0]
    return {
        "layer": first.problem.program.name,
        "device": place,
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
        "rows": [asdict(row) | {"wrong": row.wrong} for row in found.rows],
    }
