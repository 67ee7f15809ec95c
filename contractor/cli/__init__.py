"""The command line: check, plan, show, emit, run, bench, tune, doctor. Tables are rich on a terminal and plain in a pipe.

Every mistake of the user's ends in a message on standard error and exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from contractor.cli.arguments import DTYPES, Parser, command, common, device_of, planned, problem_of, runnable, running
from contractor.cli.bench import add as add_bench
from contractor.cli.bench import do_bench
from contractor.cli.tune import add as add_tune
from contractor.cli.tune import do_tune
from contractor.errors import ContractorError, SpecError, position
from contractor.pipeline import Options, operator, program_of, programs_of, source, spec_of, stages
from contractor.plan.machine import MACHINES
from contractor.plan.problem import BYTES, Problem
from contractor.plan.show import as_json, duration, show_text, table
from contractor.program.masks import MASKS
from contractor.program.program import Program
from contractor.program.show import show as show_program
from contractor.run.doctor import findings
from contractor.run.trial import Compared, Trial, trial
from contractor.schedules.register import SCHEDULES
from contractor.text.show import show as show_spec

STAGES = ("spec", "program", "plan", "kernels", "source", "all")
ABOUT = f"""\
A spec (.ctr) holds a layer as its paper writes it:

    layer retention
    input Q [T, N]
    input K [S, N]
    input V [S, P]
    param gamma [] in [0, 1]
    L [T, S] = decay(gamma)
    Y [T, P] = contract(TN, SN, SP, TS -> TP)(Q, K, V, L)
    output Y * rsqrt(N)

T is the target's position, S the source's, other letters are features; batch B and heads H are everywhere and not written.

    contractor check retention.ctr
    contractor plan retention.ctr B=4 T=4096 H=8 N=256 P=512 --machine h200
    contractor emit retention.ctr B=4 T=4096 H=8 N=256 P=512 --machine h200 -o kernel.py
    contractor run retention.ctr T=200 H=2 N=16 P=16 dtype=float64
    contractor bench retention.ctr B=4 T=4096 H=32 N=128 P=128 --against fla,mamba,sdpa
    contractor tune retention.ctr B=4 T=4096 H=32 N=128 P=128
    contractor bench retention.ctr H=32 N=128 P=128 --schedule all --sweep T=256:16384 --plot retention.png

sizes     B=4 T=4096 H=32 N=128; options beside them: dtype=bfloat16 heads=C:1,B:1
          B and H are 1 if not given, T and S each other; sizes that follow from definitions need not be given
dtypes    {", ".join(BYTES)}
masks     {", ".join(MASKS)}
orders    {", ".join(SCHEDULES)}
machines  {", ".join(MACHINES)}
"""


def parser() -> argparse.ArgumentParser:
    """The commands and their arguments."""
    root = Parser(
        prog="contractor",
        description="Compile masked attention and state space layers: write the contraction, read the plan, run the kernel.",
        epilog=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = command(commands, "check", "read a spec and say what it means, or everything that is wrong with it")
    check.add_argument("--json", action="store_true", help="as JSON")
    planning = command(commands, "plan", "price every order of evaluation, or say why it is refused", sized=True)
    planning.add_argument("--json", action="store_true", help="as JSON")
    show = commands.add_parser("show", help="print one stage of the compilation", description="print one stage of the compilation")
    show.add_argument("stage", choices=STAGES, metavar="STAGE", help=", ".join(STAGES))
    common(show, sized=True)
    emit = command(commands, "emit", "write the kernels as a file that runs alone", sized=True)
    emit.add_argument("-o", "--output", metavar="FILE", help="where to (default: standard output)")
    run = command(commands, "run", "run the layer on random tensors, forward and backward, check its numbers and time it", sized=True)
    running(run)
    add_bench(command(commands, "bench", "measure the layer on this device, beside the libraries that have it", sized=True, options=False))
    add_tune(command(commands, "tune", "measure the tilings of its kernels here, and keep the best", sized=True, options=False))
    commands.add_parser("doctor", help="say what this machine has, and which known hazards apply to it")
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns 0, or 1 after an error that is the user's to mend."""
    try:
        given = parser().parse_args(arguments)
        return COMMANDS[given.command](given)
    except BrokenPipeError:  # the reader of a pipe has what it wants
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ContractorError, OSError) as error:
        print(told(error), file=sys.stderr)
        return 1


