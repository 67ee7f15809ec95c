"""Machines by name, and their rates."""

from __future__ import annotations

import pytest

from contractor.errors import ArgumentError
from contractor.plan.machine import MACHINES, RTX4090, machine


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
