"""What an order of evaluation costs: counts in, seconds out. The counts come from the kernels themselves."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from contractor.plan.machine import Machine


@dataclass(frozen=True, slots=True)
class Cost:
    """flops: all floating-point operations; tensor_flops: those of them inside matrix products that use tensor units.
    bytes: moved through device memory (each tensor once a kernel). launches: kernels. steps: serial iterations of the longest
    chain of dependent work. programs: how many run side by side (the least over the launches). scratch: bytes of temporary memory.
    exponentials: exp and log. resident: programs that fit on one multiprocessor. all_steps: iterations of all programs together,
    where some end early (0: programs · steps). shared: bytes of shared memory of one program, estimated from above."""

    flops: int
    tensor_flops: int
    bytes: int
    launches: int
    steps: int
    programs: int
    scratch: int = 0
    exponentials: int = 0
    resident: int = 2
    all_steps: int = 0
    shared: int = 0


def seconds(cost: Cost, machine: Machine, dtype: str) -> tuple[float, str]:
    """How long it takes and what limits it: "bytes", "tensor", "arithmetic", "steps" or "launches".

    The slowest of memory, tensor units, scalar units and the chain of steps, plus the launches. A program runs on one
    multiprocessor, so fewer programs than multiprocessors reach only their share of the arithmetic.
    """
    share = min(1.0, max(1, cost.programs) / machine.multiprocessors) if machine.kind == "gpu" else 1.0
    scalar = (cost.flops - cost.tensor_flops) / machine.scalar_rate(dtype) + cost.exponentials / machine.exponentials
    limits = {
        "bytes": cost.bytes / machine.bandwidth,
        "tensor": cost.tensor_flops / machine.tensor_rate(dtype) / share,
        "arithmetic": scalar / share,
        "steps": rounds(cost, machine) * machine.step,
    }
    slowest = max(limits, key=limits.__getitem__)
    launches = cost.launches * machine.launch
    return limits[slowest] + launches, "launches" if launches > limits[slowest] else slowest


def rounds(cost: Cost, machine: Machine) -> int:
    """Serial iterations end to end. On a GPU programs that do not fit at once run in waves; where some end early, the next take
    their place. The torch text runs all programs at once, as one batch."""
    if machine.kind == "cpu":
        return cost.steps
    places = machine.multiprocessors * cost.resident
    if cost.all_steps:
        return max(cost.steps, ceil(cost.all_steps / places))
    return ceil(cost.programs / places) * cost.steps
