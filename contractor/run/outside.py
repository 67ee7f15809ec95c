"""What a schedule's kernels do not do themselves of a task is done around them, by torch operations that autograd can follow: weights of
rows, what skips past, each row's own score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import lcm

import torch
from torch import Tensor

from contractor.schedules.parts.form import WEIGHTS, Matrix, Task

Tensors = dict[str, Tensor]
Inner = Callable[[Task, Tensors, torch.dtype], Tensors]


def around(inner: Inner, task: Task, tensors: Tensors, dtype: torch.dtype, fuses: bool, flows: bool) -> Tensors:
    """The outputs of a task. fuses: the kernels take weights and skips; flows: they leave each row's own score."""
    form = task.form
    if not fuses and any(step.tied for step in form.matrices):
        return around(inner, *untied(task, tensors), dtype, fuses, flows)
    apart = form if fuses else replace(form, weights=(), skip=False)
    apart = apart if flows else replace(apart, own=False)
    if apart == form:
        return inner(task, tensors, dtype)
    given = dict(tensors)
    plain = replace(task, form=apart)
    for name in () if fuses else form.weighing("source"):
        given["value"] = by_row(given["value"], tensors[name]).to(tensors["value"].dtype)
        plain = with_heads(plain, "value", given["value"].shape[2])
    later = not fuses and (form.weighing("target") or form.skip)
    outputs = inner(plain, given, torch.promote_types(dtype, torch.float32) if later else dtype)
    result = outputs["result"]
    for name in () if fuses else form.weighing("target"):
        result = by_row(result, tensors[name])
    if form.skip and not fuses:
        result = skipped(result, tensors)
    outputs["result"] = result.to(dtype)
    if form.own and not apart.own:
        outputs["own"] = own_scores(tensors["query"], tensors["key"], task.dimensions.H)
    return outputs


def untied(task: Task, tensors: Tensors) -> tuple[Task, Tensors]:
    """The task whose rank-one steps have keys and erase vectors of their own."""
    form, given = task.form, dict(tensors)
    key = spread(tensors["key"], task.dimensions.H, 2)
    for step in form.matrices:
        if step.tied:
            given |= {f"{step.name}_key": by_row(key, tensors[WEIGHTS["source"]]), f"{step.name}_erase": key}
    steps = tuple(replace(step, tied=False) if isinstance(step, Matrix) else step for step in form.steps)
    return replace(task, form=replace(form, steps=steps)), given


def skipped(result: Tensor, tensors: Tensors) -> Tensor:
    """A result [B, T, H, P] and what of the value skips past to it."""
    heads = result.shape[2]
    return result + spread(tensors["skip"], heads, 0)[:, None] * spread(tensors["value"], heads, 2)


def by_row(tensor: Tensor, weight: Tensor) -> Tensor:
    """[B, T, heads, D] times [B, T, heads], whose head counts may differ."""
    heads = lcm(tensor.shape[2], weight.shape[2])
    return spread(tensor, heads, 2) * spread(weight, heads, 2).unsqueeze(-1)


def spread(tensor: Tensor, heads: int, dimension: int) -> Tensor:
    """The tensor with all heads: head h is the tensor's head h // (heads / count)."""
    count = tensor.shape[dimension]
    return tensor if count == heads else tensor.repeat_interleave(heads // count, dimension)


def own_scores(query: Tensor, key: Tensor, heads: int) -> Tensor:
    """query · key of each row, [B, H, 1, T]."""
    scores = (spread(query, heads, 2) * spread(key, heads, 2)).sum(-1, dtype=torch.promote_types(query.dtype, torch.float32))
    return scores.transpose(1, 2).unsqueeze(2)


def with_heads(task: Task, name: str, count: int) -> Task:
    """The task whose buffer `name` has so many heads."""
    heads = {**dict(task.dimensions.heads), name: count}
    counts = tuple((one, number) for one, number in heads.items() if number != task.dimensions.H)
    form = replace(task.form, grouped=tuple(one for one, _ in counts))
    return replace(task, form=form, dimensions=replace(task.dimensions, heads=counts))
