"""The tensors of one contraction in normal form, made from the layer's values by differentiable torch operations.

Query, key and value are [B, T, heads, features], gates [B, T, heads, features] or, fixed, [heads, features]: the layout that kernels
read, and a view of what was given wherever that is possible. What no kernel knows is settled here: products of operands, signs and
phases of transitions (they move into the operands), complex numbers, flipped sequences, sequences of two lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from contractor.program.values import Value
from contractor.run.complex import as_complex, as_query, side_by_side
from contractor.run.frame import Frame, laid_out, multiplied, side
from contractor.run.gates import Sides, gate_tensor, matrix_tensors, turned
from contractor.run.tables import argument_tensors, table_tensors
from contractor.schedules.parts.form import Matrix, Task
from contractor.schedules.parts.task import Crossing, complex_sides, crossings


@dataclass(frozen=True, slots=True)
class Normal:
    """A task with its tensors by buffer name; `restore` turns the kernel's result [B, T, heads, P] into the mixing's value."""

    task: Task
    tensors: dict[str, Tensor]
    restore: Callable[[Tensor], Value]


def normal(frame: Frame, task: Task) -> Normal:
    """The tensors of a core, computed in the frame's dtype (gates in float32 at least)."""
    core = frame.core
    sides = Sides(
        side(frame, core.query, "T", core.inner),
        side(frame, core.key, "S", core.column or core.inner),
        side(frame, core.value, "S", core.outer),
    )
    gates: dict[str, Tensor] = {}
    for crossing, step in zip(crossings(core, frame.problem.program), task.form.steps, strict=True):
        if isinstance(crossing, Crossing):
            sides = turned(frame, crossing, sides)
            gates[crossing.gate.name] = gate_tensor(frame, crossing)
        else:
            assert isinstance(step, Matrix)
            gates |= matrix_tensors(frame, crossing, step)
    tensors = {**operand_tensors(frame, sides), **gates, **table_tensors(frame, task), **argument_tensors(frame, task)}
    turn = orientation(frame, task)
    tensors = {name: oriented(tensor, name, task, turn) for name, tensor in tensors.items()}
    result = sides.result
    return Normal(with_heads(replace(task, form=replace(task.form, future=turn.future)), tensors),
                  tensors, lambda output: restored(frame, result, output.flip(1) if turn.flip else output))


# ---- direction --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Orientation:
    """How the sequence is laid: `flip` it, `roll` matrices by one position (a step is crossed where its source stands), and whether
    the kernel walks from the future."""

    flip: bool
    roll: bool
    future: bool


def orientation(frame: Frame, task: Task) -> Orientation:
    """flip(L) runs on the flipped sequence; reverse(L) walks from the future, or, with matrices, on the flipped sequence too."""
    direction = frame.core.term.direction
    matrices = bool(task.form.matrices)
    return Orientation(
        flip=direction == "flipped" or (direction == "future" and matrices),
        roll=direction == "future" and matrices,
        future=direction == "future" and not matrices,
    )


def oriented(tensor: Tensor, name: str, task: Task, turn: Orientation) -> Tensor:
    """One tensor, flipped along its positions where the orientation says so."""
    if not turn.flip or name in fixed_buffers(task):
        return tensor
    flipped = tensor.flip(1)
    if turn.roll and name not in ("query", "key", "value"):
        flipped = flipped.roll(1, 1)
    return flipped


def fixed_buffers(task: Task) -> frozenset[str]:
    """The buffers without positions."""
    steps = {step.name for step in task.form.steps if step.fixed}
    return frozenset(steps | {table.name for table in task.form.tables} | {argument.name for argument in task.form.arguments if not argument.held})


# ---- operands and result ----------------------------------------------------------------------------------------------------


def operand_tensors(frame: Frame, sides: Sides) -> dict[str, Tensor]:
    """Query, key and value laid out, real."""
    inner, outer = complex_sides(frame.core)
    count = len(frame.core.batch)
    widths = [tensor.shape[3 + count :].numel() for tensor in (sides.query, sides.key, sides.value)]
    query, key, value = (
        laid_out(frame, tensor, count, (width,)) for tensor, width in zip((sides.query, sides.key, sides.value), widths, strict=True)
    )
    if inner:
        query, key = as_query(query), side_by_side(key)
    if outer:
        value = side_by_side(value)
    return {"query": query.contiguous(), "key": key.contiguous(), "value": value.contiguous()}


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
    if any(complex_sides(core)):
        output = as_complex(output, *complex_sides(core))
    output = output.unflatten(2, (sizes.H, *frame.extents(core.batch))).unflatten(-1, frame.extents(core.outer) or (1,))
    if not core.outer:
        output = output.squeeze(-1)
    output = output.transpose(1, 2)[:, :, frame.length - sizes.T :]
    if factor is not None:
        output = multiplied(output, factor[:, :, frame.length - sizes.T :])
    return Value(output, ("T", *core.batch, *core.outer))
