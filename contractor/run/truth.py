"""What a layer's numbers are held to before it is timed: float64 on the tensors that are timed.

A small layer is evaluated by definition, a larger one by the torch text of whatever order is cheapest; where that too would take too long
or too much memory, the layer is held to it on a shorter sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from contractor.errors import ArgumentError
from contractor.plan.choose import chosen
from contractor.plan.plan import Plan
from contractor.plan.problem import Problem
from contractor.plan.sizes import problem_from_sizes
from contractor.program.mixing import mixings
from contractor.program.reference import reference
from contractor.run.operator import Operator
from contractor.run.sample import call_shape, sample
from contractor.run.trial import listed, small

Call = Callable[..., Any]
ENTRIES = 1 << 28  # of a mask that is formed entry by entry, and of all operands together
FLOPS = {"cpu": 1 << 34, "cuda": 1 << 42}  # what float64 may cost, forward


@dataclass(frozen=True, slots=True)
class Result:
    """What a call gave: its outputs, and the gradient of every operand that has one (None: it got none)."""

    outputs: tuple[Tensor, ...]
    gradients: dict[str, Tensor | None]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a call is made on: operands that want gradients where they may, and what its outputs' gradients are."""

    operands: dict[str, Tensor]
    weights: tuple[Tensor, ...]

    @property
    def wanted(self) -> dict[str, Tensor]:
        """The operands that want a gradient."""
        return {name: one for name, one in self.operands.items() if one.requires_grad}


@dataclass(frozen=True, slots=True)
class Truth:
    """Right numbers, what they were made from, and how. whole: that is the problem itself, not a shorter one."""

    inputs: Inputs
    result: Result
    says: str
    whole: bool = True


def operands_of(problem: Problem, device: str, seed: int) -> dict[str, Tensor]:
    """Random operands that want gradients."""
    drawn = sample(problem, device, seed)
    return {name: one.requires_grad_(one.is_floating_point() or one.is_complex()) for name, one in drawn.items()}


def inputs(problem: Problem, call: Call, device: str, seed: int) -> Inputs:
    """Random operands, and weights for the outputs of one call on them."""
    operands = operands_of(problem, device, seed)
    return Inputs(operands, weights_like(outputs_of(call, operands), seed))


