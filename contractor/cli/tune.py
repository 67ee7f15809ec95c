"""`contractor tune`: measures the tilings of a layer's kernels on this device and keeps the best whose numbers hold."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import torch

from contractor.cli.arguments import DTYPES, device_of, problem_of, runnable, running
from contractor.pipeline import Options, operator
from contractor.run.truth import operands_of
from contractor.run.tuned import Report
from contractor.schedules.register import SCHEDULES


def add(made: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    made.add_argument("--schedule", choices=sorted(SCHEDULES), metavar="NAME", help=f"instead of the cheapest: {', '.join(SCHEDULES)}")
    made.add_argument("--forward", action="store_true", help="the forward alone")
    made.add_argument("--json", action="store_true", help="as JSON")
    running(made)


def do_tune(given: argparse.Namespace) -> int:
    """Tunes a layer; returns 1 if no tiling of some task may be trusted."""
    device = device_of(given)
    problem = runnable(problem_of(given, DTYPES[device]))
    operands = operands_of(problem, device, given.seed)
    tune: Callable[..., Report] = operator(problem.program, Options(given.schedule)).tune
    with torch.set_grad_enabled(not given.forward):
        found = tune(**operands)
    print(json.dumps(found.as_json(), indent=2) if given.json else found)
    return 1 if any(one.chosen is None for one in found.tasks) else 0
