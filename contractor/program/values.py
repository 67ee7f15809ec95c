"""Values: tensors with named axes and head groups, and how they lie at the call.

A value is [batch, head, *axes]; batch and head may be of size 1. A number written in the spec, or a size, is a tensor without
dimensions. Everything here is a view of what it is given, but for head groups that are spread out and numbers that are broadcast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import lcm

import torch
from torch import Tensor

from contractor.errors import ArgumentError
from contractor.program.expression import POSITIONS, Axes
from contractor.program.program import Operand


@dataclass(frozen=True, slots=True)
class Value:
    """`tensor` [batch, head, *axes], or without dimensions for a plain number."""

    tensor: Tensor
    axes: Axes

    @property
    def heads(self) -> int:
        """The head count, 1 for a plain number."""
        return self.tensor.shape[1] if self.tensor.dim() else 1


def joint(values: Sequence[Value]) -> Axes:
    """All axes of several values: T, S, then features by first appearance."""
    return united(tuple(value.axes for value in values))


@lru_cache(maxsize=4096)
def united(several: tuple[Axes, ...]) -> Axes:
    """The axes of `joint`."""
    every = dict.fromkeys(axis for axes in several for axis in axes)
    return tuple(axis for axis in POSITIONS if axis in every) + tuple(axis for axis in every if axis not in POSITIONS)


def lined_up(value: Value, axes: Axes) -> Tensor:
    """The tensor with its axes in the order given, of size 1 where it has none; a plain number stays one."""
    if value.axes == axes or not value.tensor.dim():
        return value.tensor
    order, new = arrangement(value.axes, axes)
    tensor = value.tensor.permute(order) if order else value.tensor
    for dimension in new:
        tensor = tensor.unsqueeze(dimension)
    return tensor


@lru_cache(maxsize=4096)
def arrangement(own: Axes, axes: Axes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How a value's dimensions come to stand as `axes` do: their order (empty: as they are), then those of size 1 that are put in."""
    present = [axis for axis in axes if axis in own]
    assert len(present) == len(own), f"the axes {own} do not fit into {axes}"
    order = (0, 1, *(2 + own.index(axis) for axis in present))
    new = tuple(2 + index for index, axis in enumerate(axes) if axis not in own)
    return order if order != tuple(range(len(order))) else (), new


def grouped(tensor: Tensor, heads: int) -> Tensor:
    """A tensor [batch, count, …] as [batch, heads, …]: head h is head h // (heads / count). One head stays one (it broadcasts)."""
    if not tensor.dim() or tensor.shape[1] in (1, heads):
        return tensor
    count = tensor.shape[1]
    if count == 0 or heads % count:
        raise ArgumentError(f"{count} heads do not divide {heads} heads")
    return tensor.repeat_interleave(heads // count, 1)


def aligned(values: Sequence[Value], axes: Axes) -> list[Tensor]:
    """The values as tensors that broadcast against each other over the axes, their heads matched."""
    tensors = [lined_up(value, axes) for value in values]
    counts = {tensor.shape[1] for tensor in tensors if tensor.dim()}
    return tensors if len(counts) < 2 else [grouped(tensor, lcm(*counts)) for tensor in tensors]


def broadcast(value: Value, axes: Axes, sizes: Mapping[str, int], device: torch.device | str = "cpu") -> Value:
    """The value over all of the axes: those it lacks are broadcast to their sizes (a view)."""
    if value.axes == axes:
        return value
    tensor = lined_up(value, axes)
    if set(axes) == set(value.axes):
        return Value(tensor, axes)
    if not tensor.dim():
        tensor = tensor.to(device).reshape(1, 1, *(1 for _ in axes))
    shape = (size if axis in value.axes else sizes[axis] for axis, size in zip(axes, tensor.shape[2:], strict=True))
    return Value(tensor.expand(*tensor.shape[:2], *shape), axes)


# ---- at the call ----------------------------------------------------------------------------------------------------------------


def from_call(operand: Operand, tensor: Tensor) -> Value:
    """An operand's tensor as a value (a view).

    Input: one position [batch, position, head, features …]; two or none [batch, head, axes …]. Param: [head, axes …] or [axes …].
    Raises ArgumentError if the number of dimensions does not fit.
    """
    wanted = 2 + len(operand.axes)
    if operand.role == "param" and tensor.dim() in (wanted - 1, wanted - 2):
        return Value(tensor.reshape(1, *((1,) * (wanted - 1 - tensor.dim())), *tensor.shape), operand.axes)
    if operand.role == "param" or tensor.dim() != wanted:
        raise ArgumentError(f"{operand.name} is {layout(operand)}; a tensor with {tensor.dim()} dimensions was given")
    return Value(tensor.transpose(1, 2) if ("T" in operand.axes) != ("S" in operand.axes) else tensor, operand.axes)


def layout(operand: Operand) -> str:
    """How an operand lies at the call, in words: [batch, S, head, N]."""
    positions = [axis for axis in operand.axes if axis in POSITIONS]
    features = [axis for axis in operand.axes if axis not in POSITIONS]
    if operand.role == "param":
        return f"[{', '.join(['head', *features])}]"
    around = [positions[0], "head"] if len(positions) == 1 else ["head", *positions]
    return f"[{', '.join(['batch', *around, *features])}]"


def to_call(value: Value, batch: int, heads: int, device: torch.device | str = "cpu") -> Tensor:
    """A value as it is returned: [batch, position, head, features …]; both positions or none: [batch, head, T, S, …]."""
    axes = joint([value])
    tensor = broadcast(value, axes, {}, device).tensor
    if not tensor.dim():
        tensor = tensor.to(device).reshape(1, 1)
    if tensor.shape[:2] != (batch, heads):
        spread = grouped(tensor, heads)
        tensor = spread.expand(batch, heads, *spread.shape[2:])
    return tensor.transpose(1, 2) if ("T" in axes) != ("S" in axes) else tensor
