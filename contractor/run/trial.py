"""A layer tried on random operands: its outputs and gradients beside the float64 reference, and how long it takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from contractor.plan.problem import Problem
from contractor.program.mixing import mixings
from contractor.program.reference import reference
from contractor.run.sample import sample

LARGEST = 1 << 25  # entries of the reference's largest tensor
ALLOWED = {"float64": (1e-10, 1e-8), "float32": (1e-5, 1e-4), "bfloat16": (5e-3, 1e-2), "float16": (5e-3, 1e-2)}
REPEATS = 3
Call = Callable[..., Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Compared:
    """One output, or the gradient of an operand. error: ‖it − reference‖ / ‖reference‖, None where nothing was compared; allowed: how
    large it may be."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    finite: bool
    error: float | None
    allowed: float

    @property
    def right(self) -> bool:
        """False if it is known to be wrong."""
        return self.finite and (self.error is None or self.error <= self.allowed)


@dataclass(frozen=True, slots=True)
class Trial:
    """What came out; milliseconds of the first forward call, of a later one, and of a forward and backward."""

    outputs: tuple[Compared, ...]
    gradients: tuple[Compared, ...]
    first: float
    forward: float
    both: float

    @property
    def right(self) -> bool:
        """True if nothing is known to be wrong."""
        return all(one.right for one in (*self.outputs, *self.gradients))


def trial(call: Call, problem: Problem, device: str, seed: int = 0) -> Trial:
    """Runs a layer forward and backward on random operands."""
    operands = sample(problem, device, seed)
    leaves = {name: one.requires_grad_(one.is_floating_point() or one.is_complex()) for name, one in operands.items()}
    wanted = [name for name, one in leaves.items() if one.requires_grad]
    first, outputs = timed(device, lambda: listed(call(**leaves)))
    weights = [torch.randn(one.shape, generator=torch.Generator().manual_seed(seed + 1)).to(one) for one in outputs]
    gradients = backward(outputs, weights, [leaves[name] for name in wanted])
    values, slopes = expected(problem, leaves, weights, wanted) if small(problem) else ((), ())
    allowed, allowed_slope = ALLOWED[problem.dtype]
    names = [f"output {number}" for number in range(1, len(outputs) + 1)]
    found = compared_all(names, outputs, values, allowed)
    sloped = compared_all(wanted, gradients, slopes, allowed_slope)
    with torch.no_grad():
        forward = min(timed(device, lambda: listed(call(**leaves)))[0] for _ in range(REPEATS))
    both = min(
        timed(device, lambda: backward(listed(call(**leaves)), weights, [leaves[name] for name in wanted]))[0] for _ in range(REPEATS)
    )
    return Trial(found, sloped, first, forward, both)


def listed(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Several outputs, or one."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


def backward(outputs: tuple[Tensor, ...], weights: list[Tensor], leaves: list[Tensor]) -> tuple[Tensor, ...]:
    """The gradients of Σ weight · output; zeros for what no output reads."""
    pairs = [(one, weight) for one, weight in zip(outputs, weights, strict=True) if one.requires_grad]
    if not pairs or not leaves:
        return tuple(torch.zeros_like(leaf) for leaf in leaves)
    values, slopes = [one for one, _ in pairs], [weight for _, weight in pairs]
    return torch.autograd.grad(values, leaves, slopes, allow_unused=True, materialize_grads=True)


def timed(device: str, run: Callable[[], tuple[Tensor, ...]]) -> tuple[float, tuple[Tensor, ...]]:
    """Milliseconds, and what came of it."""
    synchronize(device)
    begin = time.perf_counter()
    value = run()
    synchronize(device)
    return (time.perf_counter() - begin) * 1e3, value


def synchronize(device: str) -> None:
    """Waits for a GPU."""
    if device != "cpu":
        torch.cuda.synchronize()


# ---- the reference --------------------------------------------------------------------------------------------------------------


def small(problem: Problem) -> bool:
    """True if the reference's dense masks are small enough to be formed."""
    sizes = problem.sizes
    states = [axis for mixing in mixings(problem.program) for core in mixing.terms for axis in (*core.inner, *core.outer)]
    width = max(1, math.prod(sizes[axis] for axis in dict.fromkeys(states) if axis in sizes.mapping))
    return sizes.B * sizes.H * sizes.T * sizes.S * width <= LARGEST


def expected(
    problem: Problem, operands: Mapping[str, Tensor], weights: list[Tensor], wanted: list[str]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Outputs and gradients by definition, in float64."""
    leaves = {name: exact(one).requires_grad_(name in wanted) for name, one in operands.items()}
    outputs = reference(problem.program, leaves)
    return outputs, backward(outputs, [exact(weight) for weight in weights], [leaves[name] for name in wanted])


def exact(tensor: Tensor) -> Tensor:
    """The tensor on the CPU in the reference's dtype."""
    if tensor.is_complex():
        return tensor.detach().to("cpu", torch.complex128)
    return tensor.detach().to("cpu", torch.float64 if tensor.is_floating_point() else torch.int64)


def compared_all(names: list[str], found: tuple[Tensor, ...], wanted: tuple[Tensor, ...], allowed: float) -> tuple[Compared, ...]:
    """Each beside its reference; without one where nothing is wanted."""
    references = wanted or (None,) * len(found)
    return tuple(compared(name, one, reference, allowed) for name, one, reference in zip(names, found, references, strict=True))


def compared(name: str, found: Tensor, wanted: Tensor | None, allowed: float) -> Compared:
    """How far it is from the reference."""
    found = found.detach()
    error: float | None = None
    if wanted is not None:
        wanted = wanted.detach()
        scale = wanted.norm().item()
        error = (exact(found) - wanted).norm().item() / (scale or 1.0)
    return Compared(name, tuple(found.shape), str(found.dtype).removeprefix("torch."), bool(found.isfinite().all()), error, allowed)
