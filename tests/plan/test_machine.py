"""Machines by name, and seconds from counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contractor.errors import ArgumentError
from contractor.plan.cost import Cost, rounds, seconds
from contractor.plan.machine import CPU, H200, MACHINES, RTX4090, machine

COPY = Cost(flops=0, tensor_flops=0, bytes=537_000_000, launches=1, steps=1, programs=4096)


def test_every_machine_is_found_by_its_name() -> None:
    assert all(machine(name) is each and each.name == name for name, each in MACHINES.items())
    assert machine("RTX 4090") is machine("rtx-4090") is RTX4090
    assert {"h200", "h100", "a100", "b200", "rtx4090", "cpu"} <= set(MACHINES)


def test_an_unknown_machine_names_those_that_exist() -> None:
    with pytest.raises(ArgumentError, match=r"unknown machine 'v100'; there are h200, h100, a100, b200, rtx4090, cpu"):
        machine("v100")


@pytest.mark.parametrize("each", MACHINES.values(), ids=lambda each: each.name)
def test_rates(each: object) -> None:
    """16-bit products are the fastest, float64 is never faster than float32, and every dtype has a rate."""
    found = machine(each.name)  # type: ignore[attr-defined]
    assert found.tensor_rate("bfloat16") > found.scalar_rate("bfloat16") == found.scalar_rate("float32")
    assert found.tensor_rate("float32") >= found.tensor_rate("float64") > 0
    assert found.tensor_rate("complex64") == found.tensor_rate("float32")
    assert found.scalar_rate("complex128") == found.scalar_rate("float64")


def test_what_bounds_it() -> None:
    """The measured copy of the four tensors of a layer takes 0.126 ms on an H200; more of anything else takes over."""
    time, bound = seconds(COPY, H200, "bfloat16")
    assert bound == "bytes"
    assert time == pytest.approx(0.126e-3 + H200.launch, rel=0.01)
    assert seconds(replace(COPY, steps=4096), H200, "bfloat16")[1] == "steps"
    assert seconds(replace(COPY, launches=4096), H200, "bfloat16")[1] == "launches"
    assert seconds(replace(COPY, flops=10**12, tensor_flops=10**12), H200, "bfloat16")[1] == "tensor"
    assert seconds(replace(COPY, flops=10**12), H200, "bfloat16")[1] == "arithmetic"
    assert seconds(replace(COPY, exponentials=10**12), H200, "bfloat16")[1] == "arithmetic"


def test_few_programs_reach_a_share_of_the_arithmetic() -> None:
    busy = replace(COPY, flops=10**12, tensor_flops=10**12)
    full, few = (seconds(replace(busy, programs=count), H200, "bfloat16")[0] - H200.launch for count in (132, 33))
    assert few == pytest.approx(4 * full)
    assert seconds(replace(busy, programs=1), CPU, "float32") == seconds(busy, CPU, "float32")


def test_waves() -> None:
    """Two programs a multiprocessor: 264 run at once, 265 need a second wave; where some end early, the mean counts."""
    chain = replace(COPY, steps=64, programs=264)
    assert [rounds(replace(chain, programs=count), H200) for count in (1, 264, 265)] == [64, 64, 128]
    assert rounds(replace(chain, programs=2640, all_steps=2640 * 32), H200) == 320
    assert rounds(replace(chain, programs=8, all_steps=8 * 32), H200) == 64
    assert rounds(replace(chain, programs=10**6), CPU) == 64


def test_nothing_costs_a_launch() -> None:
    assert seconds(Cost(0, 0, 0, 1, 0, 0), H200, "float32") == (H200.launch, "launches")


@pytest.mark.parametrize(
    ("sizes", "measured"),
    [((4, 4096, 32, 128, 128), 0.134), ((8, 2048, 32, 64, 64), 0.078), ((4, 4096, 64, 128, 64), 0.197)],
)
def test_measured_kernels(sizes: tuple[int, ...], measured: float) -> None:
    """One-pass kernels of chunk 64 as they were measured on an H200, in milliseconds: the model is within a fifth."""
    batch, length, heads, inner, outer = sizes
    rows = batch * heads * length
    products = rows * (2 * 64 * (inner + outer) + 4 * inner * outer)
    cost = Cost(products, products, rows * 4 * (inner + outer), launches=1, steps=length // 64, programs=batch * heads)
    assert 1e3 * seconds(cost, H200, "bfloat16")[0] == pytest.approx(measured, rel=0.2)
