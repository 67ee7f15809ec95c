"""Host descriptors: how a kernel reaches tensors through the bulk copy engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:
    TensorDescriptor = None


@dataclass(frozen=True, slots=True)
class Described:
    """A descriptor of tensors of one shape over [batch, rows, heads × features]: its checks are made once."""

    fields: dict[str, Any]

    @staticmethod
    def of(tensor: Tensor, block: list[int]) -> Described:
        """The descriptor of contiguous tensors like this one. Raises RuntimeError where Triton is missing."""
        if TensorDescriptor is None:
            raise RuntimeError("host descriptors need Triton")
        found = TensorDescriptor.from_tensor(tensor.flatten(2), block)
        return Described({**vars(found), "base": None})

    def over(self, tensor: Tensor) -> Any:
        """The descriptor of one tensor."""
        found: Any = object.__new__(TensorDescriptor)  # pyright: ignore[reportArgumentType, reportCallIssue]
        vars(found).update(self.fields, base=tensor)
        return found
