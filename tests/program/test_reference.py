"""The oracle against formulas in plain torch: the ten layers of the specs, grouped heads, packed sequences, gradients, lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from contractor.errors import ArgumentError
from contractor.program.check import check
from contractor.program.expression import Number
from contractor.program.program import Program
from contractor.program.reference import reference
from contractor.text.parse import parse

torch.set_num_threads(1)
SPECS = Path(__file__).parents[1] / "specs"
SIZES = {"T": 6, "S": 6, "N": 3, "M": 3, "P": 4, "F": 5, "R": 4}
BATCH, HEADS = 2, 2
Tensors = Mapping[str, Tensor]


def layer(text: str) -> Program:
    (program,) = check(parse(text))
    return program


def spec(name: str) -> Program:
    return layer((SPECS / f"{name}.ctr").read_text(encoding="utf-8"))


def random_tensors(program: Program, seed: int, sizes: Mapping[str, int] = SIZES, batch: int = BATCH, heads: int = HEADS) -> Tensors:
    print(f"seed {seed}")
    torch.manual_seed(seed)
    found: dict[str, Tensor] = {}
    for operand in program.operands:
        positions = [sizes[axis] for axis in operand.axes if axis in "TS"]
        features = [sizes[axis] for axis in operand.axes if axis not in "TS"]
        around = [heads] if operand.role == "param" else [batch, *positions, heads] if len(positions) == 1 else [batch, heads, *positions]
        dtype = torch.complex128 if operand.number is Number.COMPLEX else torch.float64
        found[operand.name] = torch.randn(*around, *features, dtype=dtype)
        if operand.number is Number.INT:
            found[operand.name] = torch.randint(0, 3, (*around, *features))
    return found


# ---- the ten layers: position by position, written from their papers ------------------------------------------------------------


def states(key: Tensor, value: Tensor, decay: Callable[[int], Tensor | float]) -> list[Tensor]:
    """S_t = decay(t) · S_{t-1} + k_t v_tᵀ for one batch element and head: [N, P] each."""
    state = torch.zeros(key.shape[-1], value.shape[-1], dtype=torch.promote_types(key.dtype, value.dtype))
    found: list[Tensor] = []
    for t in range(key.shape[0]):
        state = decay(t) * state + torch.outer(key[t], value[t])
        found.append(state)
    return found


def linear(query: Tensor, key: Tensor, value: Tensor, decay: Callable[[int], Tensor | float]) -> Tensor:
    return torch.stack([query[t] @ state for t, state in enumerate(states(key, value, decay))])


def retention(x: Tensors, b: int, h: int) -> Tensor:
    q, k, v = (x[name][b, :, h] for name in "QKV")
    return linear(q, k, v, lambda _: x["gamma"][h]) / math.sqrt(3)


def gla(x: Tensors, b: int, h: int) -> Tensor:
    q, k, v = (x[name][b, :, h] for name in "QKV")
    return linear(q, k, v, lambda t: x["G"][b, t, h].exp()[:, None]) / math.sqrt(3)


def linear_attention(x: Tensors, b: int, h: int) -> Tensor:
    q, k, v = F.elu(x["Q"][b, :, h]) + 1, F.elu(x["K"][b, :, h]) + 1, x["V"][b, :, h]
    weights = (q @ k.T).tril()
    return weights @ v / weights.sum(-1, keepdim=True)


def performer(x: Tensors, b: int, h: int) -> Tensor:
    q, k, v, w = x["Q"][b, :, h] * 3**-0.25, x["K"][b, :, h] * 3**-0.25, x["V"][b, :, h], x["W"][h]
    weights = (torch.exp(q @ w.T - (q * q).sum(-1, keepdim=True) / 2) @ torch.exp(k @ w.T - (k * k).sum(-1, keepdim=True) / 2).T).tril()
    return weights @ v / weights.sum(-1, keepdim=True)


def softmax_attention(x: Tensors, b: int, h: int) -> Tensor:
    q, k, v = (x[name][b, :, h][None] for name in "QKV")
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)[0]


def ssd(x: Tensors, b: int, h: int) -> Tensor:
    step = F.softplus(x["dt"][b, :, h] + x["dt_bias"][h])
    fade = torch.exp(-x["A_log"][h].exp() * step)
    y = linear(x["C"][b, :, h], x["B"][b, :, h], step[:, None] * x["X"][b, :, h], lambda t: fade[t])
    return y + x["D"][h] * x["X"][b, :, h]


def s6(x: Tensors, b: int, h: int) -> Tensor:
    step = F.softplus(x["dt"][b, :, h])
    fade = torch.exp(step[:, :, None] * -x["A_log"][h].exp())
    y = linear(x["C"][b, :, h], x["B"][b, :, h], step * x["X"][b, :, h], lambda t: fade[t].T)
    return y + x["D"][h] * x["X"][b, :, h]


def gated_delta(x: Tensors, b: int, h: int) -> Tensor:
    q, k = F.normalize(x["Q"][b, :, h], dim=-1), F.normalize(x["K"][b, :, h], dim=-1)
    v, beta, gate = x["V"][b, :, h], x["beta"][b, :, h], x["G"][b, :, h].exp()
    state = torch.zeros(3, 4, dtype=torch.float64)
    rows: list[Tensor] = []
    for t in range(q.shape[0]):
        state = gate[t] * state
        state = state + torch.outer(beta[t] * k[t], v[t] - k[t] @ state)
        rows.append(q[t] @ state)
    return torch.stack(rows) / math.sqrt(3)


def s4d(x: Tensors, b: int, h: int) -> Tensor:
    a, dt = x["A"][h], x["dt"][h][:, None]
    fade = torch.exp(dt * a)
    fed = (fade - 1) / a * x["B"][h]
    state = torch.zeros(4, 3, dtype=torch.complex128)
    rows: list[Tensor] = []
    for row in x["X"][b, :, h]:
        state = fade * state + fed * row[:, None]
        rows.append(2 * (x["C"][h] * state).sum(-1).real)
    return torch.stack(rows) + x["D"][h] * x["X"][b, :, h]


def toeplitz(x: Tensors, b: int, h: int) -> Tensor:
    q, k, v = (x[name][b, :, h] for name in "QKV")
    table = sum(x["alpha"][h, lag] * torch.diag(torch.ones(6 - lag, dtype=torch.float64), -lag) for lag in range(4))
    return (q @ k.T * table) @ v


FORMULAS = {
    "retention": retention,
    "gla": gla,
    "linear_attention": linear_attention,
    "performer": performer,
    "softmax_attention": softmax_attention,
    "ssd": ssd,
    "s6": s6,
    "gated_delta": gated_delta,
    "s4d": s4d,
    "toeplitz": toeplitz,
}


def test_every_spec_has_its_formula() -> None:
    assert {path.stem for path in SPECS.glob("*.ctr")} == set(FORMULAS)


def by_formula(name: str, x: Tensors) -> Tensor:
    """[batch, T, head, P]."""
    return torch.stack([torch.stack([FORMULAS[name](x, b, h) for h in range(HEADS)], 1) for b in range(BATCH)])


@pytest.mark.parametrize("name", FORMULAS)
def test_specs_against_formulas(name: str) -> None:
    program = spec(name)
    x = random_tensors(program, 1)
    x = {key: -tensor.abs() if key == "G" else tensor.requires_grad_() for key, tensor in x.items()}
    (found,) = reference(program, x)
    wanted = by_formula(name, x)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    leaves = [tensor for tensor in x.values() if tensor.requires_grad]
    weight = torch.randn_like(found)
    for mine, theirs in zip(
        torch.autograd.grad((found * weight).sum(), leaves), torch.autograd.grad((wanted * weight).sum(), leaves), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-8)


# ---- layouts ----------------------------------------------------------------------------------------------------------


def test_grouped_heads_read_the_head_of_their_group() -> None:
    program = spec("ssd")
    x = dict(random_tensors(program, 2, heads=4))
    x |= {"C": x["C"][:, :, :2], "B": x["B"][:, :, :1], "D": x["D"][:2]}
    (found,) = reference(program, x)
    spread = x | {
        "C": x["C"].repeat_interleave(2, 2),
        "B": x["B"].expand(-1, -1, 4, -1),
        "D": x["D"].repeat_interleave(2, 0),
    }
    torch.testing.assert_close(found, reference(program, spread)[0], rtol=1e-13, atol=1e-13)
    with pytest.raises(ArgumentError, match="C has 3 heads, H is 4"):
        reference(program, x | {"C": torch.randn(2, 6, 3, 3)})


def test_grouped_heads_of_a_matrix_mask() -> None:
    program = spec("gated_delta")
    x = dict(random_tensors(program, 3, heads=4))
    x["K"], x["G"] = x["K"][:, :, :2], -x["G"][:, :, :1].abs()
    spread = x | {"K": x["K"].repeat_interleave(2, 2), "G": x["G"].expand(-1, -1, 4)}
    torch.testing.assert_close(reference(program, x)[0], reference(program, spread)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
def test_packed_sequences_are_sequences(name: str) -> None:
    program = spec(name)
    x = random_tensors(program, 4, batch=1)
    bounds = [0, 2, 2, 5, 6]
    (packed,) = reference(program, x, torch.tensor(bounds))
    for start, stop in ((0, 2), (2, 5), (5, 6)):
        cut = {
            operand.name: x[operand.name][:, start:stop] if {"T", "S"} & set(operand.axes) else x[operand.name]
            for operand in program.operands
        }
        torch.testing.assert_close(packed[:, start:stop], reference(program, cut)[0], rtol=0, atol=0)


def test_what_does_not_fit_is_refused() -> None:
    """An oracle that cuts off what it was not told of, or the imaginary part, would agree with the wrong thing."""
    program = spec("ssd")
    x = random_tensors(program, 4, batch=1)
    for bounds in ([0, 5], [1, 6], [0, 4, 2, 6], []):
        with pytest.raises(ArgumentError, match="cu_seqlens must rise from 0 to T = 6"):
            reference(program, x, torch.tensor(bounds))
    with pytest.raises(ArgumentError, match="X is declared real, and what is given is complex"):
        reference(program, {**x, "X": x["X"].to(torch.complex128)})


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("length", (0, 1))
def test_short_sequences(name: str, length: int) -> None:
    program = spec(name)
    (found,) = reference(program, random_tensors(program, 5, {**SIZES, "T": length, "S": length}))
    assert found.shape == (BATCH, length, HEADS, SIZES["P"]) and found.isfinite().all()


def test_everything_packed_away() -> None:
    program = spec("retention")
    x = random_tensors(program, 6, {**SIZES, "T": 0, "S": 0}, batch=1)
    assert reference(program, x, torch.tensor([0, 0]))[0].shape == (1, 0, HEADS, SIZES["P"])


def test_missing_and_unfit_tensors() -> None:
    program = spec("retention")
    x = dict(random_tensors(program, 7))
    with pytest.raises(ArgumentError, match="K is not given"):
        reference(program, {name: tensor for name, tensor in x.items() if name != "K"})
    with pytest.raises(ArgumentError, match="axis N"):
        reference(program, x | {"K": torch.randn(2, 6, 2, 5)})


# ---- what the specs do not show ---------------------------------------------------------------------------------------


def test_fewer_targets_than_sources() -> None:
    program = layer("""
        layer shorter
        input Q [T, N]
        input K [S, N]
        input V [S, P]
        output contract(TN, SN, SP, TS -> TP)(Q, K, V, causal()), pos(T) + 0 * sum(Q over N)
    """)
    x = random_tensors(program, 8, {**SIZES, "T": 2})
    found, places = reference(program, x)
    long = {"Q": torch.cat((torch.zeros(2, 4, 2, 3, dtype=torch.float64), x["Q"]), 1), "K": x["K"], "V": x["V"]}
    torch.testing.assert_close(found, reference(program, long)[0][:, 4:])
    assert places[0, :, 0].tolist() == [4.0, 5.0]


def test_softmax_under_a_gate_and_an_empty_row() -> None:
    program = layer("""
        layer gated
        input x [T, S]
        input g [S]
        A [T, S] = softmax(x over S under semiseparable(log = g, shift = 1))
        output A
    """)
    torch.manual_seed(9)
    x, g = torch.randn(1, 1, 3, 3, dtype=torch.float64), -torch.rand(1, 3, 1, dtype=torch.float64)
    x.requires_grad_()
    (found,) = reference(program, {"x": x, "g": g})
    weights = torch.zeros(3, 3, dtype=torch.float64)
    weights[1, 0], weights[2, 1] = x[0, 0, 1, 0].exp(), x[0, 0, 2, 1].exp()
    weights[2, 0] = (x[0, 0, 2, 0] + g[0, 1, 0]).exp()
    wanted = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)
    torch.testing.assert_close(found[0, 0], wanted)
    found.sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_gradient_at_a_reset() -> None:
    program = spec("gla")
    x = dict(random_tensors(program, 10))
    x["G"] = -x["G"].abs()
    x["G"][:, 3] = -math.inf
    x = {name: tensor.requires_grad_() for name, tensor in x.items()}
    (found,) = reference(program, x)
    found.sum().backward()
    assert found.isfinite().all() and all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in x.values())


def test_packed_outputs_over_both_positions() -> None:
    program = layer("layer scores\ninput Q [T, N]\ninput K [S, N]\noutput contract(TN, SN -> TS)(Q, K), sum(sum(Q over N) over T)")
    x = random_tensors(program, 11, batch=1)
    scores = layer("layer scores\ninput Q [T, N]\ninput K [S, N]\noutput contract(TN, SN -> TS)(Q, K)")
    (found,) = reference(scores, x, torch.tensor([0, 2, 6]))
    (whole,) = reference(scores, x)
    assert (found[:, :, :2, 2:] == 0).all() and (found[:, :, 2:, :2] == 0).all()
    torch.testing.assert_close(found[:, :, 2:, 2:], whole[:, :, 2:, 2:])
    with pytest.raises(ArgumentError, match="cannot be packed"):
        reference(program, x, torch.tensor([0, 2, 6]))


def test_definitions_are_broadcast_to_their_left_side() -> None:
    program = layer("""
        layer ones
        input V [S, P]
        param W [F, P]
        one [S, F] = 1
        output contract(SF, SP, FP, TS -> T)(one, V, W, causal())
    """)
    x = random_tensors(program, 12)
    wanted = torch.einsum("bshp,hfp->bsh", x["V"], x["W"]).cumsum(1)
    torch.testing.assert_close(reference(program, x)[0], wanted)
