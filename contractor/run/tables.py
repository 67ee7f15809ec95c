"""Entrywise factors and integer arguments of a mask as tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from contractor.program.core import Factor
from contractor.program.place import S, T
from contractor.program.values import grouped
from contractor.run.frame import Frame, aligned, padded
from contractor.schedules.parts.form import Table, Task
from contractor.schedules.parts.task import turning_tables


def table_tensors(frame: Frame, task: Task) -> dict[str, Tensor]:
    """Each entrywise factor: [heads, *axes], or [B, heads, *axes] where it differs over the batch."""
    turning = turning_tables(frame.core)
    found: dict[str, Tensor] = {}
    for number, (form, factor) in enumerate(zip(task.form.tables, frame.core.tables, strict=True)):
        tensor = entries(frame, form, factor)
        if number in turning:
            tensor = tensor.repeat_interleave(frame.heads // tensor.shape[1], 1)
            bit = len(turning) - 1 - turning.index(number)
            parts = [tensor.imag if index >> bit & 1 else tensor.real for index in range(2 ** len(turning))]
            tensor = torch.stack(parts, 2).flatten(1, 2)
        tensor = tensor.to(frame.exact)
        tensor = tensor.expand(frame.problem.sizes.B, *tensor.shape[1:]) if form.batched else tensor[0]
        found[form.name] = tensor.contiguous()
    return found


def entries(frame: Frame, form: Table, factor: Factor) -> Tensor:
    """What a table holds: [batch, heads, *axes of its index], its other letters among the heads, positions as long as the kernel's."""
    count, batch = len(form.index), frame.core.batch
    tensor = aligned(frame, factor.value, factor.letters, (*factor.letters[:count], *batch))
    for dimension, place in enumerate(form.index):
        if place in (T, S):
            tensor = padded(tensor, 2 + dimension, frame.length)
    if not batch:
        return tensor
    tensor = grouped(tensor, frame.problem.sizes.H).movedim(tuple(range(2, 2 + count)), tuple(range(-count, 0)))
    full = tensor.expand(tensor.shape[0], frame.problem.sizes.H, *frame.extents(batch), *tensor.shape[-count:])
    return full.flatten(1, 1 + len(batch))


def argument_tensors(frame: Frame, task: Task) -> dict[str, Tensor]:
    """Each integer argument of the support: [heads], or with a position [B, T, heads]."""
    found: dict[str, Tensor] = {}
    for argument in task.form.arguments:
        value = frame.evaluate(argument.value)
        if argument.held:
            tensor = padded(value.tensor.to(torch.int64), 2, frame.length).transpose(1, 2)
            found[argument.name] = tensor.expand(frame.problem.sizes.B, *tensor.shape[1:]).contiguous()
        else:
            found[argument.name] = value.tensor.to(frame.device, torch.int64).reshape(-1).contiguous()
    return found
