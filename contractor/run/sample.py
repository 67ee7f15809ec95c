"""Random operands for a problem, in call layout: values that its promises allow and under which its decays do decay."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from contractor.plan.problem import Problem
from contractor.program.expression import POSITIONS, Apply, Expression, Number, Variable, children
from contractor.program.masks.mask import Dense, Fade, RankOne
from contractor.program.mixing import mixings, places
from contractor.program.program import Operand, Program

MOST = 4.0  # a promise may be wider than what is worth trying
LOG, FACTOR, MATRIX, STEP = "log", "factor", "matrix", "step size"


def sample(problem: Problem, device: str = "cpu", seed: int = 0) -> dict[str, Tensor]:
    """Operands by name: standard normal, or uniform inside a promised range; inputs in the problem's dtype, params in float32 at least.

    An operand that is itself a gate (its log, a factor, a matrix) is drawn so that nothing grows along the sequence.
    """
    generator = torch.Generator().manual_seed(seed)
    uses = {**dict(discretised(problem.program)), **dict(gates(problem.program))}
    return {one.name: drawn(one, problem, uses.get(one.name, ""), generator).to(device) for one in problem.program.operands}


def drawn(operand: Operand, problem: Problem, use: str, generator: torch.Generator) -> Tensor:
    """One operand."""
    shape = call_shape(operand, problem)
    if operand.number is Number.INT:
        return torch.randint(1, 4, shape, generator=generator)
    dtype: torch.dtype = getattr(torch, problem.dtype)
    dtype = torch.promote_types(dtype, torch.float32) if operand.role == "param" else dtype
    if operand.number is Number.COMPLEX:
        return as_complex(torch.randn(*shape, 2, generator=generator, dtype=torch.promote_types(dtype, torch.float32)), use)
    low, high = max(operand.low, -MOST), min(operand.high, MOST)
    if use == FACTOR and low >= 0:  # near 0 hardly anything is carried on, and a gradient is a difference of what is
        low = (low + high) / 2
    if not (math.isinf(operand.low) and math.isinf(operand.high)):
        return (low + (high - low) * torch.rand(shape, generator=generator)).to(dtype)
    return fading(torch.randn(shape, generator=generator), use).to(dtype)


def as_complex(parts: Tensor, use: str) -> Tensor:
    """[…, 2] as complex numbers, in the left half plane; a factor inside the unit circle."""
    value = torch.complex(-parts[..., 0].abs() / 2, parts[..., 1] / 2)
    return value / (1 + value.abs()) if use == FACTOR else value


def fading(value: Tensor, use: str) -> Tensor:
    """Normal values made into logs below 0, factors or matrices below 1."""
    if use == LOG:
        return -value.abs() / 4
    if use == FACTOR:
        return value.sigmoid()
    if use == STEP:
        return value.abs() / 8 + 0.01
    return value / (2 * math.sqrt(max(1, value.shape[-1]))) if use == MATRIX else value


def gates(program: Program) -> Iterator[tuple[str, str]]:
    """The operands that are read as they are by the transitions of a mask, and as what."""
    steps = (step for mixing in mixings(program) for core in mixing.terms for step in core.term.law.steps)
    for step in steps:
        match step:
            case Fade():
                yield from named(step.value, LOG if step.log else FACTOR)
            case Dense():
                yield from named(step.value, MATRIX)
            case RankOne():
                yield from named(step.beta, FACTOR)
                yield from named(step.key, MATRIX)
                yield from named(step.erase, MATRIX)
                yield from named(step.log, LOG) if step.log is not None else ()


def discretised(program: Program) -> Iterator[tuple[str, str]]:
    """The operands that a discretisation reads: rates, which fade, and step sizes, which are positive."""
    for _, whole in places(program):
        for node in nodes(whole):
            if isinstance(node, Apply) and node.function.startswith(("zoh", "bilinear")):
                yield from named(node.arguments[0], MATRIX if "matrix" in node.function else LOG)
                yield from named(node.arguments[-1], STEP)


def nodes(value: Expression) -> Iterator[Expression]:
    """An expression and everything in it."""
    yield value
    for child in children(value):
        yield from nodes(child)


def named(value: Expression, use: str) -> Iterator[tuple[str, str]]:
    """The operand, where the value is one."""
    if isinstance(value, Variable):
        yield value.name, use


def call_shape(operand: Operand, problem: Problem) -> tuple[int, ...]:
    """The operand's shape in call layout."""
    sizes, heads = problem.sizes, problem.heads_of(operand.name)
    lengths = tuple(sizes[axis] for axis in operand.axes)
    if operand.role == "param":
        return (heads, *lengths)
    if len([axis for axis in operand.axes if axis in POSITIONS]) == 1:
        return (sizes.B, lengths[0], heads, *lengths[1:])
    return (sizes.B, heads, *lengths)
