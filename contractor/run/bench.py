"""A layer measured on the device at hand: in one order of evaluation after the other, then through the peers that fit it.

Numbers come before times: an order is held to float64 first, a peer to float64 or to the first of our orders. What is wrong is not timed;
where gradients alone are, the forward is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from contractor.errors import RefusedError
from contractor.plan.choose import chosen
from contractor.plan.machine import MACHINES
from contractor.plan.plan import Plan, Refusal
from contractor.plan.problem import Problem
from contractor.plan.show import duration
from contractor.run.here import backend_of, machine_here
from contractor.run.operator import Operator
from contractor.run.peers import Fitted, fitted
from contractor.run.rows import Row, Table
from contractor.run.timing import beyond, held, host_microseconds, measured
from contractor.run.trial import ALLOWED, timed
from contractor.run.truth import (
    Inputs,
    Result,
    Truth,
    flops_of,
    operands_of,
    outputs_of,
    result,
    truth,
    weights_like,
)
from contractor.run.verdict import against, finite, joined, looser

Call = Callable[..., Any]
CHOSEN = "planner"  # the name of a row whose order the planner chose, where there is none
OURS, THEIRS = (2.0, 2.0), (2.0, 10.0)  # how much looser others are held: peers round the gradients of gates in their own ways
PATIENCE = 5e3  # milliseconds: an order that is expected to take longer is not run


@dataclass(frozen=True, slots=True)
class Order:
    """A layer compiled for one order of evaluation; the planner's choice where `schedule` is None."""

    schedule: str | None
    operator: Operator


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured and where. exact: the layer as it is held to, in float64; first: first calls are timed too."""

    problem: Problem
    exact: Operator
    device: str
    seed: int = 0
    first: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What the rows share: the operands, the gradients of the outputs, what our first right row gave, and the truth once it was asked for
    (it may be that there is none)."""

    operands: dict[str, Tensor]
    weights: tuple[Tensor, ...] = ()
    ours: Result | None = None
    right: Truth | None = None
    asked: bool = False


Step = Callable[[Setting, Known, Row], tuple[Row, Known]]


def bench(setting: Setting, orders: Sequence[Order], peers: Sequence[str]) -> Table:
    """Every order, then every peer. Raises ArgumentError for a peer that nobody knows."""
    known = Known(operands_of(setting.problem, setting.device, setting.seed))
    rows: list[Row] = []
    steps: list[tuple[Row, Step]] = [(Row(order_name(setting, order)), partial(ours, order)) for order in orders]
    for row, step in [*steps, *((Row(name, ours=False), theirs) for name in peers)]:
        row, known = guarded(setting, known, row, step)
        rows.append(row)
    inputs, outputs = held(tuple(known.operands.values())), held(known.weights)
    gradients = held(tuple(one for one in known.operands.values() if one.requires_grad))
    bandwidth = (MACHINES["cpu"] if setting.device == "cpu" else machine_here()).bandwidth
    return Table(setting.problem, setting.device, bandwidth, inputs + outputs, 2 * (inputs + outputs) + gradients, tuple(rows))


def guarded(setting: Setting, known: Known, row: Row, step: Step) -> tuple[Row, Known]:
    """A row, or why there is none."""
    try:
        return step(setting, known, row)
    except torch.OutOfMemoryError:
        return replace(row, note="out of memory"), known
    except RefusedError as error:
        return replace(row, note=f"refused: {error}"), known
    finally:
        if setting.device != "cpu":
            with suppress(RuntimeError):  # a device that a peer has broken
                torch.cuda.empty_cache()


# ---- ours -----------------------------------------------------------------------------------------------------------------------


def ours(order: Order, setting: Setting, known: Known, row: Row) -> tuple[Row, Known]:
    """Our row of one order."""
    plan = planned(setting, order)
    if reason := refusal(plan, order.schedule):
        return replace(row, note=f"refused: {reason}"), known
    row = replace(row, chosen=order.schedule is None, flops=flops_of(plan))
    if (expected := sum(chosen(choice).milliseconds for choice in plan.choices)) > PATIENCE and not row.chosen:
        return replace(row, note=f"not run: the plan expects {duration(expected)} a call"), known
    given, found, first = began(setting, known, order.operator, known.operands)
    known = replace(known, weights=given.weights)
    if not known.asked:
        right = truth(setting.problem, setting.exact, order.operator, given, setting.device, setting.seed)
        known = replace(known, right=right, asked=True)
    row = checked(setting, known, replace(row, first=first if setting.first else None), order.operator, found)
    if not row.wrong_forward:
        known = replace(known, ours=known.ours or found)
    del found
    return times(setting, row, order.operator, given), known


def planned(setting: Setting, order: Order) -> Plan:
    """The plan that an order runs by."""
    text = backend_of(torch.device(setting.device), setting.problem.dtype) == "torch"
    return order.operator.steps.plan(setting.problem, "cpu" if text else None)


