"""A kernel, its tensors and its sizes → one launch, of Triton text or of torch text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from contractor.emit import torch as torch_text
from contractor.emit import triton as triton_text
from contractor.plan.plan import Tiling
from contractor.tile.access import descriptor_block
from contractor.tile.count import programs_of
from contractor.tile.kernel import Kernel

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:
    TensorDescriptor = None


def launch_torch(function: Callable[..., None], kernel: Kernel, tensors: dict[str, Tensor], sizes: dict[str, Any]) -> None:
    """All programs at once, by the torch text."""
    given = {**sizes, **tensors, "programs": programs_of(kernel, sizes)}
    function(*(given[name] for name in torch_text.arguments(kernel)))


def launch_triton(function: Any, kernel: Kernel, tensors: dict[str, Tensor], sizes: dict[str, Any], tiling: Tiling) -> None:
    """One grid, on the tensors' device."""
    given: dict[str, Any] = {**sizes, **tensors}
    for buffer in kernel.buffers:
        if buffer.via == "descriptor":
            block = [sizes.get(name, 1) for name in descriptor_block(kernel, buffer.name)]
            given[buffer.name] = described(tensors[buffer.name], block)
    arguments = {name: given[name] for name in triton_text.arguments(kernel)}
    with torch.cuda.device(tensors["result"].device):
        function[(programs_of(kernel, sizes),)](**arguments, num_warps=tiling.warps, num_stages=tiling.stages)


def described(tensor: Tensor, block: list[int]) -> Any:
    """A host descriptor over [batch, rows, heads × features]."""
    if TensorDescriptor is None:
        raise RuntimeError("this Triton has no host descriptors")
    return TensorDescriptor.from_tensor(tensor.flatten(2), block)
