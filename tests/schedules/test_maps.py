"""Maps of elementwise functions: every rule's value and slope, by both printers' text; which chains of a layer have kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from contractor.emit.triton import emit_triton
from contractor.pipeline import program_of
from contractor.plan.machine import H200
from contractor.plan.plan import Tiling
from contractor.program.elementwise import X, chains, norms
from contractor.program.expression import Apply, Constant, Expression, Number
from contractor.program.functions import ELEMENTWISE, MAPS
from contractor.program.reduce import l2norm, rmsnorm
from contractor.run.elementwise import BLOCK
from contractor.run.execute import launched, started
from contractor.schedules.parts.maps import RULES, map_kernel, slope_kernel
from contractor.schedules.parts.norms import NORMS, norm_kernel
from contractor.schedules.parts.norms import slope_kernel as norm_gradient
from contractor.tile.kernel import Kernel
from contractor.tile.routine import Launch, Routine
from tests.emit.test_compiles import imported, types_of
from tests.schedules.compiled import compiled

EXAMPLES = Path(__file__).parents[2] / "examples"
POSITIVE = ("log", "sqrt", "rsqrt")


def applied(function: str, *given: Expression) -> Expression:
    """A node of a map."""
    return Apply(function, given, (), Number.REAL)


def of(function: str) -> Expression:
    """A map that has one function at its heart, inside and under others."""
    inside = applied("+", applied("square", X), Constant(0.5)) if function in POSITIVE else applied("*", X, Constant(1.5))
    given = (inside, applied("+", applied("square", X), Constant(2.0))) if len(ELEMENTWISE[function].parameters) == 2 else (inside,)
    return applied("-", applied("*", applied(function, *given), X), Constant(0.25))


def by_torch(map_: Expression, x: Tensor) -> Tensor:
    """The map by definition."""
    match map_:
        case Constant():
            return torch.tensor(map_.value, dtype=x.dtype)
        case Apply():
            return ELEMENTWISE[map_.function].apply(*(by_torch(one, x) for one in map_.arguments))
        case _:
            return x


def by_text(kernel: Kernel, **given: Tensor) -> Tensor:
    """What the torch text of a kernel gives."""
    count = given["x"].numel()
    routine = Routine((Launch(kernel, (), 4, 1, (("COUNT", count), ("BLOCK", 64))),))
    return launched(started(routine, "torch", (("COUNT", count), ("BLOCK", 64))), dict(given), given["x"].dtype)["result"]


def test_every_function_that_a_chain_may_have_has_a_rule() -> None:
    assert set(RULES) == MAPS


@pytest.mark.parametrize("function", sorted(MAPS))
def test_value_and_slope(function: str) -> None:
    x = torch.cat((torch.linspace(-30, 30, 150, dtype=torch.float64), torch.tensor([0.7, -1e-3], dtype=torch.float64)))
    map_, gradient = of(function), torch.linspace(-1, 2, 152, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    wanted = by_torch(map_, leaf)
    torch.testing.assert_close(by_text(map_kernel(map_), x=x), wanted.detach(), rtol=1e-12, atol=1e-12)
    (slope,) = torch.autograd.grad(wanted, leaf, gradient)
    torch.testing.assert_close(by_text(slope_kernel(map_), x=x, gradient=gradient), slope, rtol=1e-11, atol=1e-12)


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("function", ["elu", "silu", "softplus", "tanh"])
def test_compiles_for_hopper(function: str, tmp_path: Path) -> None:
    from_text = map_kernel(of(function)), slope_kernel(of(function))
    for kernel in from_text:
        path = tmp_path / f"{kernel.name}.py"
        path.write_text(emit_triton(kernel), encoding="utf-8")
        types = types_of(kernel, {"COUNT": 4096, "BLOCK": BLOCK}, "bf16")
        found = compiled(getattr(imported(path), kernel.name), types, {"BLOCK": BLOCK}, H200, Tiling((), 4, 1), 0)
        assert found.spills == 0


@pytest.mark.parametrize("norm", NORMS)
def test_norms_and_their_gradients(norm: str) -> None:
    """Rows of zeros and rows whose norm is cut off among them."""
    x = torch.randn(37, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x[3], x[5] = 0.0, x[5] * 1e-14
    gradient = torch.randn(37, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    leaf = x.clone().requires_grad_()
    wanted = {"l2norm": l2norm, "rmsnorm": rmsnorm}[norm](leaf, (1,))
    torch.testing.assert_close(by_rows(norm_kernel(norm), x=x), wanted.detach(), rtol=1e-12, atol=1e-12)
    (slope,) = torch.autograd.grad(wanted, leaf, gradient)
    torch.testing.assert_close(by_rows(norm_gradient(norm), x=x, gradient=gradient), slope, rtol=1e-11, atol=1e-11)


def by_rows(kernel: Kernel, **given: Tensor) -> Tensor:
    """What the torch text of a norm's kernel gives."""
    sizes = (("ROWS", 37), ("N", 11), ("BLOCK_N", 16), ("ROW_BLOCK", 8))
    return launched(started(Routine((Launch(kernel, (), 4, 1, sizes),)), "torch", sizes), dict(given), given["x"].dtype)["result"]


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("norm", NORMS)
def test_norms_compile_for_hopper(norm: str, tmp_path: Path) -> None:
    constants = {"N": 128, "BLOCK_N": 128, "ROW_BLOCK": 16}
    for kernel in (norm_kernel(norm), norm_gradient(norm)):
        path = tmp_path / f"{kernel.name}.py"
        path.write_text(emit_triton(kernel), encoding="utf-8")
        types = types_of(kernel, {"ROWS": 4096, **constants}, "bf16")
        assert compiled(getattr(imported(path), kernel.name), types, constants, H200, Tiling((), 4, 1), 0).spills == 0


def test_which_norms_are_found() -> None:
    assert [one.function for one in norms(program_of(EXAMPLES / "gated_delta.ctr"))] == ["l2norm", "l2norm"]
    assert not list(norms(program_of(EXAMPLES / "linear_attention.ctr")))


def test_which_chains_are_found() -> None:
    found = list(chains(program_of(EXAMPLES / "linear_attention.ctr")))
    assert [(one.base.name, one.map) for one in found if hasattr(one.base, "name")] == [
        (name, applied("+", applied("elu", X), Constant(1.0))) for name in "QK"
    ]
    one = "layer one\ninput Q [T, N]\ninput K [S, N]\ninput V [S, P]\noutput contract(TN, SN, SP, TS -> TP)(exp(Q), {}, V, causal())\n"
    assert not list(chains(program_of(one.format("K"))))  # of one function torch has a kernel
    assert not list(chains(program_of(one.format("relu(K) * abs(V[S, N])"))))  # a chain has one tensor
