"""Chains of elementwise functions and norms over features by one generated kernel each, forward and backward."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from contractor.errors import RefusedError
from contractor.program.expression import Expression
from contractor.run.execute import Ready, launched, started
from contractor.run.mix import NO_SECOND
from contractor.schedules.parts import maps, norms
from contractor.schedules.parts.tilings import power
from contractor.tile.kernel import Kernel
from contractor.tile.routine import Launch, Routine

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
BLOCK, WARPS = 2048, 4  # elements of a program
WIDEST = 8192  # features of a row that a program holds

Made = Expression | str  # a map, or a norm by name


class Once(torch.autograd.Function):
    """A map or a norm of a tensor that lies densely in memory, laid out as it is."""

    @staticmethod
    def forward(saved: Any, x: Tensor, what: Made) -> Tensor:
        """The map, or the norm."""
        saved.what = what
        saved.save_for_backward(x)
        return launch(what, x, None)

    @staticmethod
    def backward(saved: Any, arrived: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradient of what was given. Raises RefusedError where that shall have a gradient itself."""
        if torch.is_grad_enabled():
            raise RefusedError(NO_SECOND)
        (x,) = saved.saved_tensors
        return launch(saved.what, x, arrived), None


def made(what: Made, x: Tensor) -> Tensor | None:
    """A map, or a norm over the last axis, of a tensor [batch, head, position, …]; None where its elements do not fill a stretch of
    memory, or there are none."""
    fitting = x.dtype in DTYPES and x.numel() and (x.is_contiguous() or turned(x).is_contiguous())
    if not fitting or (isinstance(what, str) and x.shape[-1] > WIDEST):
        return None
    return Once.apply(x, what) if torch.is_grad_enabled() and x.requires_grad else launch(what, x, None)


def launch(what: Made, x: Tensor, gradient: Tensor | None) -> Tensor:
    """One launch over the elements as they lie in memory."""
    back = not x.is_contiguous()
    given = {"x": turned(x) if back else x}
    if gradient is not None:
        given["gradient"] = turned(gradient) if back else gradient
    shape = (-1, x.shape[-1]) if isinstance(what, str) else (-1,)
    flat = {name: one.reshape(shape) for name, one in given.items()}
    found = launched(ready(what, gradient is not None, tuple(flat["x"].shape)), flat, x.dtype)["result"].view(given["x"].shape)
    return turned(found) if back else found


def turned(x: Tensor) -> Tensor:
    """Heads and positions exchanged."""
    return x.transpose(1, 2)


@lru_cache(maxsize=1024)
def ready(what: Made, slope: bool, shape: tuple[int, ...]) -> Ready:
    """The kernel of a map or a norm, or of its slope, for a tensor of some elements, or of rows."""
    if isinstance(what, str):
        kernel = (norms.slope_kernel if slope else norms.norm_kernel)(what)
        width = power(shape[1])
        return one_launch(kernel, (("ROWS", shape[0]), ("N", shape[1]), ("BLOCK_N", width), ("ROW_BLOCK", max(1, BLOCK // width))))
    kernel = (maps.slope_kernel if slope else maps.map_kernel)(what)
    return one_launch(kernel, (("COUNT", shape[0]), ("BLOCK", BLOCK)))


def one_launch(kernel: Kernel, sizes: tuple[tuple[str, int], ...]) -> Ready:
    """A kernel at its sizes."""
    return started(Routine((Launch(kernel, (), WARPS, 1, sizes),)), "triton", sizes)
