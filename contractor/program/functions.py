"""The register of elementwise functions: how many arguments, which kinds of numbers, and what they mean on plain torch tensors.

A row is one function; the checker, the evaluator and the help read it. Tensors come aligned (broadcastable); where the result is
real or complex, integers have been converted before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import elu, gelu, logsigmoid

from contractor.program.expression import Number

Gives = Literal["larger", "promoted", "modulus", "complex"]


@dataclass(frozen=True, slots=True)
class Function:
    """One elementwise function.

    takes_complex: complex arguments are allowed. gives: the result's kind of number: "larger" of the arguments, the same but at
    least real ("promoted"), real for complex arguments ("modulus"), or "complex". matrix: the first argument's last two axes are a
    matrix. columns: the position of the argument over the matrix' columns, if there is one.
    """

    name: str
    parameters: tuple[str, ...]
    apply: Callable[..., Tensor]
    gives: Gives = "promoted"
    takes_complex: bool = True
    matrix: bool = False
    columns: int | None = None

    def number(self, *arguments: Number) -> Number:
        """The kind of number of the result."""
        larger = max(arguments)
        match self.gives:
            case "larger":
                return larger
            case "promoted":
                return max(larger, Number.REAL)
            case "modulus":
                return min(larger, Number.REAL)
            case "complex":
                return Number.COMPLEX


# ---- on plain tensors -----------------------------------------------------------------------------------------------------


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x), exact to rounding everywhere (torch's own cuts off at 20, and rounds by how x lies in memory).

    As x lies in memory, which `logsigmoid` alone would not keep: what is multiplied by it would then be laid out anew, however large.
    """
    order = sorted(range(x.dim()), key=lambda dimension: x.stride(dimension), reverse=True)
    back = [order.index(dimension) for dimension in range(x.dim())]
    return -logsigmoid(-x.permute(order)).permute(back)


