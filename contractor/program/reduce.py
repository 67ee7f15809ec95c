"""Reductions, norms and softmax over named axes, on values.

Norms and softmax of half precision are computed in float32 and come back in the operand's dtype.
"""

from __future__ import annotations

from typing import assert_never

import torch
from torch import Tensor

from contractor.program.expression import Axes, Reduce
from contractor.program.values import Value, aligned, lined_up

L2_LEAST = 1e-12
RMS_LEAST = 1e-6
STEEPEST = 60.0  # an entry whose weight is 0 may lie above the row's maximum by so much before its gradient is cut off


def dims(value: Value, over: Axes) -> tuple[int, ...]:
    """The tensor's dimensions of some axes."""
    return tuple(2 + value.axes.index(axis) for axis in over)


def wide(tensor: Tensor) -> Tensor:
    """The tensor in float32 at least."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def reduced(node: Reduce, value: Value) -> Value:
    """`sum mean max` (the axes go), `softmax l2norm rmsnorm` (they stay). Over nothing: 0, NaN, −inf, and empty."""
    over = dims(value, node.over)
    tensor = value.tensor
    match node.function:
        case "sum":
            return without(value, tensor.sum(over), node.over)
        case "mean":
            return without(value, tensor.mean(over), node.over)
        case "max":
            return without(value, largest(tensor, over, keepdim=False), node.over)
        case "softmax":
            return Value(softmax(wide(tensor), over).to(tensor.dtype), value.axes)
        case "l2norm":
            return Value(l2norm(wide(tensor), over).to(tensor.dtype), value.axes)
        case "rmsnorm":
            return Value(rmsnorm(wide(tensor), over).to(tensor.dtype), value.axes)
        case _:
            assert_never(node.function)


def without(value: Value, tensor: Tensor, over: Axes) -> Value:
    """What is left of a value when some axes are gone."""
    return Value(tensor, tuple(axis for axis in value.axes if axis not in over))


def largest(tensor: Tensor, over: tuple[int, ...], keepdim: bool) -> Tensor:
    """The maximum over some dimensions, −inf over nothing."""
    if all(tensor.shape[dim] for dim in over):
        return tensor.amax(over, keepdim=keepdim)
    return torch.full_like(tensor.sum(over, keepdim=keepdim), float("-inf"))


def l2norm(x: Tensor, over: tuple[int, ...]) -> Tensor:
    """x / max(‖x‖₂, 1e-12)."""
    return x / torch.linalg.vector_norm(x, dim=over, keepdim=True).clamp_min(L2_LEAST)


def rmsnorm(x: Tensor, over: tuple[int, ...]) -> Tensor:
    """x · rsqrt(mean(x²) + 1e-6)."""
    return x * torch.rsqrt((x * x).mean(over, keepdim=True) + RMS_LEAST)


def softmax(x: Tensor, over: tuple[int, ...]) -> Tensor:
    """exp(x) / Σ exp(x) over some dimensions."""
    weights = torch.exp(x - largest(x.detach(), over, keepdim=True))
    return weights / weights.sum(over, keepdim=True)


def masked_softmax(node: Reduce, value: Value, mask: Value, support: Value | None = None) -> Value:
    """`softmax(x over S under L)`: L·exp(x) / Σ L·exp(x); a row with nothing in it is 0, with gradient 0.

    support: where L may be non-zero by its structure (bool, default L ≠ 0); what lies outside gives no gradient to L. Computed
    under the row's maximum over the entries with L ≠ 0, in float32 at least; the result has the operand's dtype.
    """
    inside = Value(mask.tensor != 0, mask.axes) if support is None else support
    x, weight, allowed = aligned([value, mask, inside], node.axes)
    over = tuple(2 + node.axes.index(axis) for axis in node.over)
    x, weight, allowed = torch.broadcast_tensors(wide(x), wide(weight), allowed)
    live = allowed & (weight != 0)
    highest = largest(torch.where(live, x.detach(), float("-inf")), over, keepdim=True)
    shifted = x - torch.where(torch.isfinite(highest), highest, 0)
    exponent = torch.where(live, shifted, torch.where(allowed, shifted.clamp(max=STEEPEST), float("-inf")))
    entries = weight * torch.exp(exponent)
    total = entries.sum(over, keepdim=True)
    filled = total > 0
    result = torch.where(filled, entries / torch.where(filled, total, 1), 0)
    return Value(result.to(value.tensor.dtype), node.axes)


def back_in_order(value: Value, axes: Axes) -> Value:
    """The value with its axes in the order given."""
    return Value(lined_up(value, axes), axes)
