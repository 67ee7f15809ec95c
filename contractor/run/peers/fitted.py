"""What a peer hands over for a layer that fits it: something to call on the layer's own operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from contractor.plan.problem import Problem

Operands = dict[str, Tensor]


def themselves(operands: Mapping[str, Tensor]) -> Operands:
    """The layer's operands as they are."""
    return dict(operands)


@dataclass(frozen=True, slots=True)
class Fitted:
    """says, version: the function that is called, in short, and its library's version. call: operands by name → the layer's output in call
    layout, differentiable where the peer is. flops: of its matrix products, forward. inputs: what `call` takes, made once from the layer's
    operands, outside of what is timed. same: its numbers are the layer's; False for another function that stands beside it for its time
    alone."""

    says: str
    call: Callable[..., Tensor]
    flops: int
    inputs: Callable[[Mapping[str, Tensor]], Operands] = themselves
    same: bool = True
    version: str = ""


class Peer(Protocol):
    """An adapter: each module of this folder that the register names has one as PEER. module: of the library, as it is imported."""

    module: ClassVar[str]

    def absent(self) -> str:
        """How to install what is missing; "" if nothing is."""
        ...

    def fit(self, problem: Problem) -> Fitted | str:
        """The layer as this peer computes it, or why it cannot."""
        ...


def chunked_flops(problem: Problem, inner: int, outer: int, chunk: int) -> int:
    """The products of the two-pass chunked form: scores and their use inside each chunk, states made and read."""
    sizes = problem.sizes
    return 2 * sizes.B * sizes.H * sizes.T * (chunk * (inner + outer) + 2 * inner * outer)
