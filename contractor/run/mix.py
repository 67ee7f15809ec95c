"""One contraction as a differentiable function: forward by its kernel, backward by roles or through the printed torch text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from contractor.run.gradient import Run, Tensors, gradients
from contractor.schedules.parts.form import Task


@dataclass(frozen=True, slots=True)
class Evaluator:
    """How a task is run: `kernel` by the chosen schedule's kernel, `text` by torch text that autograd can follow."""

    kernel: Run
    text: Run


def by_roles(task: Task) -> bool:
    """True if the gradient is the same contraction with its roles permuted."""
    form = task.form
    return not form.matrices and not form.tables and all(len(gate.features) < 2 for gate in form.gates)


class Mix(torch.autograd.Function):
    """result [B, T, H, P] of a task from its tensors, by name."""

    @staticmethod
    def forward(saved: Any, task: Task, evaluator: Evaluator, names: tuple[str, ...], *tensors: Tensor) -> Tensor:
        """Runs the kernel; keeps the tensors and the result."""
        named = dict(zip(names, tensors, strict=True))
        result = evaluator.kernel(task, named, named["value"].dtype)
        saved.task, saved.evaluator, saved.names = task, evaluator, names
        saved.save_for_backward(result, *tensors)
        return result

    @staticmethod
    def backward(saved: Any, *gradient_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of every tensor that wants one."""
        result, *tensors = saved.saved_tensors
        named: Tensors = dict(zip(saved.names, tensors, strict=True))
        wanted = frozenset(name for name, needed in zip(saved.names, saved.needs_input_grad[3:], strict=True) if needed)
        gradient = gradient_outputs[0].contiguous()
        differentiate = gradients if by_roles(saved.task) else through_text
        run = saved.evaluator.kernel if by_roles(saved.task) else saved.evaluator.text
        found = differentiate(saved.task, named, result, gradient, wanted, run)
        return None, None, None, *(found.get(name) for name in saved.names)


def through_text(task: Task, tensors: Tensors, result: Tensor, gradient: Tensor, wanted: frozenset[str], run: Run) -> Tensors:
    """The gradients by autograd through the printed torch text."""
    leaves = {name: tensor.detach().requires_grad_(name in wanted) for name, tensor in tensors.items()}
    with torch.enable_grad():
        again = run(task, leaves, result.dtype)
    if not again.requires_grad:
        return {}
    names = sorted(wanted)
    found = torch.autograd.grad(again, [leaves[name] for name in names], gradient, allow_unused=True)
    return {name: one for name, one in zip(names, found, strict=True) if one is not None}
