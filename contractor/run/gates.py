"""Transitions as tensors: gates (sums of real logs), matrices, and the signs and phases that move into the operands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from math import lcm

import torch
from torch import Tensor

from contractor.errors import RefusedError
from contractor.program.expression import Axes, Expression, Number
from contractor.program.masks.mask import Dense, Fade, RankOne, Step
from contractor.program.values import grouped
from contractor.run.complex import parts
from contractor.run.frame import Frame, aligned, laid_out, multiplied, padded
from contractor.run.transition import log_magnitude, magnitude, prefix
from contractor.schedules.parts.factors import CLOSED
from contractor.schedules.parts.form import Gate, Matrix
from contractor.schedules.parts.task import Crossing, complex_sides, promised

ZERO = 2.0**CLOSED  # kernels take a transition below it for 0


@dataclass(frozen=True, slots=True)
class Sides:
    """Query, key and value over [batch, heads, position, *batch letters, *features]; `result` is what the result is multiplied by."""

    query: Tensor
    key: Tensor
    value: Tensor
    result: Tensor | None = None


def fitted(frame: Frame, value: Expression, features: Axes, position: bool) -> Tensor:
    """A mask's argument over [batch, heads, S (size 1 if it has no position), *batch letters, *features]."""
    names = dict(frame.core.mask_letters)
    on_column = dict(zip(frame.core.inner, frame.core.column, strict=False)) if features == frame.core.column else {}
    letters = tuple(on_column.get(names.get(axis, axis), names.get(axis, axis)) for axis in value.axes)
    tensor = aligned(frame, value, letters, ("S", *frame.core.batch, *features))
    if not position:
        return tensor
    return tensor.expand(-1, -1, frame.problem.sizes.S, *tensor.shape[3:])


def feature_letters(frame: Frame, gate: Gate) -> Axes:
    """The letters of a gate's features: all inner ones, all outer ones, or both."""
    core = frame.core
    inner = (core.column or core.inner) if "n" in gate.features else ()
    return (*inner, *(core.outer if "p" in gate.features else ()))


def gate_tensor(frame: Frame, crossing: Crossing) -> Tensor:
    """A crossing's magnitude, laid out: [B, T, heads, *features] or, fixed, [heads, *features]; its log unless the gate is by value."""
    gate = crossing.gate
    letters = feature_letters(frame, gate)
    members = [member_tensor(frame, fade, gate, letters) for fade in crossing.members]
    total = reduce(multiplied if gate.by_value else added, members)
    total = padded(total, 2, 1 if gate.fixed else frame.length, 1.0 if gate.by_value else 0.0)
    total = total.expand(*total.shape[:3], *frame.extents(frame.core.batch), *frame.extents(letters))
    tensor = laid_out(frame, total, len(frame.core.batch), flattened(frame, gate), not gate.fixed)
    return doubled(frame, gate, tensor[0, 0] if gate.fixed else tensor).contiguous()


def member_tensor(frame: Frame, fade: Fade, gate: Gate, letters: Axes) -> Tensor:
    """One member of a gate: the log of its magnitude, or its magnitude; a real one beside a matrix with its sign."""
    value = fitted(frame, fade.value, letters, not gate.fixed)
    if not gate.by_value:
        return log_magnitude(value, fade.log).to(frame.exact)
    if fade.log:
        return log_magnitude(value, True).to(frame.exact).exp()
    return (value if frame.core.matrix and not value.is_complex() else magnitude(value)).to(frame.exact)


def added(left: Tensor, right: Tensor) -> Tensor:
    """A sum of tensors whose head counts may differ."""
    heads = lcm(left.shape[1], right.shape[1])
    return grouped(left, heads) + grouped(right, heads)


