"""A kernel, its tensors and its sizes → one launch, of Triton text or of torch text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from contractor.plan.plan import Tiling
from contractor.tile.count import evaluate
from contractor.tile.descriptor import block_shape
from contractor.tile.ops import Kernel

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:
    TensorDescriptor = None


def launch_torch(function: Callable[..., None], kernel: Kernel, tensors: dict[str, Tensor], sizes: dict[str, Any]) -> None:
    """All programs at once, by the torch text."""
    arguments = [tensors[one.name] for one in kernel.buffers]
    arguments += [sizes[name] for name in (*kernel.scalars, *kernel.constants)]
    function(*arguments, int(evaluate(kernel.programs, sizes)))


def launch_triton(function: Any, kernel: Kernel, tensors: dict[str, Tensor], sizes: dict[str, Any], tiling: Tiling) -> None:
    """One grid, on the tensors' device."""
    arguments = [described(tensors[one.name], block_shape(kernel, one, sizes)) if one.via == "descriptor" else tensors[one.name] for one in kernel.buffers]
    arguments += [sizes[name] for name in kernel.scalars]
    constants = {name: sizes[name] for name in kernel.constants}
    programs = int(evaluate(kernel.programs, sizes))
    with torch.cuda.device(next(iter(tensors.values())).device):
        function[(programs,)](*arguments, **constants, num_warps=tiling.warps, num_stages=tiling.stages)


def described(tensor: Tensor, block: list[int]) -> Any:
    """A host descriptor over [batch, rows, heads × features]."""
    if TensorDescriptor is None:
        raise RuntimeError("this Triton has no host descriptors")
    return TensorDescriptor.from_tensor(tensor.flatten(2), block)
