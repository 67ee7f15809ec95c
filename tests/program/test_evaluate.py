"""Expressions on tensors against plain torch formulas: values, gradients, dtypes, head groups, layouts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from contractor.errors import ArgumentError
from contractor.program.evaluate import Reading, einsum, evaluate
from contractor.program.expression import (
    Apply,
    Axes,
    Concat,
    Constant,
    Contract,
    Expression,
    Leaf,
    Number,
    Outer,
    Position,
    Reduce,
    Relabel,
    Size,
    Variable,
)
from contractor.program.functions import ELEMENTWISE, average_growth
from contractor.program.program import Operand
from contractor.program.reduce import masked_softmax
from contractor.program.values import Value, broadcast, from_call, to_call

torch.set_num_threads(1)
SIZES = {"T": 4, "S": 5, "N": 3, "P": 2, "F": 3, "M": 3}
MASK = Leaf("causal", (), ())


def tensor(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def factorial(number: int) -> float:
    return float(math.factorial(number))


def variable(name: str, axes: str, number: Number = Number.REAL) -> Variable:
    return Variable(name, tuple(axes), number)


def apply(function: str, *arguments: Expression) -> Apply:
    every = dict.fromkeys(axis for argument in arguments for axis in argument.axes)
    axes = tuple(axis for axis in "TS" if axis in every) + tuple(axis for axis in every if axis not in "TS")
    return Apply(function, arguments, axes, ELEMENTWISE[function].number(*(argument.number for argument in arguments)))


def run(expression: Expression, mask: Tensor | None = None, real: torch.dtype = torch.float64, **given: Tensor) -> Value:
    """Evaluate, every variable being given as [batch, head, *axes]."""
    found = {node.name: node for node in variables(expression)}
    return evaluate(
        expression,
        Reading(
            look=lambda name: Value(given[name], found[name].axes),
            contract=einsum,
            softmax=lambda node, value: masked_softmax(node, value, Value(torch.ones(1) if mask is None else mask, ("T", "S"))),
            sizes=SIZES,
            positions=lambda axis: torch.arange(SIZES[axis]),
            real=real,
        ),
    )


def variables(expression: Any) -> list[Variable]:
    """Every variable anywhere inside."""
    if isinstance(expression, Variable):
        return [expression]
    if isinstance(expression, tuple):
        return [found for part in expression for found in variables(part)]
    slots = getattr(expression, "__slots__", ())
    return [found for slot in slots for found in variables(getattr(expression, slot))]


# ---- elementwise ------------------------------------------------------------------------------------------------------------

ONE: dict[str, Callable[[Tensor], Tensor]] = {
    "negate": lambda x: -x,
    "exp": lambda x: math.e**x,
    "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
    "softplus": lambda x: torch.log(1 + torch.exp(x)),
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "relu": lambda x: x * (x > 0),
    "gelu": lambda x: x / 2 * (1 + torch.erf(x / math.sqrt(2))),
    "elu": lambda x: torch.where(x > 0, x, torch.exp(x) - 1),
    "tanh": lambda x: (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1),
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "abs": lambda x: torch.sqrt(x * x),
    "sign": lambda x: x / x.abs(),
    "square": lambda x: x**2,
    "real": lambda x: x,
    "imag": lambda x: 0 * x,
    "conj": lambda x: x,
}
POSITIVE: dict[str, Callable[[Tensor], Tensor]] = {
    "log": torch.log,
    "log1p": lambda x: torch.log(1 + x),
    "sqrt": lambda x: x**0.5,
    "rsqrt": lambda x: x**-0.5,
    "reciprocal": lambda x: x**-1.0,
}


@pytest.mark.parametrize("name", [*ONE, *POSITIVE])
def test_one_argument(name: str) -> None:
    x = tensor(1, 2, 1, 4, 3)
    x = x.abs() + 0.1 if name in POSITIVE else x
    expected = (ONE | POSITIVE)[name](x)
    result = run(apply(name, variable("x", "TN")), x=x)
    assert result.axes == ("T", "N")
    torch.testing.assert_close(result.tensor, expected, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(lambda x: run(apply(name, variable("x", "TN")), x=x).tensor.sum(), x.requires_grad_())


def test_every_function_is_tested() -> None:
    others = {"+", "-", "*", "/", "^", "min", "max", "clamp", "polar"}
    discretisations = {name for name in ELEMENTWISE if name.startswith(("zoh", "bilinear"))}
    assert set(ELEMENTWISE) == set(ONE) | set(POSITIVE) | others | discretisations


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("+", lambda x, y: x + y),
        ("-", lambda x, y: x - y),
        ("*", lambda x, y: x * y),
        ("/", lambda x, y: x / y),
        ("^", lambda x, y: torch.exp(y * torch.log(x))),
        ("min", lambda x, y: torch.where(x < y, x, y)),
        ("max", lambda x, y: torch.where(x < y, y, x)),
    ],
)
def test_two_arguments_meet_by_name(name: str, formula: Callable[[Tensor, Tensor], Tensor]) -> None:
    x, y = tensor(2, 2, 1, 4, 3).abs() + 0.1, tensor(3, 1, 2, 3, 5).abs() + 0.1
    result = run(apply(name, variable("x", "TN"), variable("y", "NS")), x=x, y=y)
    assert result.axes == ("T", "S", "N")
    expected = formula(x[:, :, :, None, :].expand(2, 2, 4, 5, 3), y.transpose(2, 3)[:, :, None].expand(2, 2, 4, 5, 3))
    torch.testing.assert_close(result.tensor, expected, rtol=1e-12, atol=1e-12)


def test_clamp_and_polar() -> None:
    x = tensor(4, 1, 1, 4, 3)
    clamped = run(apply("clamp", variable("x", "TN"), Constant(-0.5), Constant(1)), x=x).tensor
    assert clamped.equal(x.clamp(-0.5, 1)) and clamped.dtype == torch.float64
    half = run(apply("clamp", variable("x", "TN"), Constant(-0.5), Constant(1)), x=x.bfloat16()).tensor
    assert half.dtype == torch.bfloat16
    y = tensor(5, 1, 1, 4)
    result = run(apply("polar", variable("x", "TN"), variable("y", "T")), x=x, y=y).tensor
    torch.testing.assert_close(result, x * torch.exp(1j * y[..., None]))


def test_complex_parts_and_conjugate() -> None:
    z = torch.complex(tensor(6, 1, 1, 3), tensor(7, 1, 1, 3)).requires_grad_()
    node = variable("z", "N", Number.COMPLEX)
    assert run(apply("real", node), z=z).tensor.equal(z.real)
    assert run(apply("imag", node), z=z).tensor.equal(z.imag)
    assert run(apply("conj", node), z=z).tensor.equal(z.conj().resolve_conj())
    torch.testing.assert_close(run(apply("abs", node), z=z).tensor, (z * z.conj()).real.sqrt())
    for name in ("exp", "log", "sqrt", "rsqrt", "square", "sigmoid", "silu", "tanh", "sin", "cos", "log1p"):
        assert torch.autograd.gradcheck(lambda z, name=name: run(apply(name, node), z=z).tensor, z), name


# ---- discretisations ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e-5, 0.05, 0.1, 0.3, 2.0])
def test_zoh_input_near_zero(scale: float) -> None:
    """Value and first derivative against a series with sixty terms, real and complex."""
    directions = torch.tensor([1.0, -1.0, 1j, -1j, 0.6 + 0.8j], dtype=torch.complex128)
    z = scale * directions
    terms = [z**power / factorial(power + 1) for power in range(40)]
    slopes = [power * z ** (power - 1) / factorial(power + 1) for power in range(1, 40)]
    torch.testing.assert_close(average_growth(z), torch.stack(terms).sum(0), rtol=1e-14, atol=1e-15)
    real = z[:2].real.clone().requires_grad_()
    (slope,) = torch.autograd.grad(average_growth(real).sum(), real)
    torch.testing.assert_close(slope, torch.stack(slopes).sum(0)[:2].real, rtol=1e-12, atol=1e-13)
    holomorphic = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(average_growth(holomorphic), holomorphic, torch.ones_like(z))
    torch.testing.assert_close(slope, torch.stack(slopes).sum(0).conj(), rtol=1e-12, atol=1e-13)


def test_discretisations_elementwise() -> None:
    a, b, dt = tensor(8, 1, 1, 2, 3), tensor(9, 1, 1, 3), tensor(10, 1, 1, 2).abs()
    nodes = variable("a", "PN"), variable("b", "N"), variable("dt", "P")
    step, wide = dt[..., None], b[:, :, None]
    expected = {
        "zoh": torch.exp(step * a),
        "zoh_input": (torch.exp(step * a) - 1) / a * wide,
        "bilinear": (1 + step * a / 2) / (1 - step * a / 2),
        "bilinear_input": step / (1 - step * a / 2) * wide,
    }
    for name, value in expected.items():
        arguments = nodes if "input" in name else (nodes[0], nodes[2])
        torch.testing.assert_close(run(apply(name, *arguments), a=a, b=b, dt=dt).tensor, value, rtol=1e-12, atol=1e-12)
    a[0, 0, 0, 0] = 0
    fed = run(apply("zoh_input", *nodes), a=a, b=b, dt=dt).tensor
    assert fed[0, 0, 0, 0] == dt[0, 0, 0] * b[0, 0, 0]


def matrix_node(name: str, fed: str = "MP") -> Apply:
    """A discretisation of A [S?, N, M] with dt []: its axes as the checker gives them."""
    a, dt = variable("a", "NM"), variable("dt", "S")
    if "input" not in name:
        return Apply(name, (a, dt), ("S", "N", "M"), Number.REAL)
    return Apply(name, (a, variable("b", fed), dt), ("S", "P", "N"), Number.REAL)


@pytest.mark.parametrize("singular", [False, True])
def test_discretisations_of_a_matrix(singular: bool) -> None:
    a, b, dt = tensor(11, 1, 2, 3, 3), tensor(12, 1, 1, 3, 2), tensor(13, 2, 1, 5).abs()
    if singular:
        a[..., 2, :] = a[..., 0, :]
    step = dt[..., None, None]
    scaled, identity = step * a[:, :, None], torch.eye(3, dtype=torch.float64)
    powers = [torch.linalg.matrix_power(scaled, power) for power in range(60)]
    growth = sum(power / factorial(place + 1) for place, power in enumerate(powers))
    inverse = torch.linalg.inv(identity - scaled / 2)
    expected = {
        "zoh_matrix": torch.matrix_exp(scaled),
        "zoh_matrix_input": (step * growth @ b[:, :, None]).transpose(-1, -2),
        "bilinear_matrix": inverse @ (identity + scaled / 2),
        "bilinear_matrix_input": (step * inverse @ b[:, :, None]).transpose(-1, -2),
    }
    for name, value in expected.items():
        result = run(matrix_node(name), a=a, b=b, dt=dt)
        torch.testing.assert_close(result.tensor, value.expand_as(result.tensor), rtol=1e-11, atol=1e-11)
    with pytest.raises(ArgumentError, match="the matrix is square; N is 3 and M is 2"):
        run(matrix_node("zoh_matrix"), a=a[..., :2], dt=dt)
    half = run(matrix_node("zoh_matrix"), a=a.bfloat16(), dt=dt.bfloat16()).tensor
    assert half.dtype == torch.bfloat16


# ---- numbers, sizes, positions, dtypes ---------------------------------------------------------------------------------------


def test_numbers_and_sizes_leave_the_dtype_alone() -> None:
    x = tensor(14, 1, 1, 4, 3, dtype=torch.float32).bfloat16()
    scaled = run(apply("*", variable("x", "TN"), apply("rsqrt", Size("N"))), x=x).tensor
    assert scaled.dtype == torch.bfloat16 and scaled.equal(x * 3**-0.5)
    power = run(apply("^", Size("N"), Constant(-0.25))).tensor
    assert power.item() == 3**-0.25
    gate = tensor(15, 1, 1, 4, dtype=torch.float32)
    assert run(apply("*", variable("x", "TN"), variable("g", "T")), x=x, g=gate).tensor.dtype == torch.float32


def test_positions_and_integers_become_real() -> None:
    node = apply("/", Position("T"), Size("T"))
    assert run(node).tensor.equal(torch.arange(4, dtype=torch.float64)[None, None] / 4)
    assert run(node, real=torch.float32).tensor.dtype == torch.float32
    x = torch.ones(1, 1, 4, dtype=torch.bfloat16)
    late = apply("*", variable("x", "T"), apply("+", Position("T"), Constant(4097)))
    assert run(late, real=torch.float32, x=x).tensor[0, 0, 0] == 4097
    ids = torch.tensor([[[1, 2, 3]]])
    assert run(apply("+", variable("i", "N", Number.INT), Constant(1)), i=ids).tensor.dtype == torch.int64


def test_head_groups() -> None:
    """Head h of H reads head h // (H / count); counts of which none divides the other meet at their least common multiple."""
    x, y, z = tensor(16, 2, 6, 4), tensor(17, 1, 3, 4), tensor(18, 2, 1, 4)
    result = run(apply("*", apply("*", variable("y", "T"), variable("z", "T")), variable("x", "T")), x=x, y=y, z=z).tensor
    expected = torch.stack([x[:, head] * y[:, head // 2] * z[:, 0] for head in range(6)], 1)
    torch.testing.assert_close(result, expected)
    other = tensor(0, 1, 4, 4)
    result = run(apply("*", variable("x", "T"), variable("y", "T")), x=x, y=other).tensor
    torch.testing.assert_close(result, torch.stack([x[:, head // 2] * other[:, head // 3] for head in range(12)], 1))


# ---- over axes --------------------------------------------------------------------------------------------------------------


def over(function: Any, x: Variable, *axes: str, masked: bool = False) -> Reduce:
    there = tuple("TS") if masked else x.axes
    kept = tuple(axis for axis in there if axis not in axes) if function in ("sum", "mean", "max") else there
    return Reduce(function, x, axes, MASK if masked else None, kept, Number.REAL)


def test_reductions() -> None:
    x = tensor(19, 2, 1, 4, 5, 3)
    node = variable("x", "TSN")
    for name, formula in {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}.items():
        result = run(over(name, node, "S", "N"), x=x)
        assert result.axes == ("T",)
        torch.testing.assert_close(result.tensor, formula(x, (3, 4)))
    torch.testing.assert_close(run(over("softmax", node, "S"), x=x).tensor, torch.softmax(x, 3))
    torch.testing.assert_close(run(over("softmax", node, "S", "N"), x=x).tensor, torch.softmax(x.flatten(3), 3).reshape(x.shape))
    torch.testing.assert_close(run(over("l2norm", node, "N"), x=x).tensor, torch.nn.functional.normalize(x, dim=4))
    torch.testing.assert_close(run(over("rmsnorm", node, "N"), x=x).tensor, x / torch.sqrt((x**2).mean(4, keepdim=True) + 1e-6))
    zero = torch.zeros(1, 1, 4, 5, 3, dtype=torch.float64, requires_grad=True)
    run(over("l2norm", node, "N"), x=zero).tensor.sum().backward()
    assert zero.grad is not None and zero.grad.isfinite().all()


@pytest.mark.parametrize("name", ["l2norm", "rmsnorm", "softmax"])
def test_norms_of_half_precision_are_computed_in_float32(name: str) -> None:
    x = tensor(20, 1, 1, 4, 3, dtype=torch.float32).bfloat16()
    node = over(name, variable("x", "TN"), "N")
    result = run(node, x=x).tensor
    assert result.dtype == torch.bfloat16 and result.equal(run(node, x=x.float()).tensor.bfloat16())


def test_over_nothing() -> None:
    x = torch.zeros(1, 1, 4, 0, dtype=torch.float64)
    node = variable("x", "TS")
    assert run(over("sum", node, "S"), x=x).tensor.equal(torch.zeros(1, 1, 4, dtype=torch.float64))
    assert run(over("max", node, "S"), x=x).tensor.equal(torch.full((1, 1, 4), -torch.inf, dtype=torch.float64))
    assert run(over("softmax", node, "S"), x=x).tensor.shape == x.shape
    assert run(over("l2norm", node, "S"), x=x).tensor.shape == x.shape
    mask = torch.ones(1, 1, 4, 0)
    assert run(over("softmax", node, "S", masked=True), mask=mask, x=x).tensor.shape == x.shape


# ---- softmax under a mask --------------------------------------------------------------------------------------------------


def test_masked_softmax_and_its_gradients() -> None:
    node = over("softmax", variable("x", "TS"), "S", masked=True)
    mask = (tensor(21, 1, 2, 4, 5).abs() * (torch.arange(5) <= torch.arange(4)[:, None] + 1)).requires_grad_()
    x = tensor(22, 2, 1, 4, 5).requires_grad_()
    weights = mask * torch.exp(x)
    torch.testing.assert_close(run(node, mask=mask, x=x).tensor, weights / weights.sum(-1, keepdim=True))
    assert torch.autograd.gradcheck(lambda x: run(node, mask=mask.detach(), x=x).tensor, x)
    positive = (tensor(23, 1, 1, 4, 5).abs() + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda mask: run(node, mask=mask, x=x.detach()).tensor, positive)


def test_an_empty_row_is_zero_and_so_is_its_gradient() -> None:
    node = over("softmax", variable("x", "TS"), "S", masked=True)
    mask = torch.ones(1, 1, 4, 5, dtype=torch.float64)
    mask[0, 0, 1], mask[0, 0, 2, 1:] = 0, 0
    mask.requires_grad_()
    x = tensor(24, 1, 1, 4, 5)
    x[0, 0, 2, 3], x[0, 0, 3] = torch.inf, torch.tensor([700.0, -900.0, 800.0, 1.0, -torch.inf])
    x.requires_grad_()
    result = run(node, mask=mask, x=x).tensor
    assert result[0, 0, 1].eq(0).all() and result[0, 0, 2].tolist() == [1, 0, 0, 0, 0] and result[0, 0, 3].argmax() == 2
    (result * tensor(25, 4, 5)).sum().backward()
    assert x.grad is not None and x.grad.isfinite().all() and x.grad[0, 0, 1].eq(0).all()
    assert mask.grad is not None and mask.grad[0, 0, 1].eq(0).all()


def test_a_weight_that_happens_to_be_zero_has_a_gradient() -> None:
    """decay(0): the entries at lag 1 are 0, their derivative is not."""
    node = over("softmax", variable("x", "TS"), "S", masked=True)
    lag = torch.arange(4)[:, None] - torch.arange(4)
    gamma = torch.zeros((), dtype=torch.float64, requires_grad=True)
    weights = torch.where(lag == 0, 1, torch.where(lag == 1, gamma, 0)).to(torch.float64)[None, None]
    x = tensor(26, 1, 1, 4, 4)
    value, support = Value(x, ("T", "S")), Value((lag >= 0)[None, None], ("T", "S"))
    result = masked_softmax(node, value, Value(weights, ("T", "S")), support).tensor
    (slope,) = torch.autograd.grad(result[0, 0, 2, 1], gamma)
    torch.testing.assert_close(slope, torch.exp(x[0, 0, 2, 1] - x[0, 0, 2, 2]))


# ---- concat, outer, relabel, contract ----------------------------------------------------------------------------------------


def test_concat_of_features() -> None:
    """phi = concat(1, x, outer(x, x) / sqrt(2)): the exponential's second-order features."""
    x = tensor(27, 2, 2, 4, 3)
    node = variable("x", "TN")
    squares = apply("/", Outer(node, node, "Z0", ("T", "Z0"), Number.REAL), apply("sqrt", Constant(2)))
    result = run(Concat((Constant(1), node, squares), "F", ("T", "F"), Number.REAL), x=x)
    pairs = torch.stack([x[..., i] * x[..., j] for i in range(3) for j in range(3)], -1) / math.sqrt(2)
    torch.testing.assert_close(result.tensor, torch.cat([torch.ones(2, 2, 4, 1, dtype=torch.float64), x, pairs], -1))
    half = run(Concat((Constant(1), node), "F", ("T", "F"), Number.REAL), x=x.bfloat16())
    assert half.tensor.dtype == torch.bfloat16


def test_concat_broadcasts_its_parts() -> None:
    x, y = tensor(28, 2, 1, 4, 3), tensor(29, 1, 2, 2)
    result = run(Concat((variable("x", "TN"), variable("y", "P"), Constant(0.5)), "F", ("T", "F"), Number.REAL), x=x, y=y).tensor
    assert result.shape == (2, 2, 4, 6)
    assert result[1, 1, 2].equal(torch.cat([x[1, 0, 2], y[0, 1], torch.tensor([0.5], dtype=torch.float64)]))


def test_outer_is_row_major_over_all_features() -> None:
    x, y = tensor(30, 1, 1, 4, 3, 2), tensor(31, 1, 1, 4, 2)
    node = Outer(variable("x", "TNP"), variable("y", "TP"), "F", ("T", "F"), Number.REAL)
    expected = torch.einsum("bhti,bhtj->bhtij", x.flatten(3), y).flatten(3)
    torch.testing.assert_close(run(node, x=x, y=y).tensor, expected)


def test_relabel_and_contract() -> None:
    q, k = tensor(32, 2, 4, 4, 3), tensor(33, 2, 2, 5, 3)
    renamed = Relabel(variable("k", "SN"), ("S", "M"))
    node = Contract((variable("q", "TN"), renamed), (("T", "M"), ("S", "M")), None, (), ("T", "S"), Number.REAL)
    expected = torch.einsum("bhtn,bhsn->bhts", q, k.repeat_interleave(2, 1))
    torch.testing.assert_close(run(node, q=q, k=k).tensor, expected)
    with pytest.raises(ArgumentError, match="the axis M of a contraction has the sizes 3 and 1"):
        run(node, q=q, k=k[..., :1])
    mixed = run(node, q=q.bfloat16(), k=k.float())
    assert mixed.tensor.dtype == torch.float32
    assert torch.autograd.gradcheck(lambda q, k: run(node, q=q, k=k).tensor.sum((0, 1)), (q.requires_grad_(), k.requires_grad_()))


# ---- layouts ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "axes", "shape", "inner"),
    [
        ("input", "SN", (2, 5, 4, 3), (2, 4, 5, 3)),
        ("input", "S", (2, 5, 4), (2, 4, 5)),
        ("input", "TS", (2, 4, 6, 5), (2, 4, 6, 5)),
        ("input", "TSN", (2, 4, 6, 5, 3), (2, 4, 6, 5, 3)),
        ("input", "N", (2, 4, 3), (2, 4, 3)),
        ("input", "", (2, 4), (2, 4)),
        ("param", "FN", (4, 7, 3), (1, 4, 7, 3)),
        ("param", "FN", (7, 3), (1, 1, 7, 3)),
        ("param", "", (4,), (1, 4)),
        ("param", "", (), (1, 1)),
    ],
)
def test_layout_at_the_call(role: Any, axes: str, shape: tuple[int, ...], inner: tuple[int, ...]) -> None:
    given = tensor(34, *shape)
    value = from_call(Operand("X", role, tuple(axes)), given)
    assert value.tensor.shape == inner and value.tensor.data_ptr() == given.data_ptr()
    if role == "input":
        assert to_call(value, 2, 4).equal(given)


def test_a_wrong_number_of_dimensions() -> None:
    with pytest.raises(ArgumentError, match=r"X is \[batch, S, head, N\]; a tensor with 3 dimensions was given"):
        from_call(Operand("X", "input", ("S", "N")), tensor(0, 2, 5, 3))


def test_outputs_are_spread_over_batch_and_heads() -> None:
    value = Value(tensor(35, 1, 2, 3, 4), ("N", "T"))
    out = to_call(value, 2, 4)
    assert out.shape == (2, 4, 4, 3)
    assert out[1, 2, 3].equal(value.tensor[0, 1, :, 2]) and out[1, 2, 0].equal(value.tensor[0, 0, :, 2])
    assert to_call(Value(torch.tensor(2.0), ()), 2, 3).equal(torch.full((2, 3), 2.0))


@pytest.mark.parametrize("axes", [("T", "N"), ("N", "T")])
def test_a_definition_is_broadcast(axes: Axes) -> None:
    value = broadcast(Value(tensor(36, 1, 1, 3), ("N",)), axes, SIZES)
    assert value.tensor.shape == (1, 1, *(SIZES[axis] for axis in axes))
    assert broadcast(Value(torch.tensor(1), ()), ("S",), SIZES).tensor.equal(torch.ones(1, 1, 5, dtype=torch.int64))
