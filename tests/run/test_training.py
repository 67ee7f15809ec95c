"""What training does with an operator: checkpointing, autocast, gradients of gradients, single columns, quotients by large numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import contractor
from contractor.errors import RefusedError
from contractor.run.execute import Execution

EXAMPLES = Path(__file__).parents[2] / "examples"
GATED = """layer gated
input Q [T, N]
input K [S, N]
input V [S, P]
input F [S]
output contract(TN, SN, SP, TS -> TP)(Q, K, V, semiseparable(log = F))
"""


def operands(columns: int = 4, dtype: torch.dtype = torch.float32, length: int = 150) -> dict[str, Tensor]:
    """Random operands of the gated layer that want gradients."""
    made = torch.Generator().manual_seed(3)
    found = {name: torch.randn(1, length, 2, 8, generator=made).to(dtype) for name in "QK"}
    found["V"] = torch.randn(1, length, 2, columns, generator=made).to(dtype)
    found["F"] = torch.nn.functional.logsigmoid(torch.randn(1, length, 2, generator=made) + 2)
    return {name: one.requires_grad_() for name, one in found.items()}


def gradients(result: Tensor, given: dict[str, Tensor]) -> list[Tensor]:
    """The gradients along a fixed direction."""
    way = torch.linspace(-1, 1, result.numel(), dtype=result.dtype).reshape(result.shape)
    return list(torch.autograd.grad(result, list(given.values()), way))


def test_under_activation_checkpointing() -> None:
    op, given = contractor.compile(GATED, backend="torch"), operands()
    whole = gradients(op(**given), given)
    again = gradients(checkpoint(op, *given.values(), use_reentrant=False), given)
    assert all(torch.equal(one, other) for one, other in zip(whole, again, strict=True))


def test_autocast_takes_no_digits_from_what_is_promised_in_float32() -> None:
    op, given = contractor.compile(GATED, backend="torch"), operands()
    plain = op(**given)
    with torch.autocast("cpu", torch.bfloat16):
        cast = op(**given)
        found = gradients(cast, given)
    assert cast.dtype == torch.float32 and torch.equal(cast, plain)
    assert all(torch.equal(one, other) for one, other in zip(found, gradients(plain, given), strict=True))


def test_kernels_say_that_they_have_no_gradient_of_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    given = operands()
    result = contractor.compile(GATED, backend="torch")(**given)
    (first,) = torch.autograd.grad(result.sum(), given["Q"], create_graph=True)
    assert torch.autograd.grad(first.square().sum(), given["K"])[0].abs().sum() > 0
    monkeypatch.setattr(Execution, "followed", property(lambda _: False))
    result = contractor.compile(GATED, backend="torch")(**given)
    with pytest.raises(RefusedError, match="no gradients of gradients"):
        torch.autograd.grad(result.sum(), given["Q"], create_graph=True)


def test_the_gradient_of_a_gate_over_a_single_column_of_16_bits() -> None:
    op, given = contractor.compile(GATED, backend="torch", schedule="chunked"), operands(columns=1, dtype=torch.bfloat16, length=300)
    exact = {name: one.detach().double().requires_grad_() for name, one in given.items()}
    found = gradients(op(**given), given)
    wanted = gradients(op(**exact), exact)
    for name, one, other in zip(given, found, wanted, strict=True):
        assert (one - other).norm() <= 5e-3 * other.norm(), name


def test_a_quotient_by_large_numbers_keeps_its_gradient() -> None:
    text = GATED.replace("input F", "input n [T]\ninput F").replace("output contract", "Y [T, P] = contract") + "output Y / n\n"
    given = operands()
    given["n"] = torch.logspace(18, 30, 300).reshape(1, 150, 2).requires_grad_()
    given["V"] = (given["V"].detach() * 1e20).requires_grad_()
    op = contractor.compile(text, backend="torch")
    exact = {name: one.detach().double().requires_grad_() for name, one in given.items()}
    for name, one, other in zip(given, gradients(op(**given), given), gradients(op(**exact), exact), strict=True):
        assert (one - other).norm() <= 1e-4 * other.norm(), name
