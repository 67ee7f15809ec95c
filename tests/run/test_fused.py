"""What kernels do around a contraction, beside states and packed sequences: whole, parts and steps are the same, with gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import contractor
from contractor.program.reference import reference

EXAMPLES = Path(__file__).parents[2] / "examples"
AROUND = """layer around
input Q [T, N]
input K [S, N]
input V [S, P]
input F [S]
input w [S]
input r [T]
param D []
Y [T, P] = contract(TN, SN, SP, TS -> TP)(Q, w * K, V, semiseparable(log = F))
output Y / (1 + r^2) * rsqrt(N) + D * V[T, P]
"""
PLAIN = AROUND.replace("semiseparable(log = F)", "causal()").replace("input F [S]\n", "").replace("around", "plain")
SKIPPED = """layer skipped
input Q [T, N]
input K [S, N]
input V [S, P]
input F [S{}]
param D []
L [T, S{}] = semiseparable(log = F, shift = {})
Y [T, P] = contract(TN, SN, SP, TS{} -> TP)(Q, K, V, L)
output 0.3 * Y + D * V[T, P]
"""
LENGTH, CUT = 150, 70


def around(gated: bool) -> dict[str, Tensor]:
    """Random operands of either layer; key, weights and skips have fewer heads."""
    made = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=made, dtype=torch.float64)

    found = {"Q": normal(1, LENGTH, 4, 5), "K": normal(1, LENGTH, 2, 5), "V": normal(1, LENGTH, 4, 3)}
    if gated:
        found["F"] = -normal(1, LENGTH, 4).abs()
    return {**found, "w": normal(1, LENGTH, 2), "r": normal(1, LENGTH, 4), "D": normal(2)}


def mamba() -> dict[str, Tensor]:
    """Random operands of Mamba-2's layer."""
    found = around(gated=True)
    names = {"C": found["Q"], "B": found["K"], "X": found["V"], "dt": found["F"]}
    return {**names, "A_log": found["D"].repeat(2) / 3, "dt_bias": found["D"].repeat(2), "D": found["D"]}


LAYERS = {
    "gated": (AROUND, lambda: around(gated=True)),
    "causal": (PLAIN, lambda: around(gated=False)),
    "mamba2": (EXAMPLES / "mamba2.ctr", mamba),
}


def cut(given: dict[str, Tensor], first: int, end: int) -> dict[str, Tensor]:
    """Some positions."""
    return {name: one[:, first:end] if one.dim() > 1 else one for name, one in given.items()}


def gradients(outputs: list[Tensor], given: dict[str, Tensor], before: Tensor) -> list[Tensor]:
    """The gradients of all operands and of the first state, along fixed directions."""
    ways = [torch.linspace(-1, 1, one.numel(), dtype=one.dtype).reshape(one.shape) for one in outputs]
    return list(torch.autograd.grad(outputs, [*given.values(), before], ways))


@pytest.mark.parametrize("schedule", ["chunked", "recurrent"])
@pytest.mark.parametrize("name", LAYERS)
def test_parts_and_steps_are_the_whole(name: str, schedule: str) -> None:
    source, make = LAYERS[name]
    op = contractor.compile(source, schedule=schedule, backend="torch")
    given = {key: one.requires_grad_() for key, one in make().items()}
    before = torch.linspace(-1, 1, 4 * 5 * 3, dtype=torch.float64).reshape(1, 4, 5, 3).requires_grad_()
    whole, final = op(**given, initial_state=before, return_state=True)
    first, state = op(**cut(given, 0, CUT), initial_state=before, return_state=True)
    second, state = op(**cut(given, CUT, LENGTH - 2), initial_state=state, return_state=True)
    rest: list[Tensor] = []
    for place in range(LENGTH - 2, LENGTH):
        one, state = op.step(state, **cut(given, place, place + 1))
        rest.append(one)
    parts = torch.cat((first, second, *rest), 1)
    torch.testing.assert_close(parts, whole, rtol=1e-10, atol=1e-10)
    (end,), (other,) = final.tensors.values(), state.tensors.values()
    found, wanted = gradients([parts, other], given, before), gradients([whole, end], given, before)
    for key, one, right in zip([*given, "the first state"], found, wanted, strict=True):
        assert (one - right).norm() <= 1e-9 * right.norm(), key


@pytest.mark.parametrize("schedule", ["chunked", "recurrent", "quadratic", "entrywise"])
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("side", ["", "N", "P"])
def test_a_skip_is_crossed_by_no_gate(side: str, shift: int, schedule: str) -> None:
    """Gates on either side of the state, late ones too: their gradients are sums in which what skips past must not stand."""
    text = SKIPPED.format("".join(f", {axis}" for axis in side), "".join(f", {axis}" for axis in side), shift, side)
    made = around(gated=True)
    gate = made["F"] if not side else -torch.rand(1, LENGTH, 4, {"N": 5, "P": 3}[side], dtype=torch.float64)
    given = {name: one.requires_grad_() for name, one in {**{key: made[key] for key in "QKVD"}, "F": gate}.items()}
    exact = {name: one.detach().clone().requires_grad_() for name, one in given.items()}
    op = contractor.compile(text, schedule=schedule, backend="torch")
    found, (wanted,) = op(**given), reference(op.program, exact)
    way = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).reshape(found.shape)
    pairs = zip(torch.autograd.grad(found, list(given.values()), way), torch.autograd.grad(wanted, list(exact.values()), way), strict=True)
    for key, (one, right) in zip(given, pairs, strict=True):
        assert (one - right).norm() <= 1e-10 * right.norm(), key


@pytest.mark.parametrize("name", LAYERS)
def test_packed(name: str) -> None:
    source, make = LAYERS[name]
    bounds = torch.tensor([0, 1, 1, 64, 149, 150])
    op = contractor.compile(source, schedule="chunked", backend="torch")
    given = {key: one.requires_grad_() for key, one in make().items()}
    exact = {key: one.detach().clone().requires_grad_() for key, one in given.items()}
    found = op(**given, cu_seqlens=bounds)
    (wanted,) = reference(op.program, exact, bounds)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    way = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).reshape(found.shape)
    pairs = zip(torch.autograd.grad(found, list(given.values()), way), torch.autograd.grad(wanted, list(exact.values()), way), strict=True)
    for key, (one, right) in zip(given, pairs, strict=True):
        assert (one - right).norm() <= 1e-9 * right.norm(), key
