"""One contraction as a differentiable function: forward by its kernel, backward by roles or through the printed torch text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from contractor.errors import RefusedError
from contractor.run.gradient import Arrived, Passes, Run, Tensors, gradients
from contractor.run.whole import whole_backward
from contractor.schedules.parts.form import Gate, Task


class Evaluator(Passes, Protocol):
    """How a task is run: `kernel` by the chosen schedule's kernels, `text` by torch text that autograd can follow, `stepwise` by such
    text that takes transitions by value. followed: `kernel` too is text that autograd can follow."""

    @property
    def followed(self) -> bool:
        """True if autograd can follow `kernel`."""
        ...

    @property
    def text(self) -> Run:
        """By the torch text."""
        ...

    @property
    def stepwise(self) -> Run:
        """By torch text that takes transitions by value."""
        ...


def by_roles(task: Task) -> bool:
    """True if the gradient is the same contraction with its roles permuted."""
    form = task.form
    return not form.matrices and not form.tables and all(len(gate.features) < 2 for gate in form.gates)


def own_backward(task: Task, evaluator: Evaluator) -> bool:
    """True if the schedule has a pass that makes all gradients of a task under matrices."""
    shape = task.dimensions
    return bool(task.form.matrices) and 0 not in (shape.B, shape.T, shape.H, shape.N, shape.P) and evaluator.flows(task)


def valued(task: Task, zeros: frozenset[str]) -> Task:
    """The task with the named gates by value."""
    steps = tuple(replace(step, by_value=True) if isinstance(step, Gate) and step.name in zeros else step for step in task.form.steps)
    return replace(task, form=replace(task.form, steps=steps))


def result_dtype(task: Task, operands: torch.dtype) -> torch.dtype:
    """The dtype of a result: the operands', but a single column, which is most often a normaliser, stays in float32."""
    return torch.promote_types(operands, torch.float32) if task.dimensions.P == 1 else operands


class Mix(torch.autograd.Function):
    """result [B, T, H, P] of a task from its tensors, by name, and the state after it where the form asks for it. zeros: gates of the task
    whose tensors hold the transitions themselves, as some are exactly 0: the kernel takes their logs, and their gradient is found step
    by step."""

    @staticmethod
    def forward(
        saved: Any, task: Task, evaluator: Evaluator, names: tuple[str, ...], zeros: frozenset[str], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """Runs the kernel; keeps the tensors and the outputs."""
        named = {name: tensor.log() if name in zeros else tensor for name, tensor in zip(names, tensors, strict=True)}
        outputs = evaluator.kernel(task, named, result_dtype(task, named["value"].dtype))
        given = tuple(outputs[name] for name in RETURNED if name in outputs)
        saved.task, saved.evaluator, saved.names, saved.zeros, saved.count = task, evaluator, names, zeros, len(given)
        saved.save_for_backward(*given, *tensors)
        saved.set_materialize_grads(False)
        return given

    @staticmethod
    def backward(saved: Any, *arrived: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradient of every tensor that wants one. Raises RefusedError where that shall have a gradient itself and kernels make it."""
        if torch.is_grad_enabled() and not saved.evaluator.followed:
            raise RefusedError(NO_SECOND)
        kept = saved.saved_tensors  # once: activation checkpointing makes them anew each time
        outputs: Tensors = dict(zip(RETURNED, kept[: saved.count], strict=False))
        named: Tensors = dict(zip(saved.names, kept[saved.count :], strict=True))
        wanted = frozenset(name for name, needed in zip(saved.names, saved.needs_input_grad[4:], strict=True) if needed)
        result, final = (*arrived, None)[:2]
        came = Arrived(torch.zeros_like(outputs["result"]) if result is None else result.contiguous(), final)
        evaluator: Evaluator = saved.evaluator
        if saved.zeros:
            found = through_text(valued(saved.task, saved.zeros), named, came, wanted, evaluator.stepwise)
        elif own_backward(saved.task, evaluator):
            found = whole_backward(saved.task, named, came, wanted, evaluator.kernel)
        elif by_roles(saved.task):
            found = gradients(saved.task, named, outputs, came, wanted, evaluator)
        else:
            found = through_text(saved.task, named, came, wanted, evaluator.text)
        return None, None, None, None, *(found.get(name) for name in saved.names)


RETURNED = ("result", "final")
NO_SECOND = 'kernels have no gradients of gradients (create_graph=True); compile the layer with backend="torch"'


def mixed(task: Task, evaluator: Evaluator, zeros: frozenset[str], tensors: Tensors) -> Tensors:
    """The outputs of a task by name, as autograd can follow them where a tensor wants a gradient. zeros: as `Mix` takes them."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors.values()):
        return dict(zip(RETURNED, Mix.apply(task, evaluator, tuple(tensors), zeros, *tensors.values()), strict=False))
    named = {name: tensor.log() for name, tensor in tensors.items() if name in zeros}
    return evaluator.kernel(task, {**tensors, **named}, result_dtype(task, tensors["value"].dtype))


def through_text(task: Task, tensors: Tensors, arrived: Arrived, wanted: frozenset[str], run: Run) -> Tensors:
    """The gradients by autograd through the printed torch text, in float32 at least: a tensor's gradient is the sum of many small ones."""
    exact = torch.promote_types(arrived.result.dtype, torch.float32)
    wide = {name: tensor.detach().to(exact) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    leaves = {name: tensor.requires_grad_(name in wanted) for name, tensor in wide.items()}
    with torch.enable_grad():
        again = run(replace(task, dtype=str(exact).removeprefix("torch.")), leaves, exact)
    pairs = [(again["result"], arrived.result)] + ([] if arrived.final is None else [(again["final"], arrived.final)])
    followed = [(output, gradient.to(output.dtype)) for output, gradient in pairs if output.requires_grad]
    if not followed:
        return {}
    names = sorted(wanted)
    sources = [leaves[name] for name in names]
    ends, starts = zip(*followed, strict=True)
    found = torch.autograd.grad(ends, sources, starts, allow_unused=True, materialize_grads=True)
    return {name: one.to(tensors[name].dtype) for name, one in zip(names, found, strict=True)}
