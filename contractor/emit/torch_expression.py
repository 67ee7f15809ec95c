"""Expressions as torch text. A uniform number is a number of Python's; everything else is a tensor whose last axes are the tile's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from contractor.emit.text import ATOM, INFIX, infix, level, real
from contractor.tile.expression import Binary, Cast, Dot, Expr, Iota, Number, Program, Reduce, Rename, Select, Size, Tile, Unary
from contractor.tile.kernel import Kernel
from contractor.tile.rules import ACC, BOOL, I32, I64, INTEGERS, Axes

DTYPES = {ACC: "acc", I32: "torch.int64", I64: "torch.int64", BOOL: "torch.bool"}
PLAIN = {"exp2": "2.0 ** {}", "log2": "math.log2({})", "sqrt": "{} ** 0.5", "rsqrt": "{} ** -0.5", "abs": "abs({})"}
CONDITION, SUM, PRODUCT, NEGATIVE = 3, 5, 6, 8  # how tightly `&`, `+`, `@` and a leading `-` bind


@dataclass(frozen=True, slots=True)
class Expressions:
    """The text of one kernel's expressions. A uniform number is a number of Python's, everything else a tensor."""

    kernel: Kernel

    def dtype(self, name: str) -> str:
        """A dtype: one of ours, or what a buffer holds."""
        return DTYPES.get(name) or f"{name}.dtype"

    def shape(self, axes: Axes) -> str:
        """The block sizes of some axes."""
        return ", ".join(self.kernel.extent(axis) for axis in axes)

    def view(self, x: Expr, wanted: Axes) -> str:
        """An expression broadcast to the wanted axes."""
        if x.axes == wanted or plain(x):
            return self.text(x)
        leading = ("...",) if x.spread else ()
        marks = ", ".join((*leading, *(":" if axis in x.axes else "None" for axis in wanted)))
        return f"{self.atom(x)}[{marks}]"

    def atom(self, x: Expr) -> str:
        """An expression that an index or a method may follow."""
        return self.text(x) if self.level(x) == ATOM else f"({self.text(x)})"

    def text(self, x: Expr) -> str:
        """An expression."""
        match x:
            case Number():
                return real(x.value)
            case Size() | Tile():
                return x.name
            case Program():
                return "torch.arange(programs, device=device)"
            case Iota():
                return f"torch.arange({self.shape(x.axes)}, device=device)"
            case Rename():
                return self.text(x.source)
            case Cast():
                return self.cast(x)
            case Unary():
                return self.unary(x)
            case Binary():
                return self.binary(x)
            case Select():
                return self.select(x)
            case Reduce():
                name = "amax" if x.reduction == "max" else x.reduction
                return f"{self.atom(x.source)}.{name}({x.source.axes.index(x.axis) - len(x.source.axes)})"
            case Dot():
                return self.dot(x)
            case _:
                assert_never(x)

    def cast(self, x: Cast) -> str:
        """A conversion; nothing between integers, nor for a number of Python's."""
        same = x.dtype in INTEGERS and x.source.dtype in INTEGERS
        return self.text(x.source) if same or plain(x) else f"{self.atom(x.source)}.to({self.dtype(x.dtype)})"

    def unary(self, x: Unary) -> str:
        """A function."""
        if plain(x):
            return f"({PLAIN[x.function].format(self.atom(x.source))})"
        return f"torch.{x.function}({self.text(x.source)})"

    def binary(self, x: Binary) -> str:
        """Two operands under a sign, or as the arguments of a function."""
        left, right = self.operand(x.left, x), self.operand(x.right, x)
        levels = (self.bound(x.left, x), self.bound(x.right, x))
        if x.sign in INFIX:
            return infix(x, left, right, levels)
        if x.sign == "cdiv":
            return f"-(-{left if levels[0] == ATOM else f'({left})'} // {right if levels[1] == ATOM else f'({right})'})"
        if plain(x):
            return f"{'min' if x.sign == 'least' else 'max'}({left}, {right})"
        return self.extreme(x, left, right)

    def extreme(self, x: Binary, left: str, right: str) -> str:
        """The lesser or greater of two, one of which is a tensor."""
        name = "minimum" if x.sign == "least" else "maximum"
        bounded = "max" if x.sign == "least" else "min"
        if plain(x.right):
            return f"{left if self.bound(x.left, x) == ATOM else f'({left})'}.clamp({bounded}={right})"
        if plain(x.left):
            return f"{right if self.bound(x.right, x) == ATOM else f'({right})'}.clamp({bounded}={left})"
        return f"torch.{name}({left}, {right})"

    def operand(self, one: Expr, x: Binary) -> str:
        """One operand, broadcast, and widened where the rules widen."""
        shown = self.view(one, x.axes)
        if not widened(one, x):
            return shown
        return f"{shown if self.viewed(one, x.axes) == ATOM else f'({shown})'}.to(acc)"

    def bound(self, one: Expr, x: Binary) -> int:
        """How tightly a printed operand binds."""
        return ATOM if widened(one, x) else self.viewed(one, x.axes)

    def viewed(self, x: Expr, wanted: Axes) -> int:
        """How tightly an expression binds once it is broadcast."""
        return self.level(x) if x.axes == wanted or plain(x) else ATOM

    def level(self, x: Expr) -> int:
        """How tightly an expression binds as torch text, where conversions between integers and products print otherwise."""
        match x:
            case Cast() if plain(x) or (x.dtype in INTEGERS and x.source.dtype in INTEGERS):
                return self.level(x.source)
            case Rename():
                return self.level(x.source)
            case Dot():
                return PRODUCT if x.into is None else SUM
            case Binary(sign="cdiv"):
                return NEGATIVE
            case _:
                return level(x)

    def select(self, x: Select) -> str:
        """One of two; numbers of Python's have no dtype of ours."""
        condition, first, second = (self.view(one, x.axes) for one in (x.condition, x.first, x.second))
        if plain(x):
            return f"({first} if {condition} else {second})"
        if plain(x.condition):
            condition = f"torch.tensor({condition}, device=device)"
        both = plain(x.first) and plain(x.second)
        return f"torch.where({condition}, {first}, {second})" + (f".to({self.dtype(x.dtype)})" if both else "")

    def dot(self, x: Dot) -> str:
        """A product of accumulators' precision."""
        left = self.factor(x.left) + ("" if x.left.axes[-1] == x.shared else ".mT")
        right = self.factor(x.right) + ("" if x.right.axes[0] == x.shared else ".mT")
        return f"{left} @ {right}" if x.into is None else f"{self.text(x.into)} + {left} @ {right}"

    def factor(self, x: Expr) -> str:
        """An operand of a product."""
        return self.atom(x) if x.dtype == ACC else f"{self.atom(x)}.to(acc)"

    def tensor(self, x: Expr) -> str:
        """An expression as a tensor, even if it is a number of Python's."""
        return f"torch.full((programs,), {self.text(x)}, dtype={self.dtype(x.dtype)}, device=device)" if plain(x) else self.text(x)


def plain(x: Expr) -> bool:
    """True for a number of Python's: one value for all programs."""
    return not x.axes and not x.spread


def widened(one: Expr, x: Binary) -> bool:
    """True if an operand must be brought to the accumulators' dtype by hand, where torch would not widen it."""
    return x.dtype == ACC and one.dtype not in (ACC, BOOL) and not plain(one)
