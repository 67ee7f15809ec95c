"""Random operands for a problem: values that its promises allow, in call layout."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from contractor.plan.problem import Problem
from contractor.program.expression import POSITIONS, Number
from contractor.program.program import Operand


def sample(problem: Problem, device: str = "cpu", seed: int = 0) -> dict[str, Tensor]:
    """Operands by name: standard normal, or uniform inside a promised range; inputs in the problem's dtype, params in float32 at least."""
    generator = torch.Generator().manual_seed(seed)
    return {operand.name: one(operand, problem, generator).to(device) for operand in problem.program.operands}


def one(operand: Operand, problem: Problem, generator: torch.Generator) -> Tensor:
    """One operand."""
    shape = call_shape(operand, problem)
    if operand.number is Number.INT:
        return torch.randint(1, 4, shape, generator=generator)
    dtype: torch.dtype = getattr(torch, problem.dtype)
    dtype = torch.promote_types(dtype, torch.float32) if operand.role == "param" else dtype
    if operand.number is Number.COMPLEX:
        dtype = torch.promote_types(dtype, torch.float32).to_complex()
        return torch.randn(shape, generator=generator, dtype=dtype) / 2
    low, high = max(operand.low, -4.0), min(operand.high, 4.0)
    if math.isinf(operand.low) and math.isinf(operand.high):
        return torch.randn(shape, generator=generator).to(dtype)
    return (low + (high - low) * torch.rand(shape, generator=generator)).to(dtype)


def call_shape(operand: Operand, problem: Problem) -> tuple[int, ...]:
    """The operand's shape in call layout."""
    sizes, heads = problem.sizes, problem.heads_of(operand.name)
    lengths = tuple(sizes[axis] for axis in operand.axes)
    if operand.role == "param":
        return (heads, *lengths)
    if len([axis for axis in operand.axes if axis in POSITIONS]) == 1:
        return (sizes.B, lengths[0], heads, *lengths[1:])
    return (sizes.B, heads, *lengths)
