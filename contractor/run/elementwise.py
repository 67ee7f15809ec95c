"""Chains of elementwise functions by one generated kernel, forward and backward."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from contractor.program.expression import Expression
from contractor.run.execute import Ready, launched, started
from contractor.schedules.parts.maps import map_kernel, slope_kernel
from contractor.tile.routine import Launch, Routine

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
BLOCK, WARPS = 2048, 4


class Mapped(torch.autograd.Function):
    """A map of a tensor that lies densely in memory, laid out as it is."""

    @staticmethod
    def forward(saved: Any, x: Tensor, map_: Expression) -> Tensor:
        """The map."""
        saved.map_ = map_
        saved.save_for_backward(x)
        return made(map_, x, None)

    @staticmethod
    @once_differentiable
    def backward(saved: Any, arrived: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradient times the slope."""
        (x,) = saved.saved_tensors
        return made(saved.map_, x, arrived), None


def mapped(map_: Expression, x: Tensor) -> Tensor | None:
    """The map of a tensor [batch, head, position, …]; None where its elements do not fill a stretch of memory, or there are none."""
    fitting = x.dtype in DTYPES and x.numel() and (x.is_contiguous() or turned(x).is_contiguous())
    if not fitting:
        return None
    if torch.is_grad_enabled() and x.requires_grad:
        return Mapped.apply(x, map_)
    return made(map_, x, None)


def made(map_: Expression, x: Tensor, gradient: Tensor | None) -> Tensor:
    """One launch over the elements as they lie in memory."""
    back = not x.is_contiguous()
    given = {"x": turned(x) if back else x}
    if gradient is not None:
        given["gradient"] = turned(gradient) if back else gradient
    flat = {name: one.reshape(-1) for name, one in given.items()}
    found = launched(ready(map_, gradient is not None, x.numel()), flat, x.dtype)["result"].view(given["x"].shape)
    return turned(found) if back else found


def turned(x: Tensor) -> Tensor:
    """Heads and positions exchanged."""
    return x.transpose(1, 2)


@lru_cache(maxsize=1024)
def ready(map_: Expression, slope: bool, count: int) -> Ready:
    """The kernel of a map, or of its slope, for so many elements."""
    kernel = (slope_kernel if slope else map_kernel)(map_)
    sizes = (("COUNT", count), ("BLOCK", BLOCK))
    return started(Routine((Launch(kernel, (), WARPS, 1, sizes),)), "triton", sizes)
