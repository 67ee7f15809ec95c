"""What every tensor of a contraction is fitted to, and how a value is brought there: axes by letter, heads, padding, layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import lcm

import torch
from torch import Tensor

from contractor.plan.problem import Problem
from contractor.program.core import OTHER, Core, Factor
from contractor.program.expression import Axes, Expression
from contractor.program.values import Value, grouped, lined_up
from contractor.schedules.parts.task import runs_from_future

Evaluate = Callable[[Expression], Value]
POSITIONS = ("T", "S")


@dataclass(frozen=True, slots=True)
class Frame:
    """A core, its problem, how values are found, and the dtype and device that the contraction is computed in."""

    core: Core
    problem: Problem
    evaluate: Evaluate
    dtype: torch.dtype
    device: torch.device

    @property
    def exact(self) -> torch.dtype:
        """The dtype of gates: float32, or float64 for float64 operands."""
        return torch.promote_types(self.dtype, torch.float32)

    @property
    def future(self) -> bool:
        """True if the kernel reads the mask with t and s exchanged."""
        return runs_from_future(self.core)

    def size(self, position: str) -> int:
        """How many positions a side of the contraction has: T targets and S sources, unless the two stand in each other's place."""
        return self.problem.sizes[OTHER[position] if self.core.exchanged else position]

    @property
    def length(self) -> int:
        """Positions of the kernel: the longer of T and S; the shorter is padded in front, so that the ends align."""
        return max(self.problem.sizes.T, self.problem.sizes.S)

    @property
    def heads(self) -> int:
        """The heads of the kernel before complex numbers double them: batch letters among them."""
        return self.problem.sizes.H * torch.Size(self.extents(self.core.batch)).numel()

    def extents(self, letters: Axes) -> tuple[int, ...]:
        """The sizes of some letters, positions as long as the kernel's."""
        axis_of = dict(self.core.axis_of)
        return tuple(self.length if letter in POSITIONS else self.problem.sizes[axis_of[letter]] for letter in letters)


def aligned(frame: Frame, value: Expression, letters: Axes, order: Axes) -> Tensor:
    """A value, its axes under other letters, as [batch, heads, *order], with size 1 where it has no such letter."""
    tensor = lined_up(Value(frame.evaluate(value).tensor, letters), order)
    return tensor if tensor.dim() else tensor.to(frame.device).reshape((1,) * (2 + len(order)))


def multiplied(left: Tensor, right: Tensor) -> Tensor:
    """A product of tensors whose head counts may differ."""
    heads = lcm(left.shape[1], right.shape[1])
    return grouped(left, heads) * grouped(right, heads)


def padded(tensor: Tensor, dimension: int, length: int, fill: float = 0.0) -> Tensor:
    """The tensor with `fill` in front along a position, up to the kernel's length; a dimension of size 1 that is broadcast stays."""
    missing = length - tensor.shape[dimension]
    if missing <= 0:
        return tensor
    shape = list(tensor.shape)
    shape[dimension] = missing
    return torch.cat((tensor.new_full(shape, fill), tensor), dimension)


def side(frame: Frame, factors: tuple[Factor, ...], position: str, features: Axes) -> Tensor:
    """The product of one side's operands over [batch, heads, position, *batch letters, *features]; ones where there is none."""
    order = (position, *frame.core.batch, *features)
    tensors = [aligned(frame, factor.value, factor.letters, order) for factor in factors]
    if not tensors:
        tensors = [torch.ones((1,) * (2 + len(order)), dtype=frame.dtype, device=frame.device)]
    result = reduce(multiplied, tensors)
    result = padded(result.expand(-1, -1, frame.size(position), *result.shape[3:]), 2, frame.length)
    return result.expand(*result.shape[:2], *frame.extents(order)).to(like(result, frame.dtype))


def like(tensor: Tensor, dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a tensor is computed: complex stays complex."""
    return torch.promote_types(dtype, torch.float32).to_complex() if tensor.is_complex() else dtype


def laid_out(frame: Frame, tensor: Tensor, batch: int, features: tuple[int, ...], whole: bool = True) -> Tensor:
    """[batch, heads, position, *batch letters, …] → [B, position, heads, *features]: batch letters join the heads.

    batch: how many batch letters there are; features: the sizes that the remaining dimensions are flattened to. whole: over all of the
    batch, even where the tensor is the same for all.
    """
    if batch:
        tensor = grouped(tensor, frame.problem.sizes.H)
        tensor = tensor.expand(tensor.shape[0], frame.problem.sizes.H, *tensor.shape[2:])
    rest = range(3, tensor.dim())
    tensor = tensor.permute(0, 2, 1, *rest)
    heads = tensor.shape[2 : 3 + batch]
    tensor = tensor.reshape(tensor.shape[0], tensor.shape[1], heads.numel(), *features)
    return tensor.expand(frame.problem.sizes.B, *tensor.shape[1:]) if whole else tensor
