"""Transitions as a real log magnitude, which kernels sum, and a unit phase, which moves into the operands.

The product of unit factors over s < j ≤ t is prefix[t] / prefix[s]: prefix[t] stands with the query (or the result), its conjugate at s
with the key (or the value). So a kernel only ever sees real gates that are logs of magnitudes.
"""

from __future__ import annotations

import torch
from torch import Tensor


def log_magnitude(value: Tensor, log: bool) -> Tensor:
    """The natural log of a transition's magnitude, real."""
    if log:
        return value.real if value.is_complex() else value
    return log_of(value.abs())


def log_of(magnitude: Tensor, positive: bool = False) -> Tensor:
    """The natural log of a magnitude; −inf where it is 0 (with no gradient there). positive: if a gradient is wanted, none is 0."""
    if positive or not magnitude.requires_grad:
        return magnitude.log()
    zero = magnitude == 0
    return torch.where(zero, float("-inf"), torch.where(zero, 1.0, magnitude).log())


def magnitude(value: Tensor) -> Tensor:
    """The magnitude of a transition; where a real one is 0 it counts as positive, so that it has a slope there."""
    return value.abs() if value.is_complex() else value * torch.where(value.detach() < 0, -1.0, 1.0).to(value.dtype)


def prefix(value: Tensor, log: bool, dimension: int | None, positions: Tensor) -> Tensor:
    """The unit factors multiplied up to each position, along `dimension` (None: a fixed transition; a leading one is added).

    Real values give ±1; sums of angles are taken in float64.
    """
    if not value.is_complex():
        unit = torch.where(value.detach() < 0, -1.0, 1.0).to(value.dtype)
        if dimension is None:
            odd = (positions % 2 == 1).reshape(-1, *(1 for _ in value.shape))
            return torch.where(odd, unit, torch.ones_like(unit))
        return unit.cumprod(dimension)
    angle = (value.imag if log else torch.where(value == 0, torch.ones_like(value), value).angle()).double()
    turned = positions.double().reshape(-1, *(1 for _ in value.shape)) * angle if dimension is None else angle.cumsum(dimension)
    return torch.polar(torch.ones_like(turned), turned).to(value.dtype)
