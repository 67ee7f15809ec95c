"""Random layers: every schedule that accepts one agrees with the oracle, forward and all gradients, and the others say why not."""

from __future__ import annotations

import random

import pytest

from tests.schedules.layers import check, drawn

GROUP = 10


def agree(seed: int, matrix: bool) -> None:
    """One random layer."""
    layer = drawn(random.Random(seed), matrix)
    mistakes, refusals = check(layer.text, layer.tensors)
    about = f"seed {seed}\n{layer.text}{ {name: tuple(one.shape) for name, one in layer.tensors.items()} }"
    assert not mistakes, f"{about}\n{mistakes}"
    assert "chosen" not in refusals, f"{about}\n{refusals}"
    assert all(f"{schedule}: " in reason for schedule, reason in refusals.items()), f"{about}\n{refusals}"


@pytest.mark.parametrize("group", range(20))
def test_masks(group: int) -> None:
    for seed in range(group * GROUP, (group + 1) * GROUP):
        agree(seed, matrix=False)


@pytest.mark.parametrize("group", range(12))
def test_masks_of_matrices(group: int) -> None:
    for seed in range(group * GROUP, (group + 1) * GROUP):
        agree(seed, matrix=True)
