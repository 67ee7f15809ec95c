"""The picture of a sweep: time against size, a line for each order and peer, their crossovers marked.

Loaded only when a picture is asked for: matplotlib takes its time to import, and need not be installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

from contractor.errors import ArgumentError
from contractor.run.lines import Line, crossovers, lines
from contractor.run.rows import Table

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure: Any = None

WIDTH, HEIGHT, DOTS = 13.0, 5.5, 150


def require() -> None:
    """Raises ArgumentError where matplotlib is missing."""
    if Figure is None:
        raise ArgumentError("a plot needs matplotlib: pip install 'contractor[plot]'")


def plot(tables: Sequence[Table], axis: str, title: str, path: Path) -> None:
    """Writes the picture: forward on the left, forward and backward on the right. Raises ArgumentError where matplotlib is missing."""
    require()
    figure: Any = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(1, 2)
    for panel, both, says in zip(panels, (False, True), ("forward", "forward + backward"), strict=True):
        draw(panel, lines(tables, axis, both), axis, says)
    figure.savefig(path, dpi=DOTS)


def draw(panel: Any, found: Sequence[Line], axis: str, says: str) -> None:
    """One panel: ours drawn through, peers dashed; a line has a gap where it was not timed."""
    sizes = sorted({size for line in found for size, _ in line.points})
    for line in found:
        timed = dict(line.points)
        times = [timed.get(size, nan) for size in sizes]
        panel.plot(sizes, times, marker="o", markersize=3, linestyle="-" if line.ours else "--", label=line.name)
    for crossing in crossovers(found):
        panel.plot([crossing.size], [crossing.milliseconds], marker="x", color="black", markersize=7, linestyle="none")
        text = f"{axis} = {crossing.size:.0f}"
        panel.annotate(text, (crossing.size, crossing.milliseconds), textcoords="offset points", xytext=(6, -12), fontsize=8)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45)
    panel.set_xlabel(axis)
    panel.set_ylabel("milliseconds")
    panel.set_title(says)
    panel.grid(True, which="major", alpha=0.3)
    if found:
        panel.legend(fontsize=8)
