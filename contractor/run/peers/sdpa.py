"""torch's scaled_dot_product_attention, causal, on the layer's query, key and value: another function, beside the layer for its time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from contractor.plan.problem import Problem
from contractor.run.peers.around import Around, unmixed
from contractor.run.peers.fitted import Fitted
from contractor.run.peers.structure import Structure, structure

NAMES = ("query", "key", "value")


class SDPA:
    """The adapter."""

    module: ClassVar[str] = "torch"

    def absent(self) -> str:
        """It comes with torch."""
        return ""

    def fit(self, problem: Problem) -> Fitted | str:
        """Any layer around one contraction of a query, a key and a value. The half of the scores above the diagonal is not counted."""
        found = structure(problem)
        if isinstance(found, str):
            return found
        sizes = problem.sizes
        flops = sizes.B * sizes.H * sizes.T * sizes.T * (found.inner + found.outer)
        return Fitted("causal attention", attention, flops, Inputs(found).made, same=False)


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """[batch, head, T, feature]."""
    return scaled_dot_product_attention(query, key, value, is_causal=True)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Query, key and value of a layer."""

    structure: Structure

    def made(self, operands: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Each with all heads, as tensors of their own."""
        around = Around(self.structure, operands, unmixed)
        numbers = (self.structure.query, self.structure.key, self.structure.value)
        values = [around.value(self.structure.contract.operands[one]) for one in numbers]
        tensors = [around.rows(value).to(around.dtype).transpose(1, 2).detach().contiguous() for value in values]
        return {name: tensor.requires_grad_() for name, tensor in zip(NAMES, tensors, strict=True)}


PEER = SDPA()