def outputs_of(call: Call, operands: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """One call forward."""
    with torch.no_grad():
        return listed(call(**operands))


def weights_like(outputs: tuple[Tensor, ...], seed: int) -> tuple[Tensor, ...]:
    """Random gradients of outputs."""
    generator = torch.Generator(outputs[0].device).manual_seed(seed + 1)
    parts = [torch.randn(one.shape, generator=generator, device=one.device) for one in outputs]
    return tuple(part.to(one.dtype) for part, one in zip(parts, outputs, strict=True))


def result(call: Call, given: Inputs) -> Result:
    """One call, forward and backward."""
    outputs = listed(call(**given.operands))
    kept = tuple(one.detach() for one in outputs)
    pairs = [(one, weight) for one, weight in zip(outputs, given.weights, strict=True) if one.requires_grad]
    if not pairs or not given.wanted:
        return Result(kept, dict.fromkeys(given.wanted))
    values, weights = [one for one, _ in pairs], [weight for _, weight in pairs]
    found = torch.autograd.grad(values, list(given.wanted.values()), weights, allow_unused=True)
    return Result(kept, dict(zip(given.wanted, found, strict=True)))


def truth(problem: Problem, exact: Operator, call: Call, given: Inputs, device: str, seed: int) -> Truth | None:
    """The right numbers of a problem, or of a shorter one; None if the layer cannot be made shorter."""
    if small(problem):
        return Truth(given, result(partial(defined, problem), widened(given, "cpu")), "float64, by definition")
    posed = shortened(problem, exact, device)
    if posed is None:
        return None
    if posed.sizes == problem.sizes:
        return Truth(given, result(exact, widened(given, device)), "float64")
    shorter = inputs(posed, call, device, seed)
    return Truth(shorter, result(exact, widened(shorter, device)), f"float64 at T={posed.sizes.T}", whole=False)


def defined(problem: Problem, **operands: Tensor) -> tuple[Tensor, ...]:
    """A layer by definition."""
    return reference(problem.program, operands)


def shortened(problem: Problem, exact: Operator, device: str) -> Problem | None:
    """The problem itself, or with T and S halved as often as float64 needs it."""
    sizes: dict[str, Any] = problem.sizes.mapping
    while True:
        try:
            posed = problem_from_sizes(problem.program, dtype=problem.dtype, heads=dict(problem.heads), **sizes)
        except ArgumentError:  # an operand's own size says how long the sequence is
            return None
        if affordable(replace(posed, dtype="float64"), exact, device):
            return posed
        if sizes["T"] <= 1 or sizes["S"] <= 1:
            return None
        sizes = {**sizes, "T": sizes["T"] // 2, "S": sizes["S"] // 2}


def affordable(problem: Problem, exact: Operator, device: str) -> bool:
    """True if float64 takes neither too long nor too much memory.

    Without matrices and tables nothing of T · S entries is kept, whatever the order: then it is the arithmetic that counts.
    """
    sizes, program = problem.sizes, problem.program
    cores = [core for mixing in mixings(program) for core in mixing.terms]
    letters = {axis for core in cores if core.matrix for axis in (*core.inner, *core.outer) if axis in sizes.mapping}
    states = sizes.B * sizes.T * sizes.H * math.prod(sizes[axis] for axis in letters) if letters else 0
    operands = sum(math.prod(call_shape(operand, problem)) for operand in program.operands)
    narrow = not any(core.matrix or core.tables for core in cores)
    masks = 0 if narrow else sizes.B * sizes.H * sizes.T * sizes.S
    return max(states, operands, masks) <= ENTRIES and flops_of(exact.steps.plan(problem, "cpu")) <= FLOPS[device]


def flops_of(plan: Plan) -> int:
    """The forward arithmetic of a plan. Raises RefusedError where nothing was chosen."""
    return sum(chosen(choice).cost.flops for choice in plan.choices) + sum(each.flops for each in plan.contractions)


def widened(given: Inputs, device: str) -> Inputs:
    """The same values in float64 on a device."""
    operands = {name: wide(one).to(device).requires_grad_(one.requires_grad) for name, one in given.operands.items()}
    return Inputs(operands, tuple(wide(one).to(device) for one in given.weights))


def wide(tensor: Tensor) -> Tensor:
    """A tensor in double precision; integers as they are."""
    tensor = tensor.detach()
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor.double() if tensor.is_floating_point() else tensor


# ---- comparing ------------------------------------------------------------------------------------------------------------------


def errors(found: Result, right: Result) -> tuple[float, dict[str, float]]:
    """The worst ‖it − right‖ / ‖right‖ of the outputs, and that of each gradient that there is."""
    pairs = zip(found.outputs, right.outputs, strict=True)
    sloped = {name: error(slope, right.gradients.get(name)) for name, slope in found.gradients.items() if slope is not None}
    return worst(error(one, other) for one, other in pairs), sloped


def worst(found: Iterable[float]) -> float:
    """The largest; NaN if one is."""
    values = list(found)
    return math.nan if any(math.isnan(value) for value in values) else max(values, default=0.0)


def error(found: Tensor, right: Tensor | None) -> float:
    """‖found − right‖ / ‖right‖, where right is not there ‖found‖; infinity where shapes differ."""
    exact = wide(found)
    if right is None:
        return exact.norm().item()
    if found.shape != right.shape:
        return math.inf
    wanted = wide(right).to(found.device)
    return (exact - wanted).norm().item() / (wanted.norm().item() or 1.0)


def without(found: Result, right: Result) -> tuple[str, ...]:
    """The operands that got no gradient and should have."""
    given: Mapping[str, Tensor | None] = right.gradients
    return tuple(name for name, slope in found.gradients.items() if slope is None and given.get(name) is not None)
