"""Gradients of a contraction by permuting its roles: the same schedules, run three times more.

dQuery = f(dResult, value, key; L), dKey = f(value, dResult, query; Lᵀ), dValue = f(key, query, dResult; Lᵀ). The gradient of a gate
needs no kernel: a gate is crossed by the pairs before it and after it, so its gradient is a suffix sum of query·dQuery − key·dKey.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from contractor.schedules.parts.factors import CLOSED, LOG2E
from contractor.schedules.parts.form import DKEY, DQUERY, DVALUE, ROLES, Gate, Task, permuted

Tensors = dict[str, Tensor]
Run = Callable[[Task, Tensors, torch.dtype], Tensor]


def gradients(task: Task, tensors: Tensors, result: Tensor, gradient: Tensor, wanted: frozenset[str], run: Run) -> Tensors:
    """The gradients of the wanted buffers: of query, key, value and gates of a form whose gates differ over one side at most.

    result and gradient are [B, T, H, P]. The gradient of a single column (a normaliser) stays outside the contraction as a factor of
    dQuery, in float32: there it meets the quotient's other part, which it nearly cancels. A gate's gradient is a long sum of
    differences: what it is made of is computed in float32 throughout, as the rounding of a 16-bit state alone would drown it.
    """
    sides = {side for gate in task.form.gates if gate.name in wanted for side in gate.features or ("n",)}
    exact = torch.promote_types(gradient.dtype, torch.float32)
    forward = {**{role: tensors[role] for role in ROLES}, "result": gradient.to(tensors["value"].dtype)}
    others = {name: tensor for name, tensor in tensors.items() if name not in ROLES}
    found: Tensors = {}
    for name, roles, side in (("query", DQUERY, "n"), ("key", DKEY, "n"), ("value", DVALUE, "p")):
        inputs = {role: forward[source] for role, source in roles.items()}
        if side in sides:
            found[name] = run(replace(permuted(task, roles), careful=True), {**inputs, **others}, exact)
        elif name in wanted and name == "query" and task.dimensions.P == 1:
            ones = torch.ones_like(forward["result"])
            found[name] = gradient * run(permuted(task, roles), {**inputs, "query": ones, **others}, exact)
        elif name in wanted:
            found[name] = run(permuted(task, roles), {**inputs, **others}, tensors[name].dtype)
    if "p" in sides and result.dtype != exact:
        result = run(replace(task, careful=True), tensors, exact)
    gates = {gate.name: gate_gradient(task, gate, tensors, found, result, gradient) for gate in task.form.gates if gate.name in wanted}
    return {name: summed_over_groups(found[name], tensors[name]) for name in found if name in wanted} | gates


def summed_over_groups(gradient: Tensor, operand: Tensor) -> Tensor:
    """[B, T, H, D] → [B, T, operand's heads, D]: the heads of a group read one operand."""
    heads = operand.shape[2]
    grouped = gradient if gradient.shape[2] == heads else gradient.unflatten(2, (heads, -1)).sum(3)
    return grouped.to(operand.dtype)


def gate_gradient(task: Task, gate: Gate, tensors: Tensors, found: Tensors, result: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of one gate, in its own layout; exactly 0 where it is closed, as no rounding may be left there for a chain rule to
    multiply by a log of any size."""
    if gate.features == ("p",):
        pairs = (result, gradient), (tensors["value"], found["value"])
    else:
        pairs = (tensors["query"], found["query"]), (tensors["key"], found["key"])
    target, source = (paired(*pair, summed=not gate.features) for pair in pairs)
    early, late = (source, target) if task.form.future else (target, source)
    flow = suffix(early) - suffix(late)
    if gate.shift:
        flow = flow - early
    flow[:, :1] = 0  # no pair of positions has the first one between them
    gate_tensor = tensors[gate.name]
    if gate.fixed:
        flow = flow.sum((0, 1))
        flow = flow.unflatten(0, (gate_tensor.shape[0], -1)).sum(1)
    else:
        flow = flow.unflatten(2, (gate_tensor.shape[2], -1)).sum(3)
    return torch.where(gate_tensor * LOG2E < CLOSED, 0.0, flow.to(gate_tensor.dtype))


def paired(operand: Tensor, gradient: Tensor, summed: bool) -> Tensor:
    """operand · its gradient for all heads, summed over the features or not, in float64: what follows are sums along the sequence."""
    heads = operand.shape[2]
    product = (operand.unsqueeze(3) * gradient.unflatten(2, (heads, -1))).flatten(2, 3)
    return (product.sum(-1) if summed else product).double()


def suffix(values: Tensor) -> Tensor:
    """The sum of everything from each position on, along dimension 1."""
    return values.flip(1).cumsum(1).flip(1)
