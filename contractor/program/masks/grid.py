"""The grid of targets and sources on which entries are written down: lags and arguments over [batch, head, T, S, *extra]."""

from __future__ import annotations

import torch
from torch import Tensor

from contractor.program.masks.mask import Entries


def spread(tensor: Tensor, given: Entries) -> Tensor:
    """A tensor over [T, S] (either of size 1) as [1, 1, T, S, *1 for each extra axis]."""
    return tensor.reshape(1, 1, *tensor.shape, *(1 for _ in given.extra))


def targets(given: Entries) -> Tensor:
    """t at every entry, in the sources' coordinates."""
    return spread(given.t[:, None], given)


def sources(given: Entries) -> Tensor:
    """s at every entry."""
    return spread(given.s[None, :], given)


def lags(given: Entries) -> Tensor:
    """t − s at every entry."""
    return targets(given) - sources(given)


def whole(given: Entries, name: str) -> Tensor:
    """An argument without positions over [batch, head, 1, 1, *extra]."""
    return given.arguments[name].unsqueeze(2).unsqueeze(2)


def indicator(condition: Tensor) -> Tensor:
    """1 where the condition holds, else 0."""
    return condition.to(torch.float64)


def at_places(values: Tensor, places: Tensor) -> Tensor:
    """values [batch, head, place, …] read at places [T, S], 0 at a place outside: [batch, head, T, S, …]."""
    count = values.shape[2]
    outside = torch.zeros_like(values[:, :, :1]) if count else values.new_zeros(*values.shape[:2], 1, *values.shape[3:])
    inside = (places >= 0) & (places < count)
    return torch.cat((values, outside), 2)[:, :, torch.where(inside, places, count)]
