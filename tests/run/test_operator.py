"""What a person calls: operands by position and by name, numbers, dtypes, what is refused and in which words, printing and copying."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import contractor

torch.set_num_threads(1)
ROOT = Path(__file__).parent.parent.parent
RETENTION = contractor.compile(ROOT / "examples" / "retention.ctr")
SPEC = (ROOT / "examples" / "retention.ctr").read_text(encoding="utf-8")
TWO = """
layer two
input X [S, P]
input ids [S] : int
param w [] : complex
D [T, P] = contract(SP, TS -> TP)(X, documents(ids))
output D, real(w) * D
"""


def operands(dtype: torch.dtype = torch.float64, length: int = 20) -> dict[str, Any]:
    torch.manual_seed(0)
    found: dict[str, Any] = {name: torch.randn(2, length, 4, size, dtype=dtype) for name, size in (("Q", 8), ("K", 8), ("V", 6))}
    return {**found, "gamma": torch.rand(4, dtype=torch.promote_types(dtype, torch.float32))}


def exact(given: dict[str, Tensor]) -> Tensor:
    return contractor.reference(RETENTION.program, given)[0]


def test_by_name_by_position_and_both() -> None:
    given = operands()
    q, k, v, g = given.values()
    by_name = RETENTION(**given)
    assert isinstance(by_name, Tensor)
    torch.testing.assert_close(by_name, exact(given))
    assert torch.equal(by_name, RETENTION(q, k, v, g)) and torch.equal(by_name, RETENTION(q, k, gamma=g, V=v))


def test_several_outputs_are_a_tuple() -> None:
    op = contractor.compile(TWO)
    first, second = op(torch.randn(1, 5, 2, 3), torch.tensor([0, 0, 1, 1, 1]).reshape(1, 5, 1), 2.0)
    torch.testing.assert_close(2 * first, second)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_number_for_an_operand_without_axes(dtype: torch.dtype) -> None:
    given = {**operands(dtype), "gamma": 0.9}
    y = RETENTION(**given)
    assert isinstance(y, Tensor) and y.dtype == dtype
    wanted = exact({**given, "gamma": torch.tensor(0.9, dtype=torch.float64)})
    error = (y.double() - wanted).norm() / wanted.norm()
    assert error < {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-3}[dtype]


def test_params_may_be_more_precise_than_the_contraction() -> None:
    given = operands(torch.bfloat16)
    assert given["gamma"].dtype == torch.float32 and RETENTION(**given).dtype == torch.bfloat16  # type: ignore[union-attr]
    assert RETENTION(**{**given, "V": given["V"].float()}).dtype == torch.float32  # type: ignore[union-attr]


@pytest.mark.parametrize("counts", [(1, 4, 4), (4, 2, 2), (2, 1, 4), (1, 1, 1)])
def test_heads_are_shared_in_groups(counts: tuple[int, int, int]) -> None:
    given = operands()
    given |= {name: given[name][:, :, :count].clone() for name, count in zip("QKV", counts, strict=True)}
    torch.testing.assert_close(RETENTION(**given), exact(given))


def test_views_are_taken_as_they_are() -> None:
    given = operands()
    given["Q"] = given["Q"].transpose(1, 2).contiguous().transpose(1, 2)
    given["K"] = given["K"][:1].expand(2, -1, -1, -1)
    torch.testing.assert_close(RETENTION(**given), exact(given))


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65])
def test_any_length(length: int) -> None:
    given = operands(length=length)
    torch.testing.assert_close(RETENTION(**given), exact(given))


def test_gradients_reach_every_operand() -> None:
    given = {name: one.requires_grad_() for name, one in operands(length=5).items()}
    assert torch.autograd.gradcheck(lambda *tensors: RETENTION(*tensors), tuple(given.values()))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"gamma": None}, "gamma must be a tensor or a number, not NoneType"),
        ({"Q": [1.0]}, "Q must be a tensor or a number, not list"),
        ({"R": torch.ones(1)}, "retention has no operand R; it has Q, K, V, gamma"),
        ({"K": torch.ones(2, 20, 4, 7)}, "Q has N = 8, but K has N = 7"),
        ({"Q": torch.ones(2, 20, 8)}, "Q has 3 dimensions (2, 20, 8); expected 4: [batch, T, head, N]"),
        ({"V": torch.ones(2, 20, 3, 6)}, "V has 3 heads, H is 4 (Q's): a head count must be 4, 1 or a divisor of 4"),
        ({"V": torch.ones(3, 20, 4, 6)}, "Q has batch 2, but V has batch 3: it must be 2 or 1"),
        ({"V": torch.ones(2, 21, 4, 6)}, "K has S = 20, but V has S = 21"),
        ({"gamma": torch.ones(3)}, "gamma has 3 heads"),
        ({"gamma": 1j}, "gamma is declared real, and what is given is complex"),
        ({"Q": torch.ones(2, 20, 4, 8, dtype=torch.complex64)}, "Q is declared real, and what is given is complex"),
        ({"V": torch.ones(2, 20, 4, 6, device="meta")}, "the operands are on 2 devices: Q is on cpu, V is on meta"),
    ],
)
def test_what_does_not_fit_is_said(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(contractor.ArgumentError) as told:
        RETENTION(**{**operands(torch.float32), **changed})
    assert says in str(told.value)


def test_missing_twice_and_too_many_are_said() -> None:
    q, k, v, g = operands().values()
    with pytest.raises(contractor.ArgumentError, match="retention needs V, gamma too; its operands are Q, K, V, gamma"):
        RETENTION(q, k)
    with pytest.raises(contractor.ArgumentError, match="Q given twice: by position and by name"):
        RETENTION(q, k, v, g, Q=q)
    with pytest.raises(contractor.ArgumentError, match="retention takes 4 operands"):
        RETENTION(q, k, v, g, q)
    with pytest.raises(contractor.ArgumentError, match="ids is declared int, and what is given is real"):
        contractor.compile(TWO)(torch.ones(1, 5, 2, 3), torch.ones(1, 5, 1), 1.0)


def test_options_are_checked() -> None:
    with pytest.raises(contractor.ArgumentError, match="unknown schedule 'fast'; there are quadratic"):
        contractor.compile(SPEC, schedule="fast")
    with pytest.raises(contractor.ArgumentError, match="unknown backend 'cuda'"):
        contractor.compile(SPEC, backend="cuda")  # type: ignore[arg-type]
    with pytest.raises(contractor.ArgumentError, match="cray"):
        contractor.compile(SPEC, machine="cray")
    with pytest.raises(contractor.ArgumentError, match="the spec holds 2 layers"):
        contractor.compile(SPEC + TWO)
    assert contractor.compile(SPEC + TWO, layer="two").program.name == "two"


@pytest.mark.parametrize("schedule", ["quadratic", "recurrent", "chunked"])
def test_the_schedule_may_be_fixed(schedule: str) -> None:
    op = contractor.compile(SPEC, schedule=schedule)
    chosen = op.plan(T=20, N=8, P=6).choices[0].chosen
    assert chosen is not None and chosen.schedule == schedule
    torch.testing.assert_close(op(**operands()), exact(operands()))


def test_a_refused_order_says_why() -> None:
    op = contractor.compile(SPEC.replace("decay(gamma)", "window(4) * decay(gamma)"), schedule="chunked")
    with pytest.raises(contractor.RefusedError, match="possible instead: quadratic"):
        op(**operands())


def test_plan_source_and_explain_need_no_tensors() -> None:
    sizes: dict[str, Any] = {"B": 4, "T": 4096, "H": 32, "N": 128, "P": 128, "dtype": "bfloat16"}
    table = str(RETENTION.plan(machine="h200", **sizes))
    assert table.splitlines()[0] == "retention  B=4 T=4096 S=4096 H=32 N=128 P=128 bfloat16  on h200"
    assert "def retention_Y(query, key, value, gate, scale=0.08838834764831843):" in RETENTION.source(machine="h200", **sizes)
    assert "@triton.jit" not in RETENTION.source(machine="cpu", **sizes)
    explained = RETENTION.explain(machine="h200", **sizes)
    assert table in explained and "layer retention" in explained and "@triton.jit" in explained


def test_prints_copies_and_pickles() -> None:
    assert (
        str(RETENTION).startswith("layer retention\n") and repr(RETENTION) == "<Operator retention: Q [T, N], K [S, N], V [S, P], gamma []>"
    )
    wanted = RETENTION(**operands())
    for again in (copy.copy(RETENTION), copy.deepcopy(RETENTION), pickle.loads(pickle.dumps(RETENTION))):
        assert again == RETENTION and torch.equal(again(**operands()), wanted)


def test_operands_may_be_called_as_python_calls_things() -> None:
    """Words of Python and of torch are names like any other; `self` too, whatever the methods call their operator."""
    op = contractor.compile(
        "layer lambda\ninput self [T, N]\ninput class [S, N]\ninput torch [S, P]\n"
        "state [T, P] = contract(TN, SN, SP, TS -> TP)(self, class, torch, causal())\noutput state"
    )
    given = {name: torch.randn(1, 3, 1, 2) for name in ("self", "class", "torch")}
    whole, state = op(**given, return_state=True)
    torch.testing.assert_close(whole, contractor.reference(op.program, given)[0].float())
    first, _ = op.step(None, **{name: one[:, 0] for name, one in given.items()})
    torch.testing.assert_close(first, whole[:, 0])
    assert len(state) == 1
