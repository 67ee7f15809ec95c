"""Gradients of a contraction by permuting its roles: the same schedules, run three times more.

dQuery = f(dResult, value, key; L), dKey = f(value, dResult, query; Lᵀ), dValue = f(key, query, dResult; Lᵀ). A state that is handed in
is handed to the first, transposed; the gradient of the state that is handed out to the other two, and what the last hands out is the
gradient of the first state. A gate is crossed by the pairs before it and after it, so its gradient is a suffix sum of query·dQuery −
key·dKey, made inside the passes where the schedule can (`schedules.parts.flow`), else here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from contractor.run.outside import by_row
from contractor.schedules.parts.factors import CLOSED, LOG2E
from contractor.schedules.parts.flow import HALVES
from contractor.schedules.parts.form import DKEY, DQUERY, DVALUE, ROLES, WEIGHTS, Flow, Gate, Row, Task, permuted

Tensors = dict[str, Tensor]


class Run(Protocol):
    """A task and its tensors → its outputs, the result in a dtype."""

    def __call__(self, task: Task, tensors: Tensors, dtype: torch.dtype) -> Tensors:
        """`result` [B, T, H, P] and, as the form asks, `final` and what gates' gradients are made of."""
        ...


class Passes(Protocol):
    """How the passes of a backward are run."""

    @property
    def kernel(self) -> Run:
        """By the schedule's kernels."""
        ...

    def flows(self, task: Task) -> bool:
        """True if passes make the gradient of the task's gates themselves."""
        ...

    def gate(self, task: Task, gate: Gate, tensors: Tensors) -> Tensor:
        """The last step of a gate's gradient."""
        ...


@dataclass(frozen=True, slots=True)
class Arrived:
    """The gradients that arrive: of the result [B, T, H, P] and, where one was handed out and used, of the final state."""

    result: Tensor
    final: Tensor | None = None


def gradients(task: Task, tensors: Tensors, outputs: Tensors, arrived: Arrived, wanted: frozenset[str], passes: Passes) -> Tensors:
    """The gradients of the wanted buffers: of query, key, value, the initial state, and gates of a form whose gates differ over one side
    at most. outputs: what the forward gave."""
    gates = tuple(gate for gate in task.form.gates if gate.name in wanted)
    shape, rows = task.dimensions, bool(gates) or bool(wanted & {*WEIGHTS.values()})
    fused = rows and shape.P > 1 and 0 not in (shape.B, shape.T, shape.H, shape.N) and passes.flows(task)
    if fused:
        found = fused_passes(task, tensors, arrived, wanted, passes)
    else:
        found = plain_passes(task, tensors, arrived, wanted, gates, passes.kernel)
    for gate in gates:
        if fused:
            halves = {name: found[name] for name in (*HALVES, "meets")}
            whole = passes.gate(task, gate, {**tensors, **halves})
        elif gate.features and 0 not in (shape.B, shape.T, shape.H, shape.N, shape.P):
            whole = passes.gate(task, gate, channel_operands(task, gate, tensors, found, outputs, arrived, passes.kernel))
            if not gate.fixed and whole.shape == tensors[gate.name].shape:
                found[gate.name] = whole.to(tensors[gate.name].dtype)
                continue
        else:
            whole = by_suffix(task, gate, tensors, found, outputs, arrived, passes.kernel)
        found[gate.name] = laid_out(gate, tensors[gate.name], whole)
    return {name: summed_over_groups(one, tensors[name]) if name in SUMMED else one for name, one in found.items() if name in wanted}


SUMMED = (*ROLES, *WEIGHTS.values(), "skip")


def summed_over_groups(gradient: Tensor, operand: Tensor) -> Tensor:
    """[B, T, H, …] → [B, T, operand's heads, …], or [H] → [heads]: the heads of a group read one operand."""
    place = 2 if operand.dim() > 1 else 0
    heads = operand.shape[place]
    grouped = gradient if gradient.shape[place] == heads else gradient.unflatten(place, (heads, -1)).sum(place + 1)
    return grouped.to(operand.dtype)


def laid_out(gate: Gate, tensor: Tensor, whole: Tensor) -> Tensor:
    """A gate's gradient [B, T, H, *features] in the gate's own layout; exactly 0 where it is closed, as no rounding may be left there for
    a chain rule to multiply by a log of any size."""
    if gate.fixed:
        whole = whole.sum((0, 1)).unflatten(0, (tensor.shape[0], -1)).sum(1)
    elif whole.shape[2] != tensor.shape[2]:
        whole = whole.unflatten(2, (tensor.shape[2], -1)).sum(3)
    return torch.where(tensor * LOG2E < CLOSED, 0.0, whole.to(tensor.dtype)) if gate.resets else whole.to(tensor.dtype)


# ---- passes ---------------------------------------------------------------------------------------------------------------------

