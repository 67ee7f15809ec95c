"""The tensors of one contraction in normal form, made from the layer's values by differentiable torch operations.

Query, key and value are [B, T, heads, features], gates [B, T, heads, features] or, fixed, [heads, features]: the layout that kernels
read, and a view of what was given wherever that is possible. What no kernel knows is settled here: products of operands, signs and
phases of transitions (they move into the operands), complex numbers, flipped sequences, sequences of two lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from contractor.program.core import KEPT
from contractor.program.expression import Axes
from contractor.program.place import S, T
from contractor.program.values import Value
from contractor.run.complex import as_complex, as_query, side_by_side, units
from contractor.run.frame import Frame, aligned, laid_out, multiplied, padded, side
from contractor.run.gates import Sides, gate_tensor, matrix_tensors, nearly_zero, turned
from contractor.run.tables import argument_tensors, table_tensors
from contractor.schedules.parts.form import WEIGHTS, Matrix, Task
from contractor.schedules.parts.task import Crossing, complex_sides, crossings, turning_tables


@dataclass(frozen=True, slots=True)
class Normal:
    """A task with its tensors by buffer name; `restore` turns the kernel's result [B, T, heads, P] into the mixing's value. zeros: gates
    that are given by value here although the kernel takes their logs, as their gradient is wanted where they
    are 0 or nearly so."""

    task: Task
    tensors: dict[str, Tensor]
    restore: Callable[[Tensor], Value]
    zeros: frozenset[str] = frozenset()


def normal(frame: Frame, task: Task) -> Normal:
    """The tensors of a core, computed in the frame's dtype (gates in float32 at least)."""
    core = frame.core
    sides = Sides(
        side(frame, core.query, "T", core.inner),
        side(frame, core.key, "S", core.column or core.inner),
        value_side(frame),
    )
    gates: dict[str, Tensor] = {}
    zeros: set[str] = set()
    for crossing, step in zip(crossings(core, frame.problem.program), task.form.steps, strict=True):
        if isinstance(crossing, Crossing):
            sides = turned(frame, crossing, sides)
            if not crossing.gate.by_value and nearly_zero(frame, crossing):
                zeros.add(crossing.gate.name)
                crossing = replace(crossing, gate=replace(crossing.gate, by_value=True))
            gates[crossing.gate.name] = gate_tensor(frame, crossing)
        elif isinstance(step, Matrix) and not step.tied:
            gates |= matrix_tensors(frame, crossing, step)
    tensors = {**operand_tensors(frame, sides), **beside(frame), **gates, **table_tensors(frame, task), **argument_tensors(frame, task)}
    flipped = core.term.mirrored
    if flipped:
        tensors = {name: mirrored(tensor, name, task) for name, tensor in tensors.items()}
    return Normal(
        with_heads(task, tensors),
        tensors,
        lambda output: restored(frame, sides.result, output.flip(1) if flipped else output),
        frozenset(zeros),
    )


def mirrored(tensor: Tensor, name: str, task: Task) -> Tensor:
    """One tensor of a flipped mask, which runs on the flipped sequence."""
    table = next((one for one in task.form.tables if one.name == name), None)
    if table is not None:
        first = tensor.dim() - len(table.index)
        return tensor.flip([first + index for index, place in enumerate(table.index) if place in (T, S)])
    return tensor if name in fixed_buffers(task) else tensor.flip(1)


def fixed_buffers(task: Task) -> frozenset[str]:
    """The buffers without positions."""
    steps = {step.name for step in task.form.steps if step.fixed}
    arguments = {argument.name for argument in task.form.arguments if not argument.held}
    return frozenset(steps | {table.name for table in task.form.tables} | arguments | {"skip"})


# ---- operands and result ----------------------------------------------------------------------------------------------------


def value_side(frame: Frame) -> Tensor:
    """The value; where the result keeps S, each source has a column of its own."""
    value = side(frame, frame.core.value, "S", frame.core.outer)
    if not frame.core.keeps:
        return value
    own = torch.eye(frame.problem.sizes.S, dtype=value.dtype, device=value.device)
    columns = padded(own, 0, frame.length)
    return value * columns.reshape(columns.shape[0], *(1 for _ in value.shape[3:-1]), columns.shape[1])


def operand_tensors(frame: Frame, sides: Sides) -> dict[str, Tensor]:
    """Query, key and value laid out, real."""
    inner, outer = complex_sides(frame.core)
    count = len(frame.core.batch)
    widths = [tensor.shape[3 + count :].numel() for tensor in (sides.query, sides.key, sides.value)]
    query, key, value = (
        laid_out(frame, tensor, count, (width,)) for tensor, width in zip((sides.query, sides.key, sides.value), widths, strict=True)
    )
    if inner:
        whole = frame.heads * 2 ** len(turning_tables(frame.core))
        query, key = as_query(query.repeat_interleave(whole // query.shape[2], 2)), side_by_side(key)
    if outer:
        value = side_by_side(value)
    return {"query": query.contiguous(), "key": key.contiguous(), "value": value.contiguous()}


def beside(frame: Frame) -> dict[str, Tensor]:
    """The weights of rows [B, T, heads], and what skips past [heads]."""
    core, found, exact = frame.core, dict[str, Tensor](), replace(frame, dtype=frame.exact)
    for row, own in core.weights:
        if own:
            found[WEIGHTS[row]] = laid_out(frame, side(exact, own, own[0].letters[0], ()), 0, ()).contiguous()
    if core.skip is not None:
        found["skip"] = aligned(frame, core.skip, (), ())[0].to(frame.exact)
    return found


def with_heads(task: Task, tensors: dict[str, Tensor]) -> Task:
    """The task with the head counts that the tensors really have."""
    counts = {name: tensor.shape[head_dimension(task, name)] for name, tensor in tensors.items()}
    heads = tuple((name, count) for name, count in counts.items() if count != task.dimensions.H)
    form = replace(task.form, grouped=tuple(name for name, _ in heads))
    return replace(task, form=form, dimensions=replace(task.dimensions, heads=heads))


def head_dimension(task: Task, name: str) -> int:
    """Which dimension of a buffer counts its heads."""
    if name in {table.name for table in task.form.tables if table.batched}:
        return 1
    return 0 if name in fixed_buffers(task) else 2


def restored(frame: Frame, factor: Tensor | None, output: Tensor) -> Value:
    """The mixing's value from the kernel's result [B, T, heads, P]."""
    core, sizes = frame.core, frame.problem.sizes
    inner, outer = complex_sides(core)
    doublings = inner + len(turning_tables(core))
    if doublings or outer:
        output = as_complex(output, units(doublings, output.device), outer)
    output = output.unflatten(2, (sizes.H, *frame.extents(core.batch))).unflatten(-1, frame.extents(core.outer) or (1,))
    if not core.outer:
        output = output.squeeze(-1)
    first = frame.length - frame.size("T")
    output = output.transpose(1, 2)[:, :, first:]
    if factor is not None:
        output = multiplied(output, factor[:, :, first:])
    axes = ("S" if core.exchanged else "T", *core.batch, *("S" if letter == KEPT else letter for letter in core.outer))
    return kept(Value(output, axes), core.axes)


def kept(value: Value, wanted: Axes) -> Value:
    """The value summed over the axes that the result does not have."""
    over = [index + 2 for index, axis in enumerate(value.axes) if axis not in wanted]
    return Value(value.tensor.sum(over), tuple(axis for axis in value.axes if axis in wanted)) if over else value
