"""Emitted files of layers with packed sequences, states and pools: run alone, they give what the operator gives."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch

import contractor

torch.set_num_threads(1)
TEXT = """layer gated
input Q [T, N]
input K [S, N]
input V [S, P]
input G [S]
Y [T, P] = contract(TN, SN, SP, TS -> TP)(Q, K, V, semiseparable(log = G))
output Y
"""
BESIDE: dict[str, dict[str, Any]] = {
    "packed": {"packed": 3},
    "states": {"initial": True, "final": True},
    "final state": {"final": True},
    "step of a pool": {"pooled": True, "T": 1},
    "packed pool": {"pooled": True, "packed": 3},
}


@pytest.mark.parametrize("name", BESIDE)
def test_emitted_files_take_what_stands_beside_the_operands(name: str) -> None:
    beside = BESIDE[name]
    op = contractor.compile(TEXT)
    heads, width, length = 2, 16, beside.get("T", 70)
    batch = 1 if "packed" in beside else 2
    sizes = {"B": batch, "T": length, "H": heads, "N": width, "P": width}
    file = ModuleType("emitted")
    exec(op.source(machine="cpu", **{**sizes, **beside}), file.__dict__)
    made = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=made, dtype=torch.float64)

    operands = [normal(batch, length, heads, width) for _ in range(3)] + [-normal(batch, length, heads).abs()]
    alone, whole = given(op, beside, normal, batch, heads, width)
    wanted = op(*operands, **whole, return_state=bool(beside.get("final") or beside.get("pooled")))
    found = file.__dict__["gated_Y"](*operands, **alone)
    if not isinstance(wanted, tuple):
        torch.testing.assert_close(found, wanted)
        return
    result, state = wanted
    final = found[1] if beside.get("final") else alone["pool"]
    torch.testing.assert_close(found[0] if beside.get("final") else found, result)
    torch.testing.assert_close(final, state.tensors["Y"])


def given(
    op: contractor.Operator, beside: dict[str, Any], normal: Any, batch: int, heads: int, width: int
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The same for the file's function and for the operator."""
    sequences = beside.get("packed", batch)
    alone: dict[str, torch.Tensor] = {}
    whole: dict[str, Any] = {}
    if "packed" in beside:
        alone["starts"] = whole["cu_seqlens"] = torch.tensor([0, 3, 3, 70])
    if beside.get("initial"):
        alone["initial"] = whole["initial_state"] = normal(sequences, heads, width, width)
    if beside.get("pooled"):
        alone |= {"slots": torch.tensor([2, -1, 0][:sequences]), "pool": normal(4, heads, width, width)}
        pool = op.pool(4, dtype=torch.float64, H=heads, N=width, P=width)
        pool.tensors["Y"].copy_(alone["pool"])
        whole |= {"slots": alone["slots"], "initial_state": pool}
    return alone, whole


def test_a_pool_must_lie_together() -> None:
    """A copy of it would be updated, and lost."""
    file = ModuleType("emitted")
    exec(contractor.compile(TEXT).source(machine="cpu", B=2, T=1, H=2, N=4, P=4, pooled=True), file.__dict__)
    operands = [torch.zeros(2, 1, 2, 4) for _ in range(3)] + [torch.zeros(2, 1, 2)]
    with pytest.raises(ValueError, match="pool is updated in place: it must be contiguous"):
        file.__dict__["gated_Y"](*operands, slots=torch.tensor([0, 1]), pool=torch.zeros(2, 2, 4, 4).mT)