class Reciprocal(torch.autograd.Function):
    """1 / x, whose gradient is taken without 1 / x²: that of a quotient by a large x must not vanish."""

    @staticmethod
    def forward(saved: Any, x: Tensor) -> Tensor:
        """1 / x."""
        result = torch.reciprocal(x)
        saved.save_for_backward(result)
        return result

    @staticmethod
    def backward(saved: Any, arrived: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradient times the result, twice."""
        (result,) = saved.saved_tensors
        return -(arrived * result) * result


def reciprocal(x: Tensor) -> Tensor:
    """1 / x."""
    return Reciprocal.apply(x)


def silu(x: Tensor) -> Tensor:
    """x · sigmoid(x)."""
    return x * torch.sigmoid(x)


def square(x: Tensor) -> Tensor:
    """x², nothing conjugated."""
    return x * x


def real(x: Tensor) -> Tensor:
    """The real part; a real value as it is."""
    return torch.real(x) if x.is_complex() else x


def imag(x: Tensor) -> Tensor:
    """The imaginary part; zeros for a real value."""
    return torch.imag(x) if x.is_complex() else torch.zeros_like(x)


def conj(x: Tensor) -> Tensor:
    """The complex conjugate, as a plain tensor (no lazy conjugate bit)."""
    return torch.conj(x).resolve_conj()


def polar(r: Tensor, theta: Tensor) -> Tensor:
    """r · e^(i·theta), for any sign of r; at least complex64."""
    dtype = torch.promote_types(torch.result_type(r, theta), torch.float32)
    return torch.complex((r * torch.cos(theta)).to(dtype), (r * torch.sin(theta)).to(dtype))


def clamp(x: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """min(max(x, lo), hi); plain numbers are brought to the others' device, which torch's own does not do."""
    device = next((one.device for one in (x, lo, hi) if one.dim()), x.device)
    return torch.clamp(x.to(device), lo.to(device), hi.to(device))


def minus_one(z: Tensor) -> Tensor:
    """exp(z) − 1, accurate near 0 for complex z too."""
    if not z.is_complex():
        return torch.expm1(z)
    x, y = z.real, z.imag
    return torch.complex(torch.expm1(x) * torch.cos(y) - 2 * square(torch.sin(y / 2)), torch.exp(x) * torch.sin(y))


SERIES = tuple(1 / math.factorial(power + 1) for power in range(9))
NEAR = 0.1


def average_growth(z: Tensor) -> Tensor:
    """(exp(z) − 1)/z, and 1 at z = 0: near 0 by its series, so that value and gradients are accurate."""
    near = z.detach().abs() < NEAR
    small, large = torch.where(near, z, 0), torch.where(near, 1, z)
    series = torch.full_like(z, SERIES[-1])
    for coefficient in reversed(SERIES[:-1]):
        series = series * small + coefficient
    return torch.where(near, series, minus_one(large) / large)


def zoh(a: Tensor, dt: Tensor) -> Tensor:
    """exp(dt·A): zero-order hold (S4D, Gu et al., 2022)."""
    return torch.exp(dt * a)


def zoh_input(a: Tensor, b: Tensor, dt: Tensor) -> Tensor:
    """(exp(dt·A) − 1)/A · Bc, and dt·Bc where A = 0."""
    return average_growth(dt * a) * dt * b


def bilinear(a: Tensor, dt: Tensor) -> Tensor:
    """(1 + dt·A/2)/(1 − dt·A/2): Tustin's rule."""
    half = dt * a / 2
    return (1 + half) / (1 - half)


def bilinear_input(a: Tensor, b: Tensor, dt: Tensor) -> Tensor:
    """dt/(1 − dt·A/2) · Bc."""
    return dt / (1 - dt * a / 2) * b


# ---- on a matrix: A [..., N, M], dt [..., 1, 1], Bc [..., M]; computed in float32 or more -------------------------------------


def widened(*tensors: Tensor) -> tuple[tuple[Tensor, ...], torch.dtype]:
    """The tensors in one dtype that linear algebra knows, and the dtype that the result is due."""
    due = tensors[0].dtype
    for tensor in tensors[1:]:
        due = torch.result_type(torch.empty(1, dtype=due), tensor)
    wide = torch.promote_types(due, torch.float32)
    return tuple(tensor.to(wide) for tensor in tensors), due


def zoh_matrix(a: Tensor, dt: Tensor) -> Tensor:
    """The matrix exponential exp(dt·A)."""
    (a, dt), due = widened(a, dt)
    return torch.matrix_exp(dt * a).to(due)


def zoh_matrix_input(a: Tensor, b: Tensor, dt: Tensor) -> Tensor:
    """∫₀^dt exp(u·A) du · Bc, for singular A too: a block of exp([[dt·A, dt·I], [0, 0]]) (Van Loan, 1978)."""
    (a, b, dt), due = widened(a, b, dt)
    scaled = dt * a
    size = scaled.shape[-1]
    top = torch.cat([scaled, (dt * torch.eye(size, dtype=a.dtype, device=a.device)).expand_as(scaled)], -1)
    growth = torch.matrix_exp(torch.cat([top, torch.zeros_like(top)], -2))[..., :size, size:]
    return (growth @ b.unsqueeze(-1)).squeeze(-1).to(due)


def bilinear_matrix(a: Tensor, dt: Tensor) -> Tensor:
    """(I − dt·A/2)⁻¹ (I + dt·A/2)."""
    (a, dt), due = widened(a, dt)
    half = dt * a / 2
    identity = torch.eye(half.shape[-1], dtype=a.dtype, device=a.device)
    return torch.linalg.solve(identity - half, identity + half).to(due)


def bilinear_matrix_input(a: Tensor, b: Tensor, dt: Tensor) -> Tensor:
    """(I − dt·A/2)⁻¹ dt·Bc."""
    (a, b, dt), due = widened(a, b, dt)
    half = dt * a / 2
    identity = torch.eye(half.shape[-1], dtype=a.dtype, device=a.device)
    inverse = torch.linalg.solve(identity - half, identity.expand_as(half))
    return (inverse @ (dt * b.unsqueeze(-1))).squeeze(-1).to(due)


# ---- the register ---------------------------------------------------------------------------------------------------------

ONE, TWO = ("x",), ("x", "y")
HELD, FED = ("A", "dt"), ("A", "Bc", "dt")

ROWS = (
    Function("+", TWO, torch.add, "larger"),
    Function("-", TWO, torch.sub, "larger"),
    Function("*", TWO, torch.mul, "larger"),
    Function("/", TWO, torch.true_divide),
    Function("^", TWO, torch.pow),
    Function("negate", ONE, torch.neg, "larger"),
    Function("reciprocal", ONE, reciprocal),
    Function("exp", ONE, torch.exp),
    Function("log", ONE, torch.log),
    Function("log1p", ONE, torch.log1p),
    Function("sqrt", ONE, torch.sqrt),
    Function("rsqrt", ONE, torch.rsqrt),
    Function("abs", ONE, torch.abs, "modulus"),
    Function("sign", ONE, torch.sign, "larger", takes_complex=False),
    Function("square", ONE, square, "larger"),
    Function("sigmoid", ONE, torch.sigmoid),
    Function("softplus", ONE, softplus, takes_complex=False),
    Function("silu", ONE, silu),
    Function("relu", ONE, torch.relu, "larger", takes_complex=False),
    Function("gelu", ONE, gelu, takes_complex=False),
    Function("elu", ONE, elu, takes_complex=False),
    Function("tanh", ONE, torch.tanh),
    Function("erf", ONE, torch.erf, takes_complex=False),
    Function("sin", ONE, torch.sin),
    Function("cos", ONE, torch.cos),
    Function("min", TWO, torch.minimum, "larger", takes_complex=False),
    Function("max", TWO, torch.maximum, "larger", takes_complex=False),
    Function("clamp", ("x", "lo", "hi"), clamp, "larger", takes_complex=False),
    Function("real", ONE, real, "modulus"),
    Function("imag", ONE, imag, "modulus"),
    Function("conj", ONE, conj, "larger"),
    Function("polar", ("r", "theta"), polar, "complex", takes_complex=False),
    Function("zoh", HELD, zoh),
    Function("zoh_input", FED, zoh_input),
    Function("bilinear", HELD, bilinear),
    Function("bilinear_input", FED, bilinear_input),
    Function("zoh_matrix", HELD, zoh_matrix, matrix=True),
    Function("zoh_matrix_input", FED, zoh_matrix_input, matrix=True, columns=1),
    Function("bilinear_matrix", HELD, bilinear_matrix, matrix=True),
    Function("bilinear_matrix_input", FED, bilinear_matrix_input, matrix=True, columns=1),
)
ELEMENTWISE: dict[str, Function] = {row.name: row for row in ROWS}
SIGNS = ("+", "-", "*", "/", "^", "negate", "reciprocal")  # not written as functions are
# Those that kernels apply to an operand as they read it (`schedules.parts.maps` has the rules).
MAPS = frozenset((
    "+", "-", "*", "/", "negate", "exp", "log", "sqrt", "rsqrt", "abs", "square", "sigmoid", "softplus", "silu", "relu", "elu", "tanh",
))  # fmt: skip
REDUCTIONS = ("sum", "mean", "max", "softmax", "l2norm", "rmsnorm")
FUNCTIONS = tuple(dict.fromkeys((*(name for name in ELEMENTWISE if name not in SIGNS), *REDUCTIONS, "pos", "concat", "outer")))
