"""The whole way from text to something to call; the only module that knows every stage.

text ─parse→ Spec ─check→ Program ─sizes→ Problem ─choose→ Plan ─lower→ Kernels ─print→ Source ─build→ Operator
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from contractor.errors import ArgumentError
from contractor.plan.choose import choose, chosen
from contractor.plan.contraction import order
from contractor.plan.machine import Machine
from contractor.plan.machine import machine as machine_of
from contractor.plan.plan import Plan
from contractor.plan.problem import Problem
from contractor.plan.show import printed, show_text
from contractor.plan.sizes import problem_from_shapes, problem_from_sizes
from contractor.plan.spread import spreads
from contractor.program.check import check
from contractor.program.expression import Contract
from contractor.program.mixing import Core
from contractor.program.program import Program
from contractor.program.show import show as show_program
from contractor.run.execute import Backend, Execution
from contractor.run.here import backend_of, machine_here, wide
from contractor.run.layer import Prepared, prepare
from contractor.run.mix import Evaluator
from contractor.run.operator import Operator
from contractor.run.source import file_text, kernels, spec_lines
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import Priced
from contractor.text.parse import parse, read
from contractor.text.spec import Spec
from contractor.tile.show import show as show_kernel

PRICED = tuple(Priced(schedule) for schedule in SCHEDULES.values())


def spec_of(source: str | os.PathLike[str]) -> Spec:
    """The spec of a file (a path, or a name that ends in .ctr) or of a text. Raises ArgumentError for a file that cannot be read."""
    if isinstance(source, str) and ("\n" in source or not source.endswith((".ctr", "/"))):
        return parse(source)
    try:
        return read(source)
    except OSError as error:
        raise ArgumentError(f"cannot read {os.fspath(source)}: {error.strerror or error}") from error


def programs_of(source: str | os.PathLike[str]) -> tuple[Program, ...]:
    """Every layer of a spec, understood. Raises SpecError with all mistakes of the first stage that has any."""
    return check(spec_of(source))


def program_of(source: str | os.PathLike[str], layer: str | None = None) -> Program:
    """One layer of a spec: the only one, or the one named. Raises ArgumentError if that is not clear."""
    found = programs_of(source)
    names = ", ".join(program.name for program in found)
    if layer is None and len(found) > 1:
        raise ArgumentError(f"the spec holds {len(found)} layers ({names}): say which, layer=…")
    for program in found:
        if layer in (None, program.name):
            return program
    raise ArgumentError(f"the spec has no layer {layer!r}; it has {names}")


@dataclass(frozen=True, slots=True)
class Options:
    """What a person may fix: the order of evaluation, the backend, the machine that is planned for (None: chosen, the one at hand)."""

    schedule: str | None = None
    backend: Backend | None = None
    machine: str | None = None


def compile(
    source: str | os.PathLike[str],
    *,
    layer: str | None = None,
    schedule: str | None = None,
    backend: Backend | None = None,
    machine: str | None = None,
) -> Operator:
    """A layer, ready to be called.

    source: a path to a .ctr file, or the text itself; layer: which one, if it holds several. schedule: evaluate mixings in this order
    ("quadratic", "recurrent", "chunked", "entrywise") instead of the cheapest. backend: "triton" or "torch" instead of what the
    tensors' device has. machine: plan for it ("h200", "a100", …) instead of the machine at hand.
    Raises SpecError for a spec that is wrong, ArgumentError for options that are.
    """
    if schedule is not None and schedule not in SCHEDULES:
        raise ArgumentError(f"unknown schedule {schedule!r}; there are {', '.join(SCHEDULES)}")
    if backend not in (None, "triton", "torch"):
        raise ArgumentError(f'unknown backend {backend!r}; there are "triton" and "torch"')
    if machine is not None:
        machine_of(machine)
    return operator(program_of(source, layer), Options(schedule, backend, machine))


@dataclass(frozen=True, slots=True)
class Compiled:
    """The arrows that an operator follows, under the options it was compiled with."""

    options: Options

    def pose(self, program: Program, shapes: dict[str, tuple[int, ...]], dtype: str, **beside: Any) -> Problem:
        """Operands' shapes and dtype, and what is beside them → the problem."""
        return problem_from_shapes(program, shapes, dtype, **beside)

    def size(self, program: Program, **sizes: Any) -> Problem:
        """Sizes by letter → the problem."""
        return problem_from_sizes(program, **sizes)

    def plan(self, problem: Problem, machine: str | None) -> Plan:
        """The plan, on the machine named here, the one named when compiling, or the one at hand."""
        return plan(problem, machine or self.options.machine, self.options.schedule)

    def prepare(self, problem: Problem, device: torch.device) -> Prepared:
        """What calls at these sizes share."""
        return prepared(problem, device, self.options)

    def source(self, plan: Plan) -> str:
        """The kernels as a file that runs alone."""
        return source(plan)

    def explain(self, plan: Plan) -> str:
        """Every stage as text."""
        return "\n\n".join(f"── {name} ──\n\n{text}" for name, text in stages(plan))


def operator(program: Program, options: Options) -> Operator:
    """The operator of a program."""
    return Operator(program, Compiled(options))


@lru_cache(maxsize=1024)
def plan(problem: Problem, machine: str | None = None, schedule: str | None = None) -> Plan:
    """The plan of a problem: needs no tensors and no GPU."""
    return printed(choose(problem, machine_here() if machine is None else machine_of(machine), PRICED, schedule))


# ---- running --------------------------------------------------------------------------------------------------------------------


def prepared(problem: Problem, device: torch.device, options: Options) -> Prepared:
    """What all calls of a layer at these sizes share: its plan on the device, and how each of its cores is evaluated."""
    backend = options.backend or backend_of(device, problem.dtype)
    machine = options.machine or ("cpu" if backend == "torch" else None)
    found = plan(problem, machine, options.schedule)
    choices = {choice.name: choice for choice in found.choices}

    def evaluator(core: Core) -> Evaluator:
        return Execution(chosen(choices[core.name]).schedule, found.machine, backend)

    def path(contract: Contract) -> tuple[tuple[int, ...], ...]:
        return path_of(contract, problem, found.machine)

    return prepare(problem, evaluator, path, generated=backend == "triton")


@lru_cache(maxsize=1024)
def path_of(contract: Contract, problem: Problem, machine: Machine) -> tuple[tuple[int, ...], ...]:
    """The pairwise order of an ordinary contraction."""
    return order("", contract, problem, machine, spreads(problem)).path


# ---- printing -------------------------------------------------------------------------------------------------------------------


def stages(found: Plan) -> Iterator[tuple[str, str]]:
    """Every stage of a planned layer as text."""
    yield "spec", "\n".join(spec_lines(found.problem.program))
    yield "program", show_program(found.problem.program)
    yield "plan", show_text(found)
    yield "kernels", "\n\n".join(show_kernel(kernel) for kernel in kernels(printable(found)))
    yield "source", source(found)


def source(found: Plan) -> str:
    """The plan's kernels as a file that imports torch (and Triton, for a GPU) alone. Raises RefusedError if there is no such order."""
    return file_text(printable(found))


def printable(found: Plan) -> Plan:
    """The plan whose kernels are printed: float64 runs as torch text everywhere, so as it is planned for a CPU."""
    problem = found.problem
    return plan(problem, "cpu") if found.machine.kind == "gpu" and wide(problem.dtype) else found