def nearly_zero(frame: Frame, crossing: Crossing) -> bool:
    """True if a transition given by value is so near 0 that the gradient of its log, divided by it, would have lost half of its digits
    (all of them at 0), and its gradient is wanted. Raises RefusedError for a complex one of 0."""
    limit = gradient_limit(frame.exact)
    found = False
    for fade in crossing.members:
        low, _ = promised(frame.problem.program, fade.value)
        value = None if fade.log or low >= limit else frame.evaluate(fade.value).tensor
        if value is None or not (value.requires_grad and torch.is_grad_enabled()):
            continue
        if value.is_complex() and any_below(value.abs(), ZERO):
            raise RefusedError(f"{frame.core.name}: a complex transition is exactly 0 where its gradient is wanted; give none of 0")
        found |= not value.is_complex() and any_below(value.abs(), limit)
    return found


def gradient_limit(exact: torch.dtype) -> float:
    """How small a transition may be for its gradient to be that of its log divided by it, with half of the digits left."""
    return torch.finfo(exact).eps ** 0.5


def any_below(magnitude: Tensor, limit: float) -> bool:
    """True if some magnitude is below a limit. The host waits for the device here."""
    return bool((magnitude < limit).any())


def flattened(frame: Frame, gate: Gate) -> tuple[int, ...]:
    """The sizes of a gate's feature dimensions: N and P before complex numbers double them."""
    core = frame.core
    extents = {"n": frame.extents(core.column or core.inner), "p": frame.extents(core.outer)}
    return tuple(torch.Size(extents[side]).numel() for side in gate.features)


def doubled(frame: Frame, gate: Gate, tensor: Tensor) -> Tensor:
    """The gate repeated for the imaginary parts beside it."""
    inner, outer = complex_sides(frame.core)
    first = tensor.dim() - len(gate.features)
    for index, side in enumerate(gate.features):
        if inner if side == "n" else outer:
            tensor = torch.cat((tensor, tensor), first + index)
    return tensor


# ---- signs and phases -------------------------------------------------------------------------------------------------------


def turned(frame: Frame, crossing: Crossing, sides: Sides) -> Sides:
    """The operands with the signs and phases of a crossing's members in them."""
    for fade in crossing.members:
        low, _ = promised(frame.problem.program, fade.value)
        real = fade.value.number < Number.COMPLEX
        if real and (fade.log or low >= 0 or frame.core.matrix):
            continue
        sides = turned_by(frame, fade, sides)
    return sides


def turned_by(frame: Frame, fade: Fade, sides: Sides) -> Sides:
    """The operands with one transition's unit factors in them: at the target with the query or the result, at the source with the
    key or the value."""
    core = frame.core
    kinds = core.sides(fade.value)
    assert not kinds >= {"inner", "outer"}, "letters of both sides of such a transition are folded into the heads"
    letters = core.outer if "outer" in kinds else (core.column or core.inner)
    position = "S" in fade.value.axes
    value = fitted(frame, fade.value, letters, position)
    positions = torch.arange(1, frame.length + 1, device=value.device)
    if core.term.mirrored and position:
        value = value.flip(2)
    turns = prefix(value, fade.log, 2, positions) if position else fixed_prefix(value, fade, positions)
    kind = like(frame, fade.value) if turns.is_complex() else frame.dtype  # a sign is one in any dtype
    turns = padded(turns.to(kind), 2, frame.length, 1.0)
    early = shifted(turns) if fade.shift else turns
    if core.term.mirrored:
        turns, early = turns.flip(2), early.flip(2)
    target, source = (turns, early) if frame.future else (early, turns)
    target, source = (target.conj(), source) if frame.future else (target, source.conj())
    if "outer" in kinds:
        result = target if sides.result is None else multiplied(sides.result, target)
        return replace(sides, value=multiplied(sides.value, source), result=result)
    return replace(sides, query=multiplied(sides.query, target), key=multiplied(sides.key, source))


def fixed_prefix(value: Tensor, fade: Fade, positions: Tensor) -> Tensor:
    """The unit factors of a fixed transition, to the power of each position, along dimension 2."""
    return prefix(value.squeeze(2), fade.log, None, positions).movedim(0, 2)


def shifted(turns: Tensor) -> Tensor:
    """The prefix one position earlier, 1 in front."""
    return torch.cat((torch.ones_like(turns[:, :, :1]), turns[:, :, :-1]), 2)


# ---- matrices ---------------------------------------------------------------------------------------------------------------