PASSES = {"query": DQUERY, "key": DKEY, "value": DVALUE}
FLOWS: tuple[tuple[str, Flow], ...] = (("query", "target"), ("key", "source"), ("value", ""))
ROWS: dict[str, Row] = {"query": "target", "key": "source"}


def backward_pass(
    name: str, task: Task, tensors: Tensors, arrived: Arrived, wanted: frozenset[str], flow: Flow = ""
) -> tuple[Task, Tensors]:
    """The pass that makes a role's gradient, and its tensors. States are [.., N, P] of the pass, so those of the first two are
    transposed; no state is scaled as the result is, so the gradient of one comes in as much larger. Where a gradient arrives through the
    final state, the target's pass walks to its sequence's very end too: its state is met there."""
    turned = permuted(task, PASSES[name])
    operands = {**{role: tensors[role] for role in ROLES}, "result": arrived.result.to(tensors["value"].dtype)}
    inputs = {role: operands[source] for role, source in PASSES[name].items()}
    inputs |= {other: tensor for other, tensor in tensors.items() if other not in (*ROLES, "initial")}
    state = tensors.get("initial") if name == "query" else arrived.final
    if state is not None and name != "query" and task.scale != 1.0:
        state = state / task.scale
    if state is not None:
        inputs["initial"] = state if name == "value" else state.mT
    handed = "initial" in wanted if name == "value" else flow == "target" and arrived.final is not None
    own = name == "query" and "skip" in wanted
    form = replace(turned.form, initial=state is not None, final=handed, flow=flow, own=own)
    return replace(turned, form=form), inputs


def plain_passes(task: Task, tensors: Tensors, arrived: Arrived, wanted: frozenset[str], gates: tuple[Gate, ...], run: Run) -> Tensors:
    """The passes, each for itself. What a gate's gradient is made of is computed in float32 throughout: it is a long sum of differences,
    which the rounding of a 16-bit state alone would drown. The gradient of a single column (a normaliser) stays outside the products
    as a weight of dQuery's rows, in float32: there it meets the quotient's other part, which it nearly cancels."""
    sides = {side for gate in gates for side in gate.features or ("n",)}
    exact = torch.promote_types(arrived.result.dtype, torch.float32)
    found: Tensors = {}
    for name, side in (("query", "n"), ("key", "n"), ("value", "p")):
        turned, inputs = backward_pass(name, task, tensors, arrived, wanted)
        weight = weight_beside(name, wanted)
        if side not in sides and name not in wanted and not (turned.form.final or turned.form.own or weight):
            continue
        if weight:
            turned = replace(turned, form=replace(turned.form, weights=tuple(one for one in turned.form.weights if one[0] != weight)))
        apart = side not in sides and name == "query" and task.dimensions.P == 1 and not turned.form.own and not weight
        if apart:
            inputs |= {"query": torch.ones_like(inputs["query"]), "arrived": arrived.result.squeeze(-1).to(exact)}
            turned = replace(turned, form=replace(turned.form, weights=(*turned.form.weights, ("arrived", "target"))))
        outputs = run(replace(turned, careful=side in sides), inputs, exact if side in sides or weight else tensors[name].dtype)
        found[name] = outputs["result"]
        if weight:
            found[weight] = paired(tensors[name], outputs["result"], summed=True)
            found[name] = by_row(outputs["result"], tensors[weight])
        found |= beside(task, turned, outputs)
    return found


def beside(task: Task, turned: Task, outputs: Tensors) -> Tensors:
    """What a pass gives beside a role's gradient and the halves of gates': the gradient of the initial state, of a skip."""
    found = {"initial": outputs["final"] * task.scale} if turned.form.final and not turned.form.flow else {}
    return found | ({"skip": outputs["own"].sum((0, 2, 3))} if turned.form.own else {})


def fused_passes(task: Task, tensors: Tensors, arrived: Arrived, wanted: frozenset[str], passes: Passes) -> Tensors:
    """The passes, two of which make the halves of the gates' gradients: with what passes through the state in two parts where a gate's
    gradient goes on to a parameter, as its sum over all positions would show what their rounding has in common. Without gates a pass makes
    but the gradient of its rows' weights."""
    gates = [gate for gate in task.form.gates if gate.name in wanted]
    careful = any(gate.shared for gate in gates)
    found: Tensors = {}
    states: Tensors = {}
    for name, half in FLOWS:
        weight = weight_beside(name, wanted)
        flow: Flow = half if gates else "weight" if weight else ""
        turned, inputs = backward_pass(name, task, tensors, arrived, wanted, flow)
        if not flow and name not in wanted and not (turned.form.final or turned.form.own):
            continue
        if flow:
            turned = replace(with_operand(turned, task, name), careful=careful)
            inputs |= {"operand": tensors[name]} | states
        outputs = passes.kernel(turned, inputs, tensors[name].dtype)
        found[name] = outputs["result"]
        found |= beside(task, turned, outputs)
        found |= {f"{flow}_{part}": outputs[part] for part in ("crossing", "pairs") if flow}
        found |= {"meets": outputs["meets"]} if flow == "source" else {}
        states = {"states": outputs["states"]} if flow == "target" else {}
        if weight:
            found[weight] = (outputs["crossing"] + outputs["pairs"]).sum(2).transpose(1, 2) * task.scale
    return found