def order_name(setting: Setting, order: Order) -> str:
    """What a row of ours is called: its order, or those that the planner chose."""
    if order.schedule is not None:
        return order.schedule
    taken = [choice.chosen.schedule for choice in planned(setting, order).choices if choice.chosen is not None]
    return " + ".join(dict.fromkeys(taken)) or CHOSEN


def refusal(plan: Plan, schedule: str | None) -> str:
    """Why an order may not be used; "" if it may."""
    for choice in plan.choices:
        if choice.chosen is None:
            refused = [one for one in choice.others if isinstance(one, Refusal) and schedule in (None, one.schedule)]
            return "; ".join(f"{one.schedule}: {one.reason}" if schedule is None else one.reason for one in refused)
    return ""


def began(setting: Setting, known: Known, call: Call, operands: dict[str, Tensor]) -> tuple[Inputs, Result, float]:
    """The first calls: what they are made on, what they gave, and the seconds of the first forward and the first backward together."""
    forward, outputs = timed(setting.device, lambda: outputs_of(call, operands))
    shared = operands is known.operands and known.weights
    given = Inputs(operands, known.weights if shared else weights_like(outputs, setting.seed))
    kept: list[Result] = []

    def both() -> tuple[Tensor, ...]:
        kept.append(result(call, given))
        return kept[0].outputs

    backward, _ = timed(setting.device, both)
    return given, kept[0], (forward + backward) / 1e3


def checked(setting: Setting, known: Known, row: Row, call: Call, found: Result) -> Row:
    """Our row with its errors, against float64 and, where that was on a shorter sequence, against our first row too."""
    allowed, right = ALLOWED[setting.problem.dtype], known.right
    if right is not None and right.whole:
        return against(row, found, right.result, right.says, allowed)
    whole = finite(row, found) if known.ours is None else against(row, found, known.ours, "our first", looser(allowed, OURS))
    if right is None or whole.wrong:
        return whole if known.ours else replace(whole, note=joined(whole.note, "numbers not compared"))
    return against(row, result(call, right.inputs), right.result, right.says, allowed)


# ---- peers ----------------------------------------------------------------------------------------------------------------------


def theirs(setting: Setting, known: Known, row: Row) -> tuple[Row, Known]:
    """A peer's row."""
    peer = fitted(row.name, setting.problem)
    if isinstance(peer, str):
        return replace(row, note=peer), known
    note = "" if peer.same else "another function: numbers not compared"
    row = replace(row, says=peer.says, version=peer.version, flops=peer.flops, note=note)
    try:
        return through(setting, known, row, peer), known
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a peer may fail in any way, and that is its row
        return replace(row, note=joined(row.note, raised(error))), known


def through(setting: Setting, known: Known, row: Row, peer: Fitted) -> Row:
    """A peer's numbers against float64, or against ours where that was on a shorter sequence; then its times."""
    operands = known.operands if peer.same else peer.inputs(known.operands)
    try:
        given, found, first = began(setting, known, peer.call, operands)
        row = replace(row, first=first if setting.first else None)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # its backward may not be there, where its forward is
        outputs = outputs_of(peer.call, operands)
        given, found = Inputs(operands, weights_like(outputs, setting.seed)), Result(outputs, {})
        row = replace(row, wrong_backward=True, note=joined(row.note, f"the backward {raised(error)}"))
    if peer.same:
        whole = known.right if known.right is not None and known.right.whole else None
        right, says = (known.ours, "ours") if whole is None else (whole.result, whole.says)
        if right is None:
            return replace(row, note=joined(row.note, "nothing to compare with, so not timed"))
        lost = row.wrong_backward
        row = against(row, found, right, says, looser(ALLOWED[setting.problem.dtype], THEIRS))
        row = replace(row, wrong_backward=row.wrong_backward or lost)
    del found
    return times(setting, row, peer.call, given)


def raised(error: Exception) -> str:
    """What an error says, in a line."""
    return f"raised {type(error).__name__}: {first_line(error)}"


def first_line(error: Exception) -> str:
    """The first line of what an error says."""
    return next(iter(str(error).splitlines()), "")[:120]


# ---- times ----------------------------------------------------------------------------------------------------------------------


def times(setting: Setting, row: Row, call: Call, given: Inputs) -> Row:
    """A row with its times and its memory."""

    def forward() -> None:
        outputs_of(call, given.operands)

    def both() -> tuple[Tensor | None, ...]:
        found = result(call, given)
        return (*found.outputs, *found.gradients.values())

    if row.wrong_forward:
        return replace(row, note=joined(row.note, "WRONG, so not timed"))
    alone = measured(forward, setting.device)
    together = None if row.wrong_backward else measured(both, setting.device)
    clocks = tuple(dict.fromkeys(one.clock for one in (alone, together) if one is not None))
    notes = ("the forward alone is timed" if together is None else "", "timed by events" if "events" in clocks else "")
    return replace(
        row,
        forward=alone.milliseconds,
        both=None if together is None else together.milliseconds,
        clocks=clocks,
        host=host_microseconds(forward, setting.device),
        memory=None if together is None else beyond(both, setting.device),
        note=joined(row.note, *notes),
    )
