"""The command line: check, plan, show, emit, run, doctor. Tables are rich on a terminal and plain in a pipe."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from contractor.errors import ArgumentError, ContractorError
from contractor.pipeline import Options, operator, plan, program_of, programs_of, source, spec_of, stages
from contractor.plan.machine import MACHINES
from contractor.plan.plan import Plan
from contractor.plan.show import as_json, table
from contractor.plan.sizes import problem_from_sizes
from contractor.program.masks import MASKS
from contractor.program.program import Program
from contractor.program.show import show as show_program
from contractor.run.doctor import findings
from contractor.run.sample import sample
from contractor.schedules.register import SCHEDULES
from contractor.text.show import show as show_spec

STAGES = ("spec", "program", "plan", "kernels", "source")
SIZES = "sizes by letter and options: B=4 T=4096 H=32 N=128 dtype=bfloat16 heads=C:1,B:1"


def parser() -> argparse.ArgumentParser:
    """The commands and their arguments."""
    root = argparse.ArgumentParser(
        prog="contractor",
        description="Compile masked attention and state space layers: write the contraction, read the plan, run the kernel.",
        epilog=f"masks: {', '.join(MASKS)}. orders of evaluation: {', '.join(SCHEDULES)}. machines: {', '.join(MACHINES)}.",
    )
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = command(commands, "check", "read a spec and say what it means, or everything that is wrong with it")
    check.add_argument("--json", action="store_true", help="as JSON")
    planning = command(commands, "plan", "price every order of evaluation, or say why it is refused", sized=True)
    planning.add_argument("--json", action="store_true", help="as JSON")
    show = commands.add_parser("show", help="print one stage of the compilation")
    show.add_argument("stage", choices=STAGES)
    common(show, sized=True)
    emit = command(commands, "emit", "write the kernels as a file that runs alone", sized=True)
    emit.add_argument("-o", "--output", metavar="FILE", help="where to (default: standard output)")
    command(commands, "run", "run the layer on random tensors, forward and backward, and check its numbers", sized=True)
    commands.add_parser("doctor", help="what this machine has, and which known hazards apply to it")
    return root


def command(commands: Any, name: str, says: str, sized: bool = False) -> argparse.ArgumentParser:
    """A command that reads a spec."""
    made = commands.add_parser(name, help=says, description=says)
    common(made, sized)
    return made


def common(made: argparse.ArgumentParser, sized: bool) -> None:
    """The arguments that commands share."""
    made.add_argument("file", metavar="FILE", help="a spec (.ctr)")
    made.add_argument("--layer", help="which layer, where the file holds several")
    if sized:
        made.add_argument("sizes", nargs="*", metavar="AXIS=SIZE", help=SIZES)
        made.add_argument("--machine", choices=sorted(MACHINES), help="plan for this machine (default: the one at hand)")
        made.add_argument("--schedule", choices=sorted(SCHEDULES), help="take this order instead of the cheapest")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns 0, or 1 after an error that is the user's to mend."""
    given = parser().parse_args(arguments)
    try:
        COMMANDS[given.command](given)
    except (ContractorError, FileNotFoundError, IsADirectoryError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


# ---- commands -------------------------------------------------------------------------------------------------------------------


def do_check(given: argparse.Namespace) -> None:
    """Says what each layer means."""
    found = [program for program in programs_of(Path(given.file)) if given.layer in (None, program.name)]
    if given.json:
        print(json.dumps([program_json(program) for program in found], indent=2))
        return
    print("\n\n".join(show_program(program) for program in found))


def do_plan(given: argparse.Namespace) -> None:
    """Prints the plan."""
    found = planned(given)
    if given.json:
        print(json.dumps(as_json(found), indent=2))
    else:
        Console(soft_wrap=True).print(table(found))


def do_show(given: argparse.Namespace) -> None:
    """Prints one stage."""
    if given.stage == "spec":
        print(show_spec(spec_of(Path(given.file))), end="")
    elif given.stage == "program":
        print(show_program(program_of(Path(given.file), given.layer)))
    else:
        print(dict(stages(planned(given)))[given.stage])


def do_emit(given: argparse.Namespace) -> None:
    """Writes the kernels."""
    text = source(planned(given))
    if given.output is None:
        print(text, end="")
    else:
        Path(given.output).write_text(text, encoding="utf-8")


def do_run(given: argparse.Namespace) -> None:
    """Runs a layer on random tensors."""
    program, sizes = program_of(Path(given.file), given.layer), sizes_of(given.sizes)
    problem = problem_from_sizes(program, **sizes)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = sample(problem, device)
    op = operator(program, Options(given.schedule, None, given.machine))
    begin = time.perf_counter()
    outputs = op(**tensors)
    for output in outputs if isinstance(outputs, tuple) else (outputs,):
        state = "finite" if bool(output.isfinite().all()) else "NOT FINITE"
        print(f"{program.name}: {tuple(output.shape)} {str(output.dtype).removeprefix('torch.')} on {device}, {state}")
    print(f"first call {time.perf_counter() - begin:.2f} s")


def do_doctor(given: argparse.Namespace) -> None:
    """Says what this machine has."""
    del given
    for name, value in findings():
        print(f"{name:10} {value}")


COMMANDS = {"check": do_check, "plan": do_plan, "show": do_show, "emit": do_emit, "run": do_run, "doctor": do_doctor}


# ---- arguments ------------------------------------------------------------------------------------------------------------------


def planned(given: argparse.Namespace) -> Plan:
    """The plan that the arguments ask for."""
    program = program_of(Path(given.file), given.layer)
    return plan(problem_from_sizes(program, **sizes_of(given.sizes)), given.machine, given.schedule)


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
    return {name: whole(f"heads of {name}", count) for name, _, count in pairs}


def whole(name: str, text: str) -> int:
    """A size."""
    if not text.isdecimal():
        raise ArgumentError(f"{name} must be a whole number, not {text!r}")
    return int(text)


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