def matrix_tensors(frame: Frame, step: Step, form: Matrix) -> dict[str, Tensor]:
    """The tensors of a matrix transition: [B, T, heads, N, N] (or fixed, [heads, N, N]), or key, erase and log [B, T, heads, N]."""
    if len(frame.core.inner) != 1:
        raise RefusedError(f"{frame.core.name}: beside a matrix mask only the matrix' own axis may be summed between query and key")
    if isinstance(step, Dense):
        return {form.name: spread(frame, transition(frame, step, form), 2, form.fixed)}
    if isinstance(step, Fade):
        value = fitted(frame, step.value, frame.core.column, not form.fixed).to(like(frame, step.value))
        full = value.expand(*value.shape[:-1], *frame.extents(frame.core.column))
        return {form.name: spread(frame, torch.diag_embed(full.exp() if step.log else full), 2, form.fixed)}
    key = multiplied(vector(frame, step, step.key), vector(frame, step, step.beta))
    erase = vector(frame, step, step.erase)
    log = None if step.log is None else vector(frame, step, step.log).to(like(frame, step.log))
    if form.kind == "dense":
        return {form.name: spread(frame, whole(frame, key, erase, log), 2)}
    found = {f"{form.name}_key": key, f"{form.name}_erase": erase} | ({} if log is None else {f"{form.name}_log": log})
    return {name: spread(frame, tensor, 1) for name, tensor in found.items()}


def like(frame: Frame, value: Expression) -> torch.dtype:
    """The dtype of a transition: exact, complex where it is."""
    return frame.exact.to_complex() if value.number == Number.COMPLEX else frame.exact


def transition(frame: Frame, step: Dense, form: Matrix) -> Tensor:
    """A dense transition over [batch, heads, S, *batch letters, N, N]."""
    names = dict(frame.core.mask_letters)
    return fitted(frame, step.value, (names[step.row], names[step.column]), not form.fixed).to(like(frame, step.value))


def whole(frame: Frame, key: Tensor, erase: Tensor, log: Tensor | None) -> Tensor:
    """A rank-one step as the matrix diag(exp log) − key eraseᵀ."""
    width = frame.extents(frame.core.column)[0]
    key, erase = (one.expand(*one.shape[:-1], width) for one in (key, erase))
    kept = torch.eye(width, dtype=key.dtype, device=key.device)
    if log is not None:
        kept = torch.diag_embed(log.expand(*log.shape[:-1], width).exp())
    outer = multiplied(key.unsqueeze(-1), erase.unsqueeze(-2))
    return added(kept.expand(*(1 for _ in outer.shape[:-2]), width, width) if kept.dim() == 2 else kept, -outer)


def on_parts(matrix: Tensor) -> Tensor:
    """A matrix [..., N, N] on real and imaginary parts side by side: [..., 2N, 2N], real."""
    real, imaginary = parts(matrix)
    return torch.cat((torch.cat((real, -imaginary), -1), torch.cat((imaginary, real), -1)), -2)


def vector(frame: Frame, step: RankOne, value: Expression) -> Tensor:
    """A vector of a rank-one step over [batch, heads, S, *batch letters, N]; its feature is named by the row or the column."""
    letters = tuple("state" if axis in (step.row, step.column) else axis for axis in value.axes)
    tensor = aligned(frame, value, letters, ("S", *frame.core.batch, "state"))
    return tensor.expand(-1, -1, frame.problem.sizes.S, *tensor.shape[3:])


def spread(frame: Frame, tensor: Tensor, features: int, fixed: bool = False) -> Tensor:
    """A matrix' tensor with every size in full, laid out; a matrix on real and imaginary parts where the state is complex."""
    core = frame.core
    tensor = padded(tensor, 2, 1 if fixed else frame.length)
    tensor = tensor.expand(*tensor.shape[:3], *frame.extents(core.batch), *frame.extents(core.column * features))
    if complex_sides(core)[0]:
        tensor = on_parts(tensor)
    laid = laid_out(frame, tensor, len(core.batch), tuple(tensor.shape[-features:]), not fixed)
    return (laid[0, 0] if fixed else laid).contiguous()
