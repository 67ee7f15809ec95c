"""What a person calls: a compiled layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from contractor.errors import ArgumentError
from contractor.plan.plan import Plan
from contractor.plan.problem import Problem
from contractor.program.program import Program
from contractor.run.layer import Prepared, called

MOST_SHAPES = 256


@dataclass(frozen=True, slots=True)
class Steps:
    """The arrows that an operator follows, handed to it by the pipeline.

    pose: operands' shapes and dtype → the problem. plan: a problem (and a machine's name, or None for the one at hand) → its plan.
    prepare: a problem and a device → what its calls share. source: a plan → the text of its kernels. explain: a plan → every stage as text.
    """

    pose: Callable[[dict[str, tuple[int, ...]], str], Problem]
    size: Callable[..., Problem]
    plan: Callable[[Problem, str | None], Plan]
    prepare: Callable[[Problem, torch.device], Prepared]
    source: Callable[[Plan], str]
    explain: Callable[[Plan], str]


@dataclass(frozen=True, slots=True)
class Operator:
    """A compiled layer: call it with its operands by name, or by position in the order declared.

    Inputs with a position are [batch, position, head, features…], params [head, features…] (a number for one without axes). Returns
    the output [batch, position, head, features…], several as a tuple. Differentiable in every operand that is not an int.
    """

    program: Program
    steps: Steps
    known: dict[Any, Prepared] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, *positional: Any, **named: Any) -> Tensor | tuple[Tensor, ...]:
        """The layer's outputs.

        Raises ArgumentError if an operand is missing, unknown, or does not fit: it names operand, axis and both sizes.
        """
        tensors = self.bound(positional, named)
        dtype = working_dtype(self.program, tensors)
        outputs = called(self.prepared(tensors, dtype), tensors, dtype)
        return outputs[0] if len(outputs) == 1 else outputs

    def prepared(self, tensors: dict[str, Tensor], dtype: torch.dtype) -> Prepared:
        """What calls at these shapes share, prepared at the first of them."""
        device = next(iter(tensors.values())).device
        key = (tuple(tensor.shape for tensor in tensors.values()), dtype, device)
        if key not in self.known:
            if len(self.known) >= MOST_SHAPES:
                self.known.clear()
            shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
            self.known[key] = self.steps.prepare(self.steps.pose(shapes, str(dtype).removeprefix("torch.")), device)
        return self.known[key]

    def plan(self, machine: str | None = None, **sizes: Any) -> Plan:
        """Every order of evaluation at the given sizes (`B=4, T=4096, H=32, N=128, …, dtype="bfloat16", heads={"K": 8}`): flops, bytes,
        milliseconds and what bounds it, or why it was refused. Needs no tensors and no GPU."""
        return self.steps.plan(self.steps.size(self.program, **sizes), machine)

    def source(self, machine: str | None = None, **sizes: Any) -> str:
        """The text of the kernels that the plan chooses: Triton for a GPU, torch for a CPU."""
        return self.steps.source(self.plan(machine, **sizes))

    def explain(self, machine: str | None = None, **sizes: Any) -> str:
        """Every stage from the spec to the kernels, one under the other."""
        return self.steps.explain(self.plan(machine, **sizes))

    def bound(self, positional: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Tensor]:
        """The operands by name."""
        names = [operand.name for operand in self.program.operands]
        if len(positional) > len(names):
            raise ArgumentError(f"{self.program.name} takes {len(names)} operands ({', '.join(names)}), not {len(positional)}")
        given = dict(zip(names, positional, strict=False))
        if twice := [name for name in named if name in given]:
            raise ArgumentError(f"{', '.join(twice)} given twice: by position and by name")
        given |= named
        if unknown := [name for name in given if name not in names]:
            raise ArgumentError(f"{self.program.name} has no operand {', '.join(unknown)}; it has {', '.join(names)}")
        if missing := [name for name in names if name not in given]:
            raise ArgumentError(f"{self.program.name} needs {', '.join(missing)} too; its operands are {', '.join(names)}")
        return on_one_device({name: given[name] for name in names})


def on_one_device(given: dict[str, Any]) -> dict[str, Tensor]:
    """Numbers as tensors beside the tensors. Raises ArgumentError for tensors on two devices."""
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    devices = {tensor.device: name for name, tensor in tensors.items()}
    if len(devices) > 1:
        places = ", ".join(f"{name} is on {device}" for device, name in devices.items())
        raise ArgumentError(f"the operands are on {len(devices)} devices: {places}")
    device = next(iter(devices), torch.device("cpu"))
    return {name: value if isinstance(value, Tensor) else as_tensor(name, value, device) for name, value in given.items()}


def as_tensor(name: str, value: Any, device: torch.device) -> Tensor:
    """A number as a tensor."""
    if not isinstance(value, int | float | complex):
        raise ArgumentError(f"{name} must be a tensor or a number, not {type(value).__name__}")
    return torch.tensor(value, device=device)


def working_dtype(program: Program, tensors: dict[str, Tensor]) -> torch.dtype:
    """The dtype that contractions are computed in: what the inputs with feature axes promote to, as a real dtype.

    Gates, step sizes and params may be of higher precision; they do not widen the contraction.
    """
    floating = {name: tensor.dtype for name, tensor in tensors.items() if tensor.dtype.is_floating_point or tensor.dtype.is_complex}
    wide = [
        operand.name for operand in program.operands if operand.role == "input" and any(axis not in ("T", "S") for axis in operand.axes)
    ]
    chosen = [floating[name] for name in wide if name in floating] or list(floating.values()) or [torch.get_default_dtype()]
    dtype = chosen[0]
    for other in chosen[1:]:
        dtype = torch.promote_types(dtype, other)
    return dtype.to_real()
