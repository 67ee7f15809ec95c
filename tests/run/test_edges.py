"""The edges that a first user met: nothing at all, strong gates in float32, wide gates beside narrow operands, numbers, odd tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import contractor

EXAMPLES = Path(__file__).parents[2] / "examples"
GATED = """layer gated
input Q [T, N]
input K [S, N]
input V [S, P]
input G [S]
output contract(TN, SN, SP, TS -> TP)(Q, K, V, semiseparable(log = G))
"""
TAYLOR = """layer taylor
input Q [T, N]
phi [T, F] = concat(1, Q, outer(Q, Q) / sqrt(2))
output phi
"""


def test_nothing_has_second_order_features() -> None:
    assert contractor.compile(TAYLOR)(Q=torch.randn(1, 0, 2, 4)).shape == (1, 0, 2, 21)


def test_an_empty_batch_under_a_fixed_decay() -> None:
    operands = [torch.randn(0, 5, 2, 4, requires_grad=True) for _ in range(3)]
    result = contractor.compile(EXAMPLES / "retention.ctr")(*operands, gamma=torch.tensor([0.5, 0.9]))
    result.sum().backward()
    assert result.shape == (0, 5, 2, 4)
    assert all(one.grad is not None and one.grad.shape == one.shape for one in operands)


@pytest.mark.parametrize("schedule", ["quadratic", "chunked", "recurrent"])
def test_strong_gates_cost_weak_ones_no_digits(schedule: str) -> None:
    """float32: gates from 0 to −inf mixed along the sequence."""
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = (torch.randn(1, 130, 1, 16, generator=generator) for _ in range(3))
    strong = torch.tensor([0.0, -20.0, -88.0, -100.0, -103.9, -1000.0, float("-inf")])
    picked = strong[torch.randint(len(strong), (1, 130, 1), generator=generator)]
    gates = torch.where(torch.rand(1, 130, 1, generator=generator) < 0.5, picked, -0.1 * torch.rand(1, 130, 1, generator=generator))
    op = contractor.compile(GATED, schedule=schedule)
    (exact,) = contractor.reference(op.program, {"Q": queries, "K": keys, "V": values, "G": gates})
    assert (op(queries, keys, values, gates) - exact).norm() <= 1e-6 * exact.norm()


def test_gates_do_not_widen_a_contraction() -> None:
    operands = [torch.randn(1, 9, 2, 4, dtype=torch.bfloat16) for _ in range(3)]
    result = contractor.compile(EXAMPLES / "gla.ctr")(*operands, -torch.rand(1, 9, 2, 4))
    assert result.dtype == torch.bfloat16


def test_the_reference_takes_numbers() -> None:
    operands = {name: torch.randn(1, 5, 1, 3) for name in "QKV"}
    op = contractor.compile(EXAMPLES / "retention.ctr")
    (one,) = contractor.reference(op.program, {**operands, "gamma": 0.5})
    (other,) = contractor.reference(op.program, {**operands, "gamma": torch.tensor(0.5)})
    assert torch.equal(one, other)


def test_plans_take_torch_dtypes() -> None:
    op = contractor.compile(EXAMPLES / "retention.ctr")
    assert op.plan(T=64, N=8, P=8, dtype=torch.float32, machine="h200").problem.dtype == "float32"


@pytest.mark.parametrize("odd", [torch.eye(4).to_sparse(), torch.zeros(1, 4, 1, 4).to(torch.float8_e4m3fn)])
def test_odd_tensors_are_refused(odd: torch.Tensor) -> None:
    with pytest.raises(contractor.ArgumentError, match="Q must be a dense tensor of"):
        contractor.compile(EXAMPLES / "retention.ctr")(odd, odd, odd, 0.5)


def test_a_missing_file_is_said() -> None:
    with pytest.raises(contractor.ArgumentError, match=r"cannot read examples/nope\.ctr"):
        contractor.compile("examples/nope.ctr")
