"""What an expression or a mask means: typed nodes, each knowing its axes and the kind of its numbers. No tensors here.

Axes are letters; `T` and `S` are the positions and stand before the feature axes, which keep the order of first appearance.
Batch and head are implicit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, assert_never

Axes = tuple[str, ...]
POSITIONS = ("T", "S")


class Number(IntEnum):
    """The kind of a value's numbers; arithmetic gives the larger kind of its operands."""

    INT = 0
    REAL = 1
    COMPLEX = 2


@dataclass(frozen=True, slots=True)
class Constant:
    """A number written in the spec."""

    value: int | float
    axes: Axes = ()

    @property
    def number(self) -> Number:
        return Number.INT if isinstance(self.value, int) else Number.REAL


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an axis: `N` standing alone. With packed sequences `T` and `S` are the own sequence's lengths."""

    axis: str
    axes: Axes = ()
    number: Number = Number.INT


@dataclass(frozen=True, slots=True)
class Position:
    """`pos(S)` = s or `pos(T)` = t + S − T, both plus the positions already in the state."""

    axis: Literal["T", "S"]
    number: Number = Number.INT

    @property
    def axes(self) -> Axes:
        return (self.axis,)


@dataclass(frozen=True, slots=True)
class Variable:
    """An operand or a definition, by name."""

    name: str
    axes: Axes
    number: Number


@dataclass(frozen=True, slots=True)
class Relabel:
    """A tensor with its axes under other letters, in order."""

    value: Variable
    axes: Axes

    @property
    def number(self) -> Number:
        return self.value.number


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise function or sign (a key of `functions.ELEMENTWISE`), broadcast by axis name.

    The discretisations on a matrix (`zoh_matrix` …) are Apply too; their last two axes are the matrix.
    """

    function: str
    arguments: tuple[Expression, ...]
    axes: Axes
    number: Number


@dataclass(frozen=True, slots=True)
class Reduce:
    """`sum mean max` (the axes `over` go) or `softmax l2norm rmsnorm` (they stay); `under` is softmax's mask."""

    function: Literal["sum", "mean", "max", "softmax", "l2norm", "rmsnorm"]
    value: Expression
    over: Axes
    under: Mask | None
    axes: Axes
    number: Number


@dataclass(frozen=True, slots=True)
class Concat:
    """Parts laid end to end along `axis`; a part whose feature axis is not among `axes` brings that axis, else one column."""

    parts: tuple[Expression, ...]
    axis: str
    axes: Axes
    number: Number


@dataclass(frozen=True, slots=True)
class Outer:
    """`outer(x, y)`: the outer product over all feature axes of both, row-major, y fastest, as one new `axis`."""

    left: Expression
    right: Expression
    axis: str
    axes: Axes
    number: Number


@dataclass(frozen=True, slots=True)
class Contract:
    """Einstein summation over axis names; with a mask it is a mixing.

    letters: for each operand (the mask not among them) its axes under the contraction's names, in the operand's own axis order.
    mask: its axes are `T`, `S` and `mask_axes` (the mask's extra axes under the contraction's names, in the mask's order).
    """

    operands: tuple[Expression, ...]
    letters: tuple[Axes, ...]
    mask: Mask | None
    mask_axes: Axes
    axes: Axes
    number: Number


Expression = Constant | Size | Position | Variable | Relabel | Apply | Reduce | Concat | Outer | Contract


@dataclass(frozen=True, slots=True)
class Leaf:
    """One mask by kind, with its arguments bound. `axes`: the extra axes of the mask it stands in (L [T, S, *axes])."""

    kind: str
    arguments: tuple[tuple[str, Expression], ...]
    axes: Axes
    shift: int = 0

    def argument(self, name: str) -> Expression | None:
        """The argument of that name, if it was given."""
        return dict(self.arguments).get(name)


@dataclass(frozen=True, slots=True)
class MaskProduct:
    """`left * right`: where both carry transitions, the right one's step is applied first."""

    left: Mask
    right: Mask
    axes: Axes


@dataclass(frozen=True, slots=True)
class MaskSum:
    """`left + right`."""

    left: Mask
    right: Mask
    axes: Axes


@dataclass(frozen=True, slots=True)
class Scaled:
    """A number, or a scalar without positions, times a mask."""

    factor: Expression
    mask: Mask
    axes: Axes


@dataclass(frozen=True, slots=True)
class Reversed:
    """`reverse(L)[t, s] = L[s, t]`: products over t < j ≤ s, the matrix factor nearest the target on the left."""

    mask: Mask
    axes: Axes


@dataclass(frozen=True, slots=True)
class Flipped:
    """`flip(L)`: L on the reversed sequence, products over t ≤ j < s."""

    mask: Mask
    axes: Axes


@dataclass(frozen=True, slots=True)
class Named:
    """A mask by the name it was defined under; `axes` are its extra axes."""

    name: str
    mask: Mask
    axes: Axes


Mask = Leaf | MaskProduct | MaskSum | Scaled | Reversed | Flipped | Named


def children(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside an expression (masks are not entered)."""
    match expression:
        case Constant() | Size() | Position() | Variable():
            return ()
        case Relabel() | Reduce():
            return (expression.value,)
        case Apply():
            return expression.arguments
        case Concat():
            return expression.parts
        case Outer():
            return (expression.left, expression.right)
        case Contract():
            return expression.operands
        case _:
            assert_never(expression)
