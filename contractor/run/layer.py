"""One call of a layer: its values by name, its contractions by their plan, its outputs.

Expressions run as torch; each mixing is brought to normal form and evaluated in the order that the plan chose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from contractor.plan.problem import Problem
from contractor.program.dense import Grid, dense_mask
from contractor.program.evaluate import Reading, evaluate
from contractor.program.expression import Contract, Expression, Number, Reduce
from contractor.program.mixing import Core, Mixing, contractions, mixings, places
from contractor.program.program import Definition, Program
from contractor.program.reduce import masked_softmax
from contractor.program.values import Value, broadcast, from_call, to_call
from contractor.run.contraction import Path, pairwise
from contractor.run.frame import Frame
from contractor.run.mix import Evaluator, Mix
from contractor.run.normal import normal
from contractor.schedules.parts.form import Task
from contractor.schedules.parts.task import task

Choose = Callable[[Core], Evaluator]
Order = Callable[[Contract], Path]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What every call at the same sizes shares: each mixing and each order of an ordinary contraction by the identity of its node, each
    core's task and how it is evaluated by the core's name."""

    problem: Problem
    mixings: dict[int, Mixing]
    paths: dict[int, Path]
    tasks: dict[str, Task]
    evaluators: dict[str, Evaluator]


def prepare(problem: Problem, choose: Choose, order: Order) -> Prepared:
    """Prepares a problem. Raises RefusedError if a core has no order of evaluation."""
    found = mixings(problem.program)
    known = {mixing.contract: mixing for mixing in found}
    cores = [core for mixing in found for core in mixing.terms]
    written = [expression for _, expression in places(problem.program)] + [value for core in cores for value in core.expressions]
    nodes = [node for expression in written for node in contractions(expression)]
    return Prepared(
        problem,
        {id(node): known[node] for node in nodes if node in known},
        {id(node): order(node) for node in nodes if node not in known},
        {core.name: task(core, problem) for core in cores},
        {core.name: choose(core) for core in cores},
    )


@dataclass(frozen=True, slots=True)
class Call:
    """One call: what was prepared for its sizes, its operands as values, the dtype and device of its contractions. `found` holds the
    definitions' values as they are asked for."""

    prepared: Prepared
    operands: dict[str, Value]
    dtype: torch.dtype
    device: torch.device
    found: dict[str, Value] = field(default_factory=dict)

    @property
    def problem(self) -> Problem:
        """The layer at the call's sizes."""
        return self.prepared.problem

    @property
    def program(self) -> Program:
        """The layer."""
        return self.problem.program

    @property
    def reading(self) -> Reading:
        """How the layer's expressions are read in this call."""
        real = torch.promote_types(self.dtype, torch.float32)
        sizes = self.problem.sizes.mapping
        return Reading(self.look, self.contract, self.softmax, sizes, self.positions, real, self.device)

    def look(self, name: str) -> Value:
        """An operand or a definition by name."""
        if name in self.operands:
            return self.operands[name]
        if name not in self.found:
            definition = next(one for one in self.program.definitions if one.name == name)
            assert isinstance(definition, Definition)
            value = evaluate(definition.value, self.reading)
            self.found[name] = broadcast(value, definition.axes, self.problem.sizes.mapping, self.device)
        return self.found[name]

    def positions(self, axis: Literal["T", "S"]) -> Tensor:
        """`pos(S)` = s and `pos(T)` = t + S − T."""
        sizes = self.problem.sizes
        first = sizes.S - sizes.T if axis == "T" else 0
        return torch.arange(first, sizes.S, device=self.device)

    def contract(self, contract: Contract, operands: tuple[Value, ...]) -> Value:
        """A mixing by the plan, an ordinary contraction pair by pair."""
        mixing = self.prepared.mixings.get(id(contract))
        if mixing is None:
            return pairwise(contract, operands, self.prepared.paths[id(contract)])
        first, *rest = (self.mixed(core) for core in mixing.terms)
        total = first.tensor
        for value in rest:
            total = total + value.tensor
        return broadcast(Value(total, first.axes), contract.axes, self.problem.sizes.mapping, self.device)

    def mixed(self, core: Core) -> Value:
        """One core of a mixing."""
        frame = Frame(core, self.problem, lambda expression: evaluate(expression, self.reading), self.dtype, self.device)
        form = normal(frame, self.prepared.tasks[core.name])
        names = tuple(form.tensors)
        result = Mix.apply(form.task, self.prepared.evaluators[core.name], names, form.zeros, *form.tensors.values())
        return form.restore(result)

    def softmax(self, node: Reduce, value: Value) -> Value:
        """A softmax under a mask, dense."""
        assert node.under is not None
        sizes = self.problem.sizes
        return masked_softmax(node, value, dense_mask(node.under, Grid(sizes.T, sizes.S, self.exact)))

    def exact(self, expression: Expression) -> Value:
        """An argument of a mask that is formed entry by entry: in float64, integers in 64 bits."""
        value = evaluate(expression, self.reading)
        kinds = {Number.INT: torch.int64, Number.REAL: torch.float64, Number.COMPLEX: torch.complex128}
        return Value(value.tensor.to(kinds[expression.number]), value.axes)


def called(prepared: Prepared, tensors: dict[str, Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The outputs of a layer for tensors in call layout."""
    program, sizes = prepared.problem.program, prepared.problem.sizes
    operands = {operand.name: from_call(operand, tensors[operand.name]) for operand in program.operands}
    device = next(iter(tensors.values())).device
    call = Call(prepared, operands, dtype, device)
    return tuple(to_call(evaluate(output, call.reading), sizes.B, sizes.H, device) for output in program.outputs)
