"""What a call is given: operands of the right kind, on one device, and the dtype that they are computed in."""

from __future__ import annotations

from functools import reduce
from operator import index
from typing import Any

import torch
from torch import Tensor

from contractor.errors import ArgumentError
from contractor.program.expression import POSITIONS, Number
from contractor.program.program import Operand

FLOATING = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128)
DTYPES = (*FLOATING, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def likeness(value: Any) -> Any:
    """All of an operand that a call's preparation depends on."""
    return (value.shape, value.dtype, value.device, value.layout) if isinstance(value, Tensor) else type(value)


def length_of(operands: tuple[Operand, ...], given: dict[str, Any]) -> int:
    """How many positions a call has."""
    lengths = [given[one.name].shape[1] for one in operands if positioned(one) and isinstance(given[one.name], Tensor)]
    return max(lengths, default=0)


def ends_of(wanted: Any, length: int) -> tuple[int, ...]:
    """The positions after which states are wanted. Raises ArgumentError unless they rise and lie within the length."""
    try:
        ends = tuple(index(end) for end in wanted)
    except TypeError:
        ends = ()
    if not ends or list(ends) != sorted(set(ends)) or not 0 <= ends[0] <= ends[-1] <= length:
        raise ArgumentError(f"return_state must be True, False or rising positions from 0 to {length}, not {wanted!r}")
    return ends


def positioned(operand: Operand) -> bool:
    """True for an operand [batch, position, …]."""
    return operand.role == "input" and any(axis in POSITIONS for axis in operand.axes)


def cut(operand: Operand, value: Any, first: int, end: int) -> Any:
    """Some positions of an operand that has them."""
    return value[:, first:end] if positioned(operand) and isinstance(value, Tensor) else value


def stepped(operand: Operand, value: Any) -> tuple[Any, bool | None]:
    """An operand of a single step with its position, and whether it had one already (None: it has no position)."""
    positions = [axis for axis in operand.axes if axis in POSITIONS]
    if operand.role == "param" or not positions:
        return value, None
    whole = isinstance(value, Tensor) and value.dim() == 2 + len(operand.axes)
    if isinstance(value, Tensor) and value.dim() == 1 + len(operand.axes):
        return value.unsqueeze(1), False
    if not whole or value.shape[1] != 1:
        shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        features = ", ".join(["batch", "head", *operand.axes[1:]])
        raise ArgumentError(f"{operand.name} of a step must be [{features}], one position, not {shape}")
    return value, True


def refuse_kind(operand: Operand, value: Any) -> None:
    """Raises ArgumentError for what is no dense tensor of a known dtype and no number, and for numbers of another kind than declared."""
    if not isinstance(value, Tensor | int | float | complex):
        raise ArgumentError(f"{operand.name} must be a tensor or a number, not {type(value).__name__}")
    if isinstance(value, Tensor) and (value.layout != torch.strided or value.dtype not in DTYPES):
        kinds = ", ".join(str(one).removeprefix("torch.") for one in DTYPES)
        raise ArgumentError(f"{operand.name} must be a dense tensor of {kinds}, not {value.layout} {value.dtype}")
    found = kind(value)
    if found > operand.number:
        raise ArgumentError(f"{operand.name} is declared {operand.number.name.lower()}, and what is given is {found.name.lower()}")


def kind(value: Tensor | complex) -> Number:
    """int, real or complex."""
    if isinstance(value, Tensor):
        return Number.COMPLEX if value.is_complex() else Number.REAL if value.is_floating_point() else Number.INT
    return Number.COMPLEX if isinstance(value, complex) else Number.REAL if isinstance(value, float) else Number.INT


def device_of(given: dict[str, Any]) -> torch.device:
    """The tensors' device. Raises ArgumentError if there are two."""
    devices: dict[torch.device, str] = {}
    for name, value in given.items():
        if isinstance(value, Tensor):
            devices.setdefault(value.device, name)
    if len(devices) > 1:
        places = ", ".join(f"{name} is on {device}" for device, name in devices.items())
        raise ArgumentError(f"the operands are on {len(devices)} devices: {places}")
    return next(iter(devices), torch.device("cpu"))


def as_working(output: Tensor, dtype: torch.dtype) -> Tensor:
    """An output in the working dtype, or its complex one."""
    if output.dtype is dtype:
        return output
    if output.is_complex():
        return output.to(torch.promote_types(dtype, torch.float32).to_complex())
    return output.to(dtype) if output.is_floating_point() else output


def working_dtype(contracted: tuple[str, ...], given: dict[str, Any]) -> torch.dtype:
    """The dtype that contractions are computed in: what the inputs with feature axes that enter them promote to, as a real dtype.

    Without such inputs it is what all tensors promote to.
    """
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    floating = {name: tensor.dtype for name, tensor in tensors.items() if tensor.dtype.is_floating_point or tensor.dtype.is_complex}
    chosen = [floating[name] for name in contracted if name in floating] or list(floating.values()) or [torch.get_default_dtype()]
    return reduce(torch.promote_types, chosen).to_real()
