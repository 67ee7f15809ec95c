"""What an order of evaluation costs: counts in, seconds out. The counts come from the kernels themselves."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from contractor.plan.machine import KILO, Machine


@dataclass(frozen=True, slots=True)
class Cost:
    """flops: all floating-point operations; tensor_flops: those of them inside matrix products that use tensor units.
    bytes: moved through device memory (each tensor once a kernel). launches: kernels. steps: serial iterations of the longest
    chain of dependent work. programs: how many run side by side (the least over the launches). scratch: bytes of temporary memory.
    exponentials: exp and log. all_steps: iterations of all programs together, where some end early (0: programs · steps).

    Of one program: shared: bytes of shared memory, estimated from above; threads; registers: 32-bit, estimated; and, on average, what it
    waits for, one after the other: trips to memory and back, products of matrices, exchanges between its threads. fresh: the share of
    what is read that no program has read before, so that it is not in the cache.
    """

    flops: int
    tensor_flops: int
    bytes: int
    launches: int
    steps: int
    programs: int
    scratch: int = 0
    exponentials: int = 0
    all_steps: int = 0
    shared: int = 0
    threads: int = 128
    registers: int = 0
    trips: float = 0.0
    products: float = 0.0
    exchanges: float = 0.0
    fresh: float = 1.0


def seconds(cost: Cost, machine: Machine, dtype: str) -> tuple[float, str]:
    """How long it takes and what limits it: "bytes", "tensor", "arithmetic", "steps" or "launches".

    Memory, or the chain of what the programs of one multiprocessor do, whichever takes longer, plus the launches.
    """
    work = {
        "tensor": cost.tensor_flops / machine.tensor_rate(dtype),
        "arithmetic": (cost.flops - cost.tensor_flops) / machine.scalar_rate(dtype) + cost.exponentials / machine.exponentials,
    }
    chain = chained(cost, machine, work) if machine.kind == "gpu" else {**work, "steps": cost.steps * machine.step}
    together = sum(chain.values()) if machine.kind == "gpu" else max(chain.values())
    moving, launches = cost.bytes / machine.bandwidth, cost.launches * machine.launch
    slowest = "bytes" if moving >= together else max(chain, key=chain.__getitem__)
    longest = max(moving, together)
    return longest + launches, "launches" if launches > longest else slowest


def chained(cost: Cost, machine: Machine, work: dict[str, float]) -> dict[str, float]:
    """Seconds from the first statement to the last, by what they are spent on.

    A program has one multiprocessor. Its waits follow one another; the programs beside it wait at the same time, but take turns at the
    arithmetic. Programs that do not fit at once run in waves; where some end early, the next take their place.
    """
    programs = max(1, cost.programs)
    average = (cost.all_steps or programs * cost.steps) / programs
    trip = machine.trip + cost.fresh * machine.far
    waiting = cost.trips * trip + cost.products * machine.product + cost.exchanges * machine.exchange + average * machine.step
    beside = min(resident(cost, machine), ceil(programs / machine.multiprocessors))
    busy = {kind: spent * machine.multiprocessors / programs * beside for kind, spent in work.items()}
    waves = waves_of(cost, machine)
    return {kind: spent * waves for kind, spent in {**busy, "steps": waiting}.items()}


def waves_of(cost: Cost, machine: Machine) -> float:
    """How many average programs run one after the other: the longest takes longer than they do."""
    programs = max(1, cost.programs)
    places = machine.multiprocessors * resident(cost, machine)
    if not cost.all_steps or cost.all_steps == programs * cost.steps:
        return float(ceil(programs / places))
    return max(cost.steps * programs / cost.all_steps, programs / places)


def resident(cost: Cost, machine: Machine) -> int:
    """How many programs find room on one multiprocessor."""
    by_shared = (machine.shared + KILO) // (cost.shared + KILO)
    by_registers = machine.registers // max(1, cost.registers)
    return max(1, min(by_shared, by_registers, machine.threads // cost.threads))