def told(error: Exception) -> str:
    """An error in a line, or in the lines that it brings."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


# ---- commands -------------------------------------------------------------------------------------------------------------------


def do_check(given: argparse.Namespace) -> int:
    """Says what each layer means."""
    try:
        found = programs_of(Path(given.file)) if given.layer is None else (program_of(Path(given.file), given.layer),)
    except SpecError as error:
        if not given.json:
            raise
        print(json.dumps({"layers": [], "mistakes": mistakes_json(error)}, indent=2))
        return 1
    if given.json:
        print(json.dumps({"layers": [program_json(program) for program in found], "mistakes": []}, indent=2))
    else:
        print("\n\n".join(show_program(program) for program in found))
    return 0


def do_plan(given: argparse.Namespace) -> int:
    """Prints the plan."""
    found = planned(given)
    if given.json:
        print(json.dumps(as_json(found), indent=2))
    elif sys.stdout.isatty():
        Console().print(table(found))
    else:
        print(show_text(found))
    return 0


def do_show(given: argparse.Namespace) -> int:
    """Prints one stage, or all."""
    if given.stage == "spec":
        print(show_spec(spec_of(Path(given.file))), end="")
    elif given.stage == "program":
        print(show_program(program_of(Path(given.file), given.layer)))
    else:
        shown = stages(planned(given))
        parts = [f"── {name} ──\n\n{text}" for name, text in shown] if given.stage == "all" else [dict(shown)[given.stage]]
        print("\n\n".join(parts).rstrip("\n"))
    return 0


def do_emit(given: argparse.Namespace) -> int:
    """Writes the kernels."""
    text = source(planned(given))
    if given.output is None:
        print(text, end="")
    else:
        Path(given.output).write_text(text, encoding="utf-8")
    return 0


def do_run(given: argparse.Namespace) -> int:
    """Runs a layer on random tensors; returns 1 if a number is wrong."""
    device = device_of(given)
    problem = runnable(problem_of(given, DTYPES[device]))
    found = trial(operator(problem.program, Options(given.schedule, None, given.machine)), problem, device, given.seed)
    print("\n".join(trial_lines(found, problem, device)))
    return 0 if found.right else 1


def do_doctor(given: argparse.Namespace) -> int:
    """Says what this machine has."""
    del given
    for name, value in findings():
        print(f"{name:10} {value}")
    return 0


COMMANDS = {
    "check": do_check,
    "plan": do_plan,
    "show": do_show,
    "emit": do_emit,
    "run": do_run,
    "bench": do_bench,
    "tune": do_tune,
    "doctor": do_doctor,
}


# ---- answers --------------------------------------------------------------------------------------------------------------------


def trial_lines(found: Trial, problem: Problem, device: str) -> list[str]:
    """What a trial says."""
    checked = any(one.error is not None for one in found.outputs)
    against = "errors are relative to the float64 reference" if checked else "too large for the float64 reference: numbers not compared"
    rows = [*(compared_line(one, "") for one in found.outputs), *(compared_line(one, "gradient of ") for one in found.gradients)]
    times = f"forward {duration(found.forward)}, forward and backward {duration(found.both)} (first call {duration(found.first)})"
    return [f"{problem.program.name} on {device}, {problem.dtype}; {against}", *rows, times]


def compared_line(one: Compared, prefix: str) -> str:
    """One tensor and how right it is."""
    error = "" if one.error is None else f"  error {one.error:.1e} (allowed {one.allowed:.0e})"
    verdict = "" if one.right else "  NOT FINITE" if not one.finite else "  WRONG"
    return f"  {prefix + one.name:24} {list(one.shape)!s:24} {one.dtype:10}{error}{verdict}"


def program_json(program: Program) -> dict[str, Any]:
    """A layer as JSON."""
    operands = [
        {
            "name": one.name,
            "role": one.role,
            "axes": list(one.axes),
            "number": one.number.name.lower(),
            "range": [str(one.low), str(one.high)],
        }
        for one in program.operands
    ]
    return {"layer": program.name, "operands": operands, "carries_state": not program.stateless, "stateless": program.stateless}


def mistakes_json(error: SpecError) -> list[dict[str, Any]]:
    """What is wrong with a spec as JSON; lines and columns count from 1."""
    places = [position(error.text, min(one.spans).start) if one.spans else (1, 1) for one in error.mistakes]
    return [
        {"file": error.file, "line": line, "column": column, "message": one.message, "hint": one.hint}
        for one, (line, column) in zip(error.mistakes, places, strict=True)
    ]
