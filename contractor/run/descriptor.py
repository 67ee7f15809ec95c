"""Host descriptors: how a kernel reaches tensors through the bulk copy engine."""

from __future__ import annotations

from typing import Any

from torch import Tensor

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:
    TensorDescriptor = None


def described(tensor: Tensor, block: list[int]) -> Any:
    """A host descriptor over [batch, rows, heads × features]. Raises RuntimeError where Triton is missing."""
    if TensorDescriptor is None:
        raise RuntimeError("host descriptors need Triton")
    return TensorDescriptor.from_tensor(tensor.flatten(2), block)
