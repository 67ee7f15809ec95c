"""Random tensors of a task, as its kernels read them: gates of several strengths, labels in runs, packed sequences of all lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from contractor.schedules.parts.form import ROLES, WEIGHTS, Gate, Matrix, Task
from contractor.tile.kernel import Buffer
from contractor.tile.routine import Routine
from contractor.tile.rules import DTYPES

LABELS = 4
SPECTRUM = 0.7  # of matrices, so that nothing grows along the sequence


@dataclass(frozen=True, slots=True)
class Strength:
    """How strongly gates fade: the size of their logs, and the share of them that are closed, where nothing rules that out. even: packed
    sequences are of one length; else some are empty."""

    log: float
    closed: float = 0.0
    even: bool = False


STRENGTHS = (Strength(0.01), Strength(0.5), Strength(4.0, closed=0.05))
USUAL = Strength(0.05, even=True)


def drawn(task: Task, routine: Routine, sizes: Mapping[str, int], strength: Strength, made: torch.Generator) -> dict[str, Tensor]:
    """Every tensor that a routine of a task is given, on the generator's device, in the dtypes that calls bring."""
    buffers = {one.name: one for launch in routine.launches for one in launch.kernel.buffers}
    draw = Draw(task, sizes, strength, made)
    return draw.matrices({name: draw.tensor(buffers[name]) for name in routine.inputs})


@dataclass(frozen=True, slots=True)
class Draw:
    """What the tensors of one task are drawn from."""

    task: Task
    sizes: Mapping[str, int]
    strength: Strength
    made: torch.Generator

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self.made, device=self.made.device)

    def tensor(self, buffer: Buffer) -> Tensor:
        """One tensor."""
        shape = tuple(self.sizes[dim] for dim in buffer.dims)
        exact = torch.float64 if self.task.dtype == "float64" else torch.float32
        if buffer.dtype in ("i32", "i64"):
            return self.integers(buffer, shape).to(DTYPE_OF[buffer.dtype])
        gate = next((one for one in self.task.form.gates if one.name == buffer.name), None)
        if gate is not None:
            return self.gate(gate, shape).to(exact)
        if buffer.dtype in DTYPES or buffer.name == "initial":
            return self.normal(shape).to(exact)
        scaled = self.normal(shape) * (shape[-1] ** -0.5 if buffer.name == ROLES[0] else 1.0)
        return scaled.to(getattr(torch, self.task.dtype))

    def integers(self, buffer: Buffer, shape: tuple[int, ...]) -> Tensor:
        """Bounds of packed sequences, labels of positions, arguments of the support."""
        length = self.sizes["T"]
        if buffer.dims == ("BOUNDS",):
            count = shape[0] - 1
            even = torch.arange(count + 1, device=self.made.device) * length // max(1, count)
            if self.strength.even or count < 2:
                return even
            cuts = torch.randint(0, length + 1, (count - 1,), generator=self.made, device=self.made.device)
            return torch.cat((even[:1], cuts.sort().values, even[-1:]))
        if len(shape) > 1:
            return torch.randint(0, LABELS, shape, generator=self.made, device=self.made.device).sort(1).values
        return torch.randint(1, max(2, length), shape, generator=self.made, device=self.made.device)

    def gate(self, gate: Gate, shape: tuple[int, ...]) -> Tensor:
        """The logs of a gate, or its values."""
        log = -self.strength.log * self.normal(shape).abs()
        if gate.resets and self.strength.closed:
            log = torch.where(torch.rand(shape, generator=self.made, device=self.made.device) < self.strength.closed, -torch.inf, log)
        return log.exp() if gate.by_value else log

    def matrices(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The same with matrix transitions under which nothing grows."""
        for step in self.task.form.matrices:
            tensors |= dense(step, tensors) if step.kind == "dense" else rank_one(step, tensors, self.strength)
        return tensors


DTYPE_OF = {"i32": torch.int32, "i64": torch.int64}


def dense(step: Matrix, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices with eigenvalues inside the unit circle."""
    matrix = tensors[step.name]
    return {step.name: matrix * (SPECTRUM * matrix.shape[-1] ** -0.5)}


def rank_one(step: Matrix, tensors: dict[str, Tensor], strength: Strength) -> dict[str, Tensor]:
    """1 − half the projection on a direction, and a log that fades."""
    if step.tied:
        unit = torch.nn.functional.normalize(tensors["key"].float(), dim=-1).to(tensors["key"].dtype)
        return {"key": unit, WEIGHTS["source"]: torch.sigmoid(tensors[WEIGHTS["source"]])}
    direction = torch.nn.functional.normalize(tensors[f"{step.name}_key"], dim=-1)
    found = {f"{step.name}_key": direction / 2, f"{step.name}_erase": direction}
    log = f"{step.name}_log"
    return found | ({log: -strength.log * tensors[log].abs()} if log in tensors else {})
