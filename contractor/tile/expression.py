"""Expressions on tiles with named axes.

A tile is a block of numbers with ordered named axes, a dtype, and whether it differs between programs (`spread`). Axes and dtypes are
settled when an expression is made (`rules`), so a wrong kernel fails where it is written. Nodes compare by identity; equality of whole
kernels goes through `show`. Integer division and remainder are of non-negative numbers: machines differ on others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contractor.errors import TileError
from contractor.tile.rules import ACC, BOOL, I32, INTEGERS, Axes, broadcast, joined, widen

Sign = Literal["+", "-", "*", "/", "//", "%", "==", ">=", ">", "<", "<=", "&", "|", "^", "<<", "cdiv", "least", "most"]
COMPARISONS = ("==", ">=", ">", "<", "<=")
Function = Literal["exp2", "log2", "sqrt", "rsqrt", "abs"]
Reduction = Literal["sum", "max", "cumsum"]
Precision = Literal["ieee", "tf32x3", "tf32"]


class Arithmetic:
    """The signs that expressions are written with."""

    __slots__ = ()

    def __add__(self, other: Expr | float) -> Expr:
        return binary("+", self, other)

    def __radd__(self, other: float) -> Expr:
        return binary("+", other, self)

    def __sub__(self, other: Expr | float) -> Expr:
        return binary("-", self, other)

    def __rsub__(self, other: float) -> Expr:
        return binary("-", other, self)

    def __mul__(self, other: Expr | float) -> Expr:
        return binary("*", self, other)

    def __rmul__(self, other: float) -> Expr:
        return binary("*", other, self)

    def __truediv__(self, other: Expr | float) -> Expr:
        return binary("/", self, other)

    def __rtruediv__(self, other: float) -> Expr:
        return binary("/", other, self)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return binary("//", self, other)

    def __mod__(self, other: Expr | int) -> Expr:
        return binary("%", self, other)

    def __lshift__(self, other: Expr | int) -> Expr:
        return binary("<<", self, other)

    def __rlshift__(self, other: int) -> Expr:
        return binary("<<", other, self)

    def __ge__(self, other: Expr | float) -> Expr:
        return binary(">=", self, other)

    def __gt__(self, other: Expr | float) -> Expr:
        return binary(">", self, other)

    def __lt__(self, other: Expr | float) -> Expr:
        return binary("<", self, other)

    def __le__(self, other: Expr | float) -> Expr:
        return binary("<=", self, other)

    def __and__(self, other: Expr) -> Expr:
        return binary("&", self, other)

    def __or__(self, other: Expr) -> Expr:
        return binary("|", self, other)

    def __xor__(self, other: Expr) -> Expr:
        return binary("^", self, other)

    def same(self, other: Expr | float) -> Expr:
        """Equality, element by element (`==` compares the nodes themselves)."""
        return binary("==", self, other)


@dataclass(frozen=True, slots=True, eq=False)
class Typed(Arithmetic):
    """What every expression knows of itself. spread: it differs from program to program."""

    axes: Axes
    dtype: str
    spread: bool


@dataclass(frozen=True, slots=True, eq=False)
class Number(Typed):
    """An integer or a real number, written out."""

    value: int | float


@dataclass(frozen=True, slots=True, eq=False)
class Size(Typed):
    """A size, a constant or a runtime scalar, by name."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Program(Typed):
    """The number of the program, from 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Iota(Typed):
    """0, 1, 2, … along an axis."""


@dataclass(frozen=True, slots=True, eq=False)
class Tile(Typed):
    """A tile by its name. product: it holds the result of a dot (a hazard to transpose, see `dot`)."""

    name: str
    kind: Literal["let", "load", "carried", "counter"]
    product: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Rename(Typed):
    """The same numbers under other axes; nothing is computed."""

    source: Expr
    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Cast(Typed):
    """The same numbers in another dtype."""

    source: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Unary(Typed):
    """A function of one tile, in the accumulators' dtype."""

    function: Function
    source: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Typed):
    """Two tiles joined element by element."""

    sign: Sign
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Select(Typed):
    """One of two tiles, element by element."""

    condition: Expr
    first: Expr
    second: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Reduce(Typed):
    """A sum or a maximum along an axis, which goes; or a running sum along it, which stays."""

    reduction: Reduction
    source: Expr
    axis: str


@dataclass(frozen=True, slots=True, eq=False)
class Dot(Typed):
    """A product of two matrices over the axis that they share, added to `into`, accumulated in the accumulators' dtype."""

    left: Expr
    right: Expr
    into: Expr | None
    precision: Precision | None
    shared: str


Expr = Number | Size | Program | Iota | Tile | Rename | Cast | Unary | Binary | Select | Reduce | Dot


def number(value: Expr | Arithmetic | float) -> Expr:
    """A Python number as an expression; an expression as itself."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TileError(f"{value!r} is no number")
    return Number((), ACC if isinstance(value, float) else I32, False, value)


def size(name: str, dtype: str = I32) -> Expr:
    """A size or constant by name; dtype ACC for a real scalar such as `scale`, or a size that is computed with as a real number."""
    return Size((), dtype, False, name)


def is_zero(value: Expr) -> bool:
    """True for the number 0."""
    return isinstance(value, Number) and value.value == 0


def is_one(value: Expr) -> bool:
    """True for the number 1."""
    return isinstance(value, Number) and value.value == 1


def binary(sign: Sign, first: Expr | Arithmetic | float, second: Expr | Arithmetic | float) -> Expr:
    """Two expressions joined; zeros and ones that change nothing are left out."""
    left, right = number(first), number(second)
    if sign in ("+", "-") and isinstance(right, Number) and right.value < 0:
        sign, right = ("-" if sign == "+" else "+"), number(-right.value)
    simple = simplified(sign, left, right)
    if simple is not None:
        return simple
    axes, dtype = broadcast(left.axes, right.axes), result_dtype(sign, left.dtype, right.dtype)
    return Binary(axes, dtype, left.spread or right.spread, sign, left, right)


def simplified(sign: Sign, left: Expr, right: Expr) -> Expr | None:
    """What is left if one operand changes nothing, or both are integers written out; None otherwise."""
    if sign == "+" and is_zero(left) and widen(left.dtype, right.dtype) == right.dtype:
        return right
    if sign in ("+", "-") and is_zero(right) and widen(left.dtype, right.dtype) == left.dtype:
        return left
    if sign == "*" and is_one(left) and widen(left.dtype, right.dtype) == right.dtype:
        return right
    if sign in ("*", "/", "//") and is_one(right) and widen(left.dtype, right.dtype) == left.dtype:
        return left
    return folded(sign, left, right)


def folded(sign: Sign, left: Expr, right: Expr) -> Expr | None:
    """The value of a sum, difference or product of two integers written out."""
    if not (isinstance(left, Number) and isinstance(right, Number) and left.dtype == right.dtype == I32):
        return None
    values = {"+": left.value + right.value, "-": left.value - right.value, "*": left.value * right.value}
    return number(values[sign]) if sign in values else None


def result_dtype(sign: Sign, left: str, right: str) -> str:
    """The dtype of two dtypes under a sign."""
    if sign in COMPARISONS:
        if (left == BOOL) != (right == BOOL):
            raise TileError(f"{sign} of {left} and {right}")
        return BOOL
    if sign in ("&", "|", "^"):
        return joined(left, right)
    if sign in ("//", "%", "<<", "cdiv") and not {left, right} <= set(INTEGERS):
        raise TileError(f"{sign} of {left} and {right}: both must be integers")
    if sign == "/" and {left, right} <= set(INTEGERS):
        return ACC
    return widen(left, right)
