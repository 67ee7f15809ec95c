"""The arguments that commands share: a spec, sizes by letter, a machine; and the problem that they pose."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from contractor.errors import ArgumentError
from contractor.pipeline import plan, program_of
from contractor.plan.machine import MACHINES
from contractor.plan.plan import Plan
from contractor.plan.problem import Problem
from contractor.plan.sizes import problem_from_sizes
from contractor.schedules.register import SCHEDULES

SIZES = "sizes by letter, and options: B=4 T=4096 H=32 N=128 dtype=bfloat16 heads=C:1,B:1"
DTYPES = {"cpu": "float32", "cuda": "bfloat16"}  # of the tensors where none is named, by device


class Parser(argparse.ArgumentParser):
    """A parser whose errors are errors like all others."""

    def error(self, message: str) -> NoReturn:
        """Raises ArgumentError."""
        raise ArgumentError(f"{message}\n{self.format_usage().strip()}")


def command(commands: Any, name: str, says: str, sized: bool = False, options: bool = True) -> argparse.ArgumentParser:
    """A command that reads a spec. options: it takes one machine and one schedule."""
    made = commands.add_parser(name, help=says, description=says)
    common(made, sized, options)
    return made


def common(made: argparse.ArgumentParser, sized: bool, options: bool = True) -> None:
    """The arguments that commands share."""
    made.add_argument("file", metavar="FILE", help="a spec (.ctr)")
    made.add_argument("--layer", metavar="NAME", help="which layer, where the file holds several")
    if sized:
        made.add_argument("sizes", nargs="*", metavar="AXIS=SIZE", help=SIZES)
    if sized and options:
        made.add_argument(
            "--machine", choices=sorted(MACHINES), metavar="NAME", help=f"plan for it, not for this one: {', '.join(MACHINES)}"
        )
        made.add_argument("--schedule", choices=sorted(SCHEDULES), metavar="NAME", help=f"instead of the cheapest: {', '.join(SCHEDULES)}")


def running(made: argparse.ArgumentParser) -> None:
    """The arguments of commands that run a layer."""
    made.add_argument("--device", choices=tuple(DTYPES), help="default: the GPU if there is one")
    made.add_argument("--seed", type=int, default=0, help="of the random tensors (default: 0)")


def device_of(given: argparse.Namespace) -> str:
    """The device asked for, or the GPU if there is one. Raises ArgumentError for a GPU that is not there."""
    device: str = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise ArgumentError("torch sees no GPU here")
    return device


def runnable(problem: Problem) -> Problem:
    """The problem, if random tensors can be made for it. Raises ArgumentError if not."""
    if problem.dtype.startswith("complex"):
        raise ArgumentError(f"the layer is run in a real dtype, not {problem.dtype}")
    if problem.packed is not None:
        raise ArgumentError("packed sequences are not run yet")
    if problem.initial or problem.final:
        raise ArgumentError("states are not handed in or out here; `contractor plan` prices them")
    return problem


def planned(given: argparse.Namespace) -> Plan:
    """The plan that the arguments ask for."""
    return plan(problem_of(given), given.machine, given.schedule)


def problem_of(given: argparse.Namespace, dtype: str = "bfloat16") -> Problem:
    """The problem that the arguments pose."""
    sizes: dict[str, Any] = {"dtype": dtype, **sizes_of(given.sizes)}
    return problem_from_sizes(program_of(Path(given.file), given.layer), **sizes)


def sizes_of(pairs: Sequence[str]) -> dict[str, Any]:
    """`T=4096 dtype=bfloat16 heads=C:1,B:1` as keywords."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ArgumentError(f"{pair!r} is no size; write {SIZES}")
        if name in found:
            raise ArgumentError(f"{name} is given twice")
        found[name] = value if name == "dtype" else heads_of(value) if name == "heads" else whole(name, value)
    return found


def heads_of(text: str) -> dict[str, int]:
    """`C:1,B:1` as head counts by operand."""
    pairs = [pair.partition(":") for pair in text.split(",")]
    return {name: whole(f"heads of {name or text!r}", count) for name, _, count in pairs}


def whole(name: str, text: str) -> int:
    """A size."""
    if not text.isdecimal() or len(text) > 12:
        raise ArgumentError(f"{name} must be a whole number from 0 to {10**12 - 1:,}, not {text[:30]!r}")
    return int(text)
