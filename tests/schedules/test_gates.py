"""Hard gates: open, nearly closed, closed, negative, exactly zero; resets in the middle; all of them with their gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from contractor.pipeline import Options, operator, program_of
from contractor.schedules.register import SCHEDULES
from tests.schedules.layers import CHUNK, Answer, answered, check, expected, wrong

LOGS = (0.0, -1e-4, -1.0, -20.0, -88.0, -1000.0, -math.inf)
VALUES = (0.0, -0.5, 1.0, -1.0, 1e-30)
LENGTH = CHUNK + 6
AXES = {"": (), "N": (3,), "P": (2,), "NP": (3, 2)}


def layer(mask: str, extra: str, gate: str) -> str:
    """A layer under a mask whose gate is `a`."""
    names = "".join(f", {axis}" for axis in extra)
    declared = f"input a [S{names}]" if gate == "S" else f"param a [{', '.join(extra)}]"
    return f"""layer hard
input Q [T, N]
input K [S, N]
input V [S, P]
{declared}
L [T, S{names}] = {mask}
Y [T, P] = contract(TN, SN, SP, TS{extra} -> TP)(Q, K, V, L)
output Y
"""


def operands(gate: Tensor) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = {"Q": (2, LENGTH, 2, 3), "K": (1, LENGTH, 2, 3), "V": (2, LENGTH, 2, 2)}
    return {**{name: torch.randn(shape, dtype=torch.float64, generator=generator) for name, shape in shapes.items()}, "a": gate}


def agree(text: str, tensors: dict[str, Tensor]) -> None:
    """Every schedule that accepts the layer agrees; at least one does."""
    mistakes, refusals = check(text, tensors)
    assert not mistakes, f"{text}\n{mistakes}"
    assert len(refusals) < len(SCHEDULES), refusals


def gates(extra: str, first: float) -> Tensor:
    """Gates of moderate size with hard ones in one place: between two chunks, at the front, in the middle."""
    shape = (1, LENGTH, 2, *AXES[extra])
    tensor = -torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    for place in (0, 9, CHUNK, CHUNK + 1):
        tensor[:, place] = first
    return tensor


@pytest.mark.parametrize("extra", AXES)
@pytest.mark.parametrize("log", LOGS)
def test_logs(log: float, extra: str) -> None:
    for mask in ("semiseparable(log = a)", "reverse(semiseparable(log = a, shift = 1))"):
        agree(layer(mask, extra, "S"), operands(gates(extra, log)))


@pytest.mark.parametrize("extra", AXES)
@pytest.mark.parametrize("value", VALUES)
def test_values(value: float, extra: str) -> None:
    tensor = gates(extra, 0.0).exp()
    tensor[:, (0, 9, 10, CHUNK)] = value
    for mask in ("semiseparable(a)", "flip(semiseparable(a, shift = 1))"):
        agree(layer(mask, extra, "S"), operands(tensor))


@pytest.mark.parametrize("mask", ["semiseparable(a)", "semiseparable(a) * window(7)", "semiseparable(a) * prefix(2)"])
def test_zeros_everywhere(mask: str) -> None:
    agree(layer(mask, "", "S"), operands(torch.zeros(1, LENGTH, 2, dtype=torch.float64)))


@pytest.mark.parametrize("extra", ["N", "P", "NP"])
def test_mixed_by_channel(extra: str) -> None:
    tensor = gates(extra, -1.0)
    hard = torch.tensor(LOGS, dtype=torch.float64)
    every = torch.arange(tensor.numel()) % 5 == 0
    tensor.view(-1)[every] = hard[torch.arange(int(every.sum())) % len(hard)]
    agree(layer("semiseparable(log = a)", extra, "S"), operands(tensor))
    agree(layer("semiseparable(a)", extra, "S"), operands(tensor.exp()))


@pytest.mark.parametrize("extra", AXES)
def test_decays(extra: str) -> None:
    for value in (0.0, -0.5, 1.0, 1e-300):
        agree(layer("decay(a)", extra, ""), operands(torch.full((2, *AXES[extra]), value, dtype=torch.float64)))
    for log in (0.0, -1e-4, -88.0, -math.inf):
        agree(layer("decay(log = a)", extra, ""), operands(torch.full((2, *AXES[extra]), log, dtype=torch.float64)))


@pytest.mark.parametrize("mask", ["product(A)", "delta(a, B)", "delta(a, B) * semiseparable(log = c)", "product(A) * semiseparable(d)"])
def test_matrices(mask: str) -> None:
    generator = torch.Generator().manual_seed(9)
    text = f"""layer hard
input Q [T, N]
input K [S, M]
input V [S, P]
input a [S]
input A [S, N, M]
input B [S, N]
input c [S]
input d [S, N]
L [T, S, N, M] = {mask}
Y [T, P] = contract(TN, SM, SP, TSNM -> TP)(Q, K, V, L)
output Y
"""
    shapes = {"Q": (3,), "K": (3,), "V": (2,), "A": (3, 3), "B": (3,), "d": (3,), "a": (), "c": ()}
    tensors = {name: torch.randn(1, 9, 2, *shape, dtype=torch.float64, generator=generator) / 2 for name, shape in shapes.items()}
    tensors["a"][:, 3], tensors["A"][:, 4], tensors["d"][:, 5] = 1.0, 0.0, 0.0
    tensors["c"] = torch.tensor((*LOGS, -1.0, -2.0), dtype=torch.float64).reshape(1, 9, 1).expand(1, 9, 2)
    agree(text, tensors)


@pytest.mark.parametrize("extra", AXES)
def test_an_open_gate_is_no_gate(extra: str) -> None:
    """Under gates of 1 the outputs and the gradients of the operands are those of the causal layer."""
    tensors = operands(torch.zeros(1, LENGTH, 2, *AXES[extra], dtype=torch.float64))
    plain = layer("causal() * decay(1.0)", extra, "S").replace("causal() * decay(1.0)", "causal()")
    oracle, along = expected(program_of(plain), tensors)
    for mask in ("semiseparable(log = a)", "semiseparable(exp(a))", "decay(1)", "decay(log = 0)"):
        for schedule in SCHEDULES:
            found = answered(program_of(layer(mask, extra, "S")), tensors, along, schedule)
            oracle.gradients["a"] = found.gradients.get("a", oracle.gradients["a"])
            assert found.refusal or not list(wrong(found, oracle)), f"{mask} {schedule}"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_position_has_no_gate(schedule: str) -> None:
    tensors = {name: tensor[:, :1] for name, tensor in operands(gates("", -1.0)).items()}
    program = program_of(layer("semiseparable(log = a)", "", "S"))
    _, along = expected(program, tensors)
    assert not answered(program, tensors, along, schedule).gradients["a"].any()


def test_a_complex_zero_is_refused_where_its_gradient_is_wanted() -> None:
    text = layer("semiseparable(a)", "N", "S").replace("a [S, N]", "a [S, N] : complex")
    gate = torch.zeros(1, LENGTH, 2, 3, dtype=torch.complex128)
    program = program_of(text)
    oracle, along = expected(program, operands(gate))
    assert "complex transition is exactly 0" in answered(program, operands(gate), along, None).refusal
    forward = Answer("chosen", (operator(program, Options())(**operands(gate)),))
    oracle.gradients.clear()
    assert not list(wrong(forward, oracle))
