"""Head groups that do not nest: counts of which none divides the other meet at their least common multiple."""

from __future__ import annotations

import pytest
import torch

import contractor

TEXT = """layer grouped
input Q [T, N]
input K [S, N]
input V [S, P]
input G [S]
param w []
Y [T, P] = contract(TN, SN, SP, TS -> TP)({operands}, {mask})
output {output}
"""
LAYERS = {
    "in a gate": ("Q, K, V", "semiseparable(log = G * sigmoid(w))", "Y"),
    "gates of a product": ("Q, K, V", "semiseparable(log = G) * decay(sigmoid(w))", "Y"),
    "in an operand": ("Q * w, G * K, V", "semiseparable(log = G)", "Y"),
    "in weights": ("Q, K, w * G * V", "decay(0.5)", "Y"),
    "around": ("Q, K, V", "window(3)", "Y + sum(Q * G[T] over N) * w"),
}
HEADS = [(6, 2, 6, 1, 3, 2), (6, 3, 2, 6, 2, 3), (12, 2, 3, 12, 4, 6), (12, 12, 1, 1, 2, 3)]


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("layer", LAYERS)
def test_counts_that_do_not_divide_each_other(layer: str, heads: tuple[int, ...]) -> None:
    """Values and gradients of the operator and of the reference are those of operands with all heads."""
    operands, mask, output = LAYERS[layer]
    op = contractor.compile(TEXT.format(operands=operands, mask=mask, output=output))
    made = torch.Generator().manual_seed(0)
    all_heads, *counts = heads
    given: dict[str, torch.Tensor] = {}
    for name, count, features in zip("QKVGw", counts, ([4], [4], [3], [], []), strict=True):
        shape = [count] if name == "w" else [2, 9, count, *features]
        given[name] = torch.randn(shape, generator=made, dtype=torch.float64).requires_grad_()
    whole = {
        name: one.repeat_interleave(all_heads // one.shape[-1 if name in "wG" else 2], -1 if name in "wG" else 2)
        for name, one in given.items()
    }
    (wanted,) = contractor.reference(op.program, whole)
    gradients = torch.autograd.grad(wanted.square().sum(), list(given.values()))
    for found in (op(**given), contractor.reference(op.program, given)[0]):
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(torch.autograd.grad(found.square().sum(), list(given.values())), gradients)
