"""Entrywise factors and integer arguments of a mask as tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from contractor.program.masks.mask import Lookup
from contractor.run.frame import Frame, padded
from contractor.schedules.parts.form import Task


def table_tensors(frame: Frame, task: Task) -> dict[str, Tensor]:
    """Each entrywise factor: [heads, *axes], or [B, heads, *axes] where it differs over the batch."""
    lookups = [weight for weight in frame.core.term.law.weights if isinstance(weight, Lookup)]
    found: dict[str, Tensor] = {}
    for table, lookup in zip(task.form.tables, lookups, strict=True):
        value = frame.evaluate(lookup.value)
        tensor = value.tensor.to(frame.exact)
        for index, axis in enumerate(value.axes):
            if axis in ("T", "S"):
                tensor = padded(tensor, 2 + index, frame.length)
        tensor = tensor.expand(frame.problem.sizes.B, *tensor.shape[1:]) if table.batched else tensor[0]
        found[table.name] = tensor.contiguous()
    return found


def argument_tensors(frame: Frame, task: Task) -> dict[str, Tensor]:
    """Each integer argument of the support: [heads], or with a position [B, T, heads]."""
    found: dict[str, Tensor] = {}
    for argument in task.form.arguments:
        value = frame.evaluate(argument.value)
        if argument.held:
            tensor = padded(value.tensor.to(torch.int64), 2, frame.length).transpose(1, 2)
            found[argument.name] = tensor.expand(frame.problem.sizes.B, *tensor.shape[1:]).contiguous()
        else:
            found[argument.name] = value.tensor.to(torch.int64).reshape(-1).contiguous()
    return found
