"""The torch text against plain torch, alone in a module of its own: values, ragged ends, loops of different lengths, gradients."""

from __future__ import annotations

import types

import pytest
import torch
from torch import Tensor

from contractor.emit.torch import arguments, emit_torch
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel
from contractor.tile.ops import ACC, Expr, Span, cast, cdiv, exp2, iota, least, most, number, rsqrt, select, size
from tests.tile.kernels import gathered, one_pass, packed, running, transition, window

torch.set_num_threads(1)


def module(text: str) -> types.ModuleType:
    """A module of a text."""
    made = types.ModuleType("printed")
    exec(compile(text, "printed", "exec"), made.__dict__)
    return made


def call(kernel: Kernel, programs: int, **given: object) -> None:
    """Runs a kernel's torch text."""
    values = {**given, "programs": programs}
    getattr(module(emit_torch(kernel)), kernel.name)(*(values[name] for name in arguments(kernel)))


def passed(gated: bool, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, scale: float, chunk: int) -> Tensor:
    """The result of `one_pass`, half of the columns a block."""
    (batch, length, heads, n), p = q.shape, v.shape[-1]
    y = torch.full_like(v, torch.nan)
    sizes = {"T": length, "H": heads, "N": n, "P": p, "CHUNK": chunk, "BLOCK_P": p // 2}
    call(one_pass(gated=gated), 2 * heads * batch, q=q, k=k, v=v, gate=gate, y=y, scale=scale, **sizes)
    return y


def carried(begin: Tensor, matrices: Tensor, updates: Tensor) -> Tensor:
    """The result of `transition`."""
    end = torch.full_like(begin, torch.nan)
    sizes = {"T": matrices.shape[1], "N": begin.shape[2], "P": begin.shape[1]}
    call(transition(), len(begin), begin=begin, A=matrices, u=updates, end=end, **sizes)
    return end


def dense(q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, scale: float) -> Tensor:
    """The gated sum by its definition."""
    length = q.shape[1]
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    sums = torch.zeros(q.shape[:3], dtype=torch.float64) if gate is None else gate.double().cumsum(1)
    weights = (sums[:, :, None] - sums[:, None]).masked_fill(~seen[:, :, None], -torch.inf).exp()
    return scale * torch.einsum("btsh,bthn,bshn,bshp->bthp", weights, q.double(), k.double(), v.double())


def tensors(length: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, ...]:
    """q, k, v and a log gate."""
    made = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, length, 3, width, generator=made, dtype=torch.float64).to(dtype) for width in (4, 4, 6))
    gate = -torch.rand(2, length, 3, generator=made, dtype=torch.float64)
    return q, k, v, gate.to(torch.promote_types(dtype, torch.float32))


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 30])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-13), (torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_one_pass(length: int, gated: bool, dtype: torch.dtype, bound: float) -> None:
    q, k, v, gate = tensors(length, dtype)
    y = passed(gated, q, k, v, gate, scale=0.5, chunk=8)
    wanted = dense(q, k, v, gate if gated else None, 0.5)
    assert y.dtype == dtype and y.shape == wanted.shape
    assert (y.double() - wanted).norm() <= bound * wanted.norm()


def test_descriptors_print_the_same_torch_text() -> None:
    assert emit_torch(one_pass("descriptor")) == emit_torch(one_pass("pointer"))


@pytest.mark.parametrize("lengths", [(0, 5, 1, 4, 0, 13, 3, 0), (0, 0), (17,)])
def test_programs_that_have_ended_neither_update_nor_store(lengths: tuple[int, ...]) -> None:
    x = torch.randn(sum(lengths), 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y, sums = torch.full_like(x, torch.nan), torch.full((len(lengths), 5), torch.nan, dtype=torch.float64)
    offsets = torch.tensor((0, *lengths)).cumsum(0).int()
    call(packed(), len(lengths), x=x, offsets=offsets, y=y, sums=sums, CHUNK=4, N=5)
    wanted = [part.flip(0).cumsum(0).flip(0) for part in x.split(lengths)]
    torch.testing.assert_close(y, torch.cat(wanted), rtol=0, atol=1e-14)
    torch.testing.assert_close(sums, torch.stack([part.sum(0) for part in x.split(lengths)]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("length", [0, 1, 33, 64])
@pytest.mark.parametrize("wide", [1, 5, 16, 40, 100])
def test_windows(length: int, wide: int) -> None:
    x = torch.randn(length, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    y = torch.full_like(x, torch.nan)
    call(window(), -(-length // 16), x=x, y=y, T=length, W=wide, CHUNK=16)
    wanted = torch.stack([x[max(0, t - wide + 1) : t + 1].sum() for t in range(length)]) if length else x
    torch.testing.assert_close(y, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("length", [0, 1, 16, 37])
def test_carried_numbers(length: int) -> None:
    x = torch.randn(2, length, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(6))
    y = torch.full_like(x, torch.nan, dtype=torch.float32)
    call(running(), 2, x=x, y=y, T=length, CHUNK=16)
    torch.testing.assert_close(y, x.float().cumsum(1) / max(1, length), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [0, 1, 33])
def test_a_table_read_at_the_lag_of_every_pair(length: int) -> None:
    made = torch.Generator().manual_seed(7)
    x, table = torch.randn(length, generator=made, dtype=torch.float64), torch.randn(9, generator=made, dtype=torch.float64)
    y = torch.full_like(x, torch.nan)
    call(gathered(), -(-length // 16), x=x, table=table, y=y, T=length, LAGS=9, CHUNK=16)
    lag = torch.arange(length)[:, None] - torch.arange(length)
    weights = torch.where((lag >= 0) & (lag < 9), table[lag.clamp(0, 8)], 0.0)
    torch.testing.assert_close(y, weights @ x, rtol=0, atol=1e-13)


def moved(begin: Tensor, matrices: Tensor, updates: Tensor) -> Tensor:
    """The state of `transition` at the end, in plain torch."""
    state = begin.mT
    for t in range(matrices.shape[1]):
        state = matrices[:, t] @ state + updates[:, t]
    return state.mT


def test_three_axes_and_permuted_memory() -> None:
    made = torch.Generator().manual_seed(3)
    shapes = ((2, 3, 4), (2, 5, 4, 4), (2, 5, 4, 3))
    begin, matrices, updates = (torch.randn(*shape, generator=made, dtype=torch.float64) for shape in shapes)
    torch.testing.assert_close(carried(begin, matrices, updates), moved(begin, matrices, updates), rtol=0, atol=1e-12)


def test_gradients_flow_through_the_text() -> None:
    made = torch.Generator().manual_seed(4)
    given = [torch.randn(*shape, generator=made, dtype=torch.float64) * 0.5 for shape in ((2, 3, 4), (2, 3, 4, 4), (2, 3, 4, 3))]
    assert torch.autograd.gradcheck(carried, [one.requires_grad_() for one in given])
    q, k, v, gate = (one[:1, :, :1].requires_grad_() for one in tensors(10, torch.float64))
    assert torch.autograd.gradcheck(lambda *given: passed(True, *given, scale=0.5, chunk=4), (q, k, v, gate))


def test_gradients_of_loops_of_different_lengths() -> None:
    x = torch.randn(11, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64, requires_grad=True)
    offsets = torch.tensor([0, 0, 7, 8, 11]).int()

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        y, sums = torch.empty_like(x), torch.empty(4, 2, dtype=x.dtype)
        call(packed(), 4, x=x, offsets=offsets, y=y, sums=sums, CHUNK=3, N=2)
        return y, sums

    assert torch.autograd.gradcheck(run, (x,))


def elementwise(write: Expr) -> Tensor:
    """The values of an expression over t, for 6 elements in each of 2 programs."""
    k = Builder("values", "", {"t": "T"}, scalars=("scale",))
    number_of = k.program(number(2))
    k.store(k.buffer("y", "B", "T", dtype=ACC), number_of, Span("t", number(0), iota("t")), value=write)
    y = torch.full((2, 6), torch.nan, dtype=torch.float64)
    call(k.done(), 2, y=y, T=6, scale=0.25, S=3)
    return y[0]


T = torch.arange(6, dtype=torch.float64)
VALUES: dict[str, tuple[Expr, Tensor]] = {
    "brackets": ((cast(iota("t"), ACC) - (cast(iota("t"), ACC) - 1.0)) * 2.0, torch.full((6,), 2.0)),
    "left to right": (cast(iota("t") - 1 - (iota("t") - 3) % 2 * 2, ACC), T - 1 - (T - 3) % 2 * 2),
    "negative": (cast(iota("t"), ACC) * -2.0 - (-1.0), -2 * T + 1),
    "divisions": (cast(cdiv(iota("t"), 2) * 10 + iota("t") // 2, ACC), -(-T // 2) * 10 + T // 2),
    "extremes": (cast(least(iota("t"), 3) + most(2, iota("t")) + least(size("S"), 1), ACC), T.clamp(max=3) + T.clamp(min=2) + 1),
    "logic": (select((iota("t") < 2) | (iota("t") > 3) & (iota("t") <= 4), 1.0, 0.0), ((T < 2) | (T == 4)).double()),
    "exclusive": (select((iota("t") < 2) ^ iota("t").same(1), 1.0, 0.0), (T == 0).double()),
    "bits": (cast((iota("t") ^ 1) + (iota("t") << 1), ACC), torch.tensor([1.0, 2, 7, 8, 13, 14])),
    "plain numbers": (select(size("S").same(3), cast(iota("t"), ACC) * exp2(size("S", ACC)), 0.0), T * 8),
    "plain choices": (cast(iota("t"), ACC) * select(size("S") > 5, size("scale", ACC), 2.0), T * 2),
    "square roots": (rsqrt(cast(iota("t") + 1, ACC)), (T + 1).rsqrt()),
}


@pytest.mark.parametrize("name", VALUES)
def test_printed_expressions_keep_their_meaning(name: str) -> None:
    written, wanted = VALUES[name]
    torch.testing.assert_close(elementwise(written), wanted.double(), rtol=1e-15, atol=0)
