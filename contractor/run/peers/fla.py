"""flash-linear-attention: causal linear attention, and the same under scalar gates (simple GLA: RetNet, Mamba-2, Lightning)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import torch
from torch import Tensor

from contractor.plan.problem import Problem
from contractor.program.masks.mask import Fade
from contractor.program.mixing import mixings
from contractor.program.values import Value
from contractor.run.peers.around import Around
from contractor.run.peers.fitted import Fitted, chunked_flops
from contractor.run.peers.structure import Structure, gates, normalised, scale, structure

try:
    from fla.ops.linear_attn import chunk_linear_attn  # pyright: ignore[reportMissingImports]
    from fla.ops.simple_gla import chunk_simple_gla  # pyright: ignore[reportMissingImports]
except ImportError:
    chunk_linear_attn: Any = None
    chunk_simple_gla: Any = None

CHUNK = 64


class FLA:
    """The adapter."""

    module: ClassVar[str] = "fla"

    def absent(self) -> str:
        """What to install."""
        return "" if chunk_simple_gla is not None else "not installed: pip install flash-linear-attention"

    def fit(self, problem: Problem) -> Fitted | str:
        """A causal mask with scalar gates; what stands around the contraction is torch, but for a scale and a normaliser."""
        found = structure(problem)
        if isinstance(found, str):
            return found
        steps = gates(found)
        if isinstance(steps, str):
            return steps
        times, divides = scale(found, found.output), normalised(found)
        if divides and steps:
            return "it has no normaliser under gates"
        if not divides and len(mixings(problem.program)) > 1:
            return "the layer has a second masked contraction, which is no normaliser"
        layer = Layer(found, steps, 1.0 if times is None else times, divides, whole=times is not None or divides)
        return Fitted(layer.says, layer.call, chunked_flops(problem, found.inner, found.outer, CHUNK))


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer as one call. whole: the call's result is the layer's output; else torch does the rest."""

    structure: Structure
    gates: tuple[Fade, ...]
    scale: float
    normalise: bool
    whole: bool

    @property
    def fixed(self) -> bool:
        """True if no gate depends on the position."""
        return not any(gate.value.axes for gate in self.gates)

    @property
    def says(self) -> str:
        """The function and its gate."""
        if not self.gates:
            return "chunk_linear_attn, normalize" if self.normalise else "chunk_linear_attn"
        return "chunk_simple_gla, g_gamma" if self.fixed else "chunk_simple_gla, g"

    def call(self, **operands: Tensor) -> Tensor:
        """The layer."""
        around = Around(self.structure, operands, self.mix)
        return around.output(self.structure.contract if self.whole else self.structure.output)

    def mix(self, values: tuple[Value, ...], around: Around) -> Tensor:
        """The contraction."""
        numbers = (self.structure.query, self.structure.key, self.structure.value)
        query, key, value = (around.rows(values[one]).to(around.dtype) for one in numbers)
        if not self.gates:
            return chunk_linear_attn(query, key, value, scale=self.scale, normalize=self.normalise)[0]
        logs = [gated(gate, around.value(gate.value), around.real) for gate in self.gates]
        if self.fixed:
            return chunk_simple_gla(query, key, value, g_gamma=total([around.heads(log) for log in logs]), scale=self.scale)[0]
        spread = [around.rows(log) if log.axes else around.heads(log) for log in logs]
        return chunk_simple_gla(query, key, value, g=total(spread), scale=self.scale)[0]


def gated(gate: Fade, value: Value, real: torch.dtype) -> Value:
    """The log of a gate."""
    tensor = value.tensor.to(real)
    return Value(tensor if gate.log else tensor.log(), value.axes)


def total(logs: list[Tensor]) -> Tensor:
    """All gates of one crossing."""
    return reduce(torch.add, logs)


PEER = FLA()
