"""States that take turns and states that begin anew: dilated masks and blocks in the recurrent order, and what stays refused there."""

from __future__ import annotations

import pytest
import torch

import contractor

LAYER = """layer l
input Q [T, N]
input K [S, N]
input V [S, P]
input g [S]
L [T, S] = {mask}
output contract(TN, SN, SP, TS -> TP)(Q, K, V, L)
"""
CARRIED = (
    "dilated(3)",
    "dilated(2) * decay(0.9)",
    "dilated(3) * semiseparable(log = g)",
    "dilated(2) * semiseparable(log = g, shift = 1)",
    "blocks(5) * causal()",
    "blocks(4) * semiseparable(log = g)",
    "blocks(7) * dilated(2)",
    "reverse(dilated(3) * semiseparable(log = g))",
    "reverse(blocks(5) * causal())",
)


@pytest.mark.parametrize("mask", CARRIED)
@pytest.mark.parametrize("length", [1, 23])
def test_recurrent(mask: str, length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    shapes = {"Q": (2, length, 2, 4), "K": (2, length, 1, 4), "V": (2, length, 2, 3), "g": (2, length, 2)}
    given = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    given["g"] = -given["g"].abs()
    leaves = {name: tensor.requires_grad_() for name, tensor in given.items()}
    op = contractor.compile(LAYER.format(mask=mask), schedule="recurrent")
    result, (exact,) = op(**leaves), contractor.reference(op.program, leaves)
    torch.testing.assert_close(result, exact, rtol=0, atol=1e-10)
    slopes = torch.randn(exact.shape, generator=generator, dtype=torch.float64)
    wanted = torch.autograd.grad(exact, list(leaves.values()), slopes, allow_unused=True)
    found = torch.autograd.grad(result, list(leaves.values()), slopes, allow_unused=True)
    for one, other in zip(found, wanted, strict=True):
        if other is not None:
            torch.testing.assert_close(torch.zeros_like(other) if one is None else one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("mask", ["window(8)", "prefix(4)", "blocks(4)"])
def test_refused(mask: str) -> None:
    plan = contractor.compile(LAYER.format(mask=mask)).plan(T=64, N=8, P=8, machine="h200")
    (choice,) = plan.choices
    reasons = {other.schedule: getattr(other, "reason", "") for other in choice.others}
    assert mask.split("(")[0] in reasons["recurrent"]