def weight_beside(name: str, wanted: frozenset[str]) -> str:
    """The buffer of weights whose gradient a role's pass can make on its way, if it is wanted."""
    found = WEIGHTS[ROWS[name]] if name in ROWS else ""
    return found if found in wanted else ""


def with_operand(turned: Task, task: Task, name: str) -> Task:
    """A pass that reads, beside its roles, the operand whose gradient it makes."""
    heads = dict(task.dimensions.heads)
    if name not in heads:
        return turned
    dimensions = replace(turned.dimensions, heads=(*turned.dimensions.heads, ("operand", heads[name])))
    return replace(turned, form=replace(turned.form, grouped=(*turned.form.grouped, "operand")), dimensions=dimensions)


# ---- gates outside the passes ---------------------------------------------------------------------------------------------------


def by_suffix(task: Task, gate: Gate, tensors: Tensors, found: Tensors, outputs: Tensors, arrived: Arrived, run: Run) -> Tensor:
    """The gradient [B, T, H, *features] of one gate, from what the passes gave in float32."""
    if gate.features == ("p",):
        pairs = (exact_result(task, tensors, outputs, run), arrived.result), (tensors["value"], found["value"])
    else:
        pairs = (tensors["query"], found["query"]), (tensors["key"], found["key"])
    target, source = (paired(*pair, summed=not gate.features) for pair in pairs)
    early, late = (source, target) if task.form.future else (target, source)
    place, last = places(task, tensors, early.shape[1], early.device)
    flow = suffix(early - late, last)
    if arrived.final is not None:
        over = [dimension for side, dimension in (("n", -2), ("p", -1)) if side not in gate.features]
        met = (outputs["final"].double() * arrived.final.double()).sum(over)
        flow = flow + (met[:, None] if last is None else met[last[1]][None])
    if gate.shift:
        flow = flow - early
    if not task.form.initial:  # no pair of positions has the first one between them
        flow = torch.where((place == 0).reshape(-1, *(1 for _ in flow.shape[2:])), 0.0, flow)
    return flow


def channel_operands(task: Task, gate: Gate, tensors: Tensors, found: Tensors, outputs: Tensors, arrived: Arrived, run: Run) -> Tensors:
    """What the gradient of a gate for each channel is summed from, by the buffers of `parts.channel`."""
    if gate.features == ("p",):
        pairs = (exact_result(task, tensors, outputs, run), arrived.result), (tensors["value"], found["value"])
    else:
        pairs = (tensors["query"], found["query"]), (tensors["key"], found["key"])
    (target, target_gradient), (source, source_gradient) = pairs
    named = {"target": target, "target_gradient": target_gradient, "source": source, "source_gradient": source_gradient}
    named |= {name: tensors[name] for name in (gate.name, "starts") if name in tensors}
    if arrived.final is not None:
        named["met"] = (outputs["final"] * arrived.final).sum(-1 if gate.features == ("n",) else -2)
    return named


def exact_result(task: Task, tensors: Tensors, outputs: Tensors, run: Run) -> Tensor:
    """The forward's result, in float32 throughout."""
    result = outputs["result"]
    exact = torch.promote_types(result.dtype, torch.float32)
    if result.dtype == exact:
        return result
    return run(replace(task, careful=True, form=replace(task.form, final=False)), tensors, exact)["result"]


def places(task: Task, tensors: Tensors, length: int, device: torch.device) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """Each row's place in its sequence and, for packed sequences, (the row after its sequence, the number of its sequence)."""
    row = torch.arange(length, device=device)
    if not task.form.packed:
        return row, None
    starts = tensors["starts"]
    sequence = torch.searchsorted(starts[1:], row, right=True).clamp(max=starts.shape[0] - 2)
    return row - starts[sequence], (starts[sequence + 1], sequence)


def paired(operand: Tensor, gradient: Tensor, summed: bool) -> Tensor:
    """operand · its gradient for all heads, summed over the features or not, in float64: what follows are sums along the sequence."""
    heads = operand.shape[2]
    product = (operand.unsqueeze(3) * gradient.unflatten(2, (heads, -1))).flatten(2, 3)
    return (product.sum(-1) if summed else product).double()


def suffix(values: Tensor, last: tuple[Tensor, Tensor] | None) -> Tensor:
    """The sum of everything from each position on to its sequence's end, along dimension 1."""
    whole = torch.cat((values.flip(1).cumsum(1).flip(1), torch.zeros_like(values[:, :1])), 1)
    return whole[:, :-1] if last is None else whole[:, :-1] - whole[:, last[0]]
