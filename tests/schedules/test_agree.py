"""Random layers: every schedule that accepts one agrees with the oracle in float64, forward and all gradients, and the others say why not."""

from __future__ import annotations

import random

import pytest

from contractor.schedules.register import SCHEDULES
from tests.schedules.layers import check, drawn

GROUP = 10


def agree(seed: int) -> None:
    """One random layer."""
    layer = drawn(random.Random(seed))
    mistakes, refusals = check(layer.text, layer.tensors)
    about = f"seed {seed}\n{layer.text}{ {name: tuple(one.shape) for name, one in layer.tensors.items()} }"
    assert not mistakes, f"{about}\n{mistakes}"
    assert len(refusals) < len(SCHEDULES), f"{about}\n{refusals}"
    assert all(schedule in reason for schedule, reason in refusals.items()), about


@pytest.mark.parametrize("group", range(25))
def test_masks(group: int) -> None:
    for seed in range(group * GROUP, (group + 1) * GROUP):
        agree(seed)
