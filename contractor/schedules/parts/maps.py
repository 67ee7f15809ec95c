"""Feature maps: an expression of one variable applied element by element in one pass over a tensor, and its slope for the gradient.

A map is an expression of numbers and `x`. Value and slope are made together, node by node (forward differentiation). Maps have kernels of
their own: applied to tiles inside a pass over chunks they took longer than to write and read the features (0.45 ms against 0.13 at
(4, 4096, 32, 128) on an H200), as the pass's few programs wait for them, and each block of columns makes them again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import add

from contractor.errors import TileError
from contractor.program.expression import Apply, Constant, Expression, Variable
from contractor.schedules.parts.factors import LOG2E
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel
from contractor.tile.ops import (
    ACC,
    I64,
    Expr,
    Span,
    absolute,
    cast,
    cdiv,
    exp2,
    iota,
    is_zero,
    least,
    log2,
    most,
    number,
    rsqrt,
    select,
    size,
    sqrt,
)

LN2 = math.log(2)
Rule = Callable[[list[Expr]], tuple[Expr, tuple[Expr, ...]]]


def map_kernel(map_: Expression) -> Kernel:
    """result = the map of x, element by element, x of any shape as it lies in memory."""
    k, here = begun("feature_map", "result = a function of x, element by element")
    value, _ = applied(map_, wide(k, here))
    k.store(k.buffer("result", "COUNT"), here, value=cast(k.let("mapped", value), "result"))
    return k.done()


def slope_kernel(map_: Expression) -> Kernel:
    """result = gradient · the map's slope at x: the gradient of x from that of its map."""
    k, here = begun("feature_slope", "result = gradient · the function's slope at x")
    _, slope = applied(map_, wide(k, here))
    arrived = cast(k.load("gradient_tile", k.buffer("gradient", "COUNT"), here), ACC)
    k.store(k.buffer("result", "COUNT"), here, value=cast(k.let("sloped", arrived * slope), "result"))
    return k.done()


def begun(name: str, says: str) -> tuple[Builder, Span]:
    """A kernel whose programs have a block of elements each."""
    k = Builder(name, says, {"e": "BLOCK"}, scalars=("COUNT",))
    program = k.program(cdiv(size("COUNT"), size("BLOCK")))
    first = k.let("first", cast(program, I64) * size("BLOCK"))
    index = k.let("index", first + iota("e"))
    return k, Span("e", first, index, index < size("COUNT"))


def wide(k: Builder, here: Span) -> Expr:
    """The block's elements, in the accumulators' precision."""
    return k.let("x_wide", cast(k.load("x_tile", k.buffer("x", "COUNT"), here), ACC))


def applied(map_: Expression, x: Expr) -> tuple[Expr, Expr]:
    """The value of a map, and its slope at x."""
    match map_:
        case Variable():
            return x, number(1.0)
        case Constant():
            return number(float(map_.value)), number(0.0)
        case Apply() if map_.function in RULES:
            pairs = [applied(one, x) for one in map_.arguments]
            value, partials = RULES[map_.function]([one for one, _ in pairs])
            terms = [partial * slope for partial, (_, slope) in zip(partials, pairs, strict=True) if not is_zero(slope)]
            return value, reduce(add, terms, number(0.0))
        case _:
            raise TileError(f"a map is made of numbers and elementwise functions, not of {type(map_).__name__}")


# ---- the register ---------------------------------------------------------------------------------------------------------------


def exponential(x: Expr) -> Expr:
    """e to the power x."""
    return exp2(x * LOG2E)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^−x), 0 and 1 at the ends."""
    return 1.0 / (1.0 + exp2(x * -LOG2E))


def softplus(x: Expr) -> Expr:
    """log(1 + e^x), which overflows nowhere."""
    return most(x, 0.0) + log2(1.0 + exp2(absolute(x) * -LOG2E)) * LN2


def of_one(value: Callable[[Expr], Expr], slope: Callable[[Expr], Expr]) -> Rule:
    """A function of one argument by its value and its slope."""

    def rule(given: list[Expr]) -> tuple[Expr, tuple[Expr, ...]]:
        (x,) = given
        return value(x), (slope(x),)

    return rule


def of_two(value: Callable[[Expr, Expr], Expr], slopes: Callable[[Expr, Expr], tuple[Expr, Expr]]) -> Rule:
    """A function of two arguments by its value and its slopes."""

    def rule(given: list[Expr]) -> tuple[Expr, tuple[Expr, ...]]:
        x, y = given
        return value(x, y), slopes(x, y)

    return rule


def step(x: Expr, positive: Expr | float, other: Expr | float) -> Expr:
    """One value where x is above 0, another elsewhere."""
    return select(x > 0.0, positive, other)


def tanh(x: Expr) -> Expr:
    """By the sigmoid of twice the argument."""
    return 2.0 * sigmoid(2.0 * x) - 1.0


RULES: dict[str, Rule] = {
    "+": of_two(lambda x, y: x + y, lambda _x, _y: (number(1.0), number(1.0))),
    "-": of_two(lambda x, y: x - y, lambda _x, _y: (number(1.0), number(-1.0))),
    "*": of_two(lambda x, y: x * y, lambda x, y: (y, x)),
    "/": of_two(lambda x, y: x / y, lambda x, y: (1.0 / y, -1.0 * x / (y * y))),
    "negate": of_one(lambda x: 0.0 - x, lambda _: number(-1.0)),
    "exp": of_one(exponential, exponential),
    "log": of_one(lambda x: log2(x) * LN2, lambda x: 1.0 / x),
    "sqrt": of_one(sqrt, lambda x: 0.5 * rsqrt(x)),
    "rsqrt": of_one(rsqrt, lambda x: -0.5 * rsqrt(x) / x),
    "abs": of_one(absolute, lambda x: select(x > 0.0, 1.0, step(0.0 - x, -1.0, 0.0))),
    "square": of_one(lambda x: x * x, lambda x: 2.0 * x),
    "sigmoid": of_one(sigmoid, lambda x: sigmoid(x) * sigmoid(0.0 - x)),
    "softplus": of_one(softplus, sigmoid),
    "silu": of_one(lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1.0 + x * sigmoid(0.0 - x))),
    "relu": of_one(lambda x: most(x, 0.0), lambda x: step(x, 1.0, 0.0)),
    "elu": of_one(lambda x: step(x, x, exponential(least(x, 0.0)) - 1.0), lambda x: step(x, 1.0, exponential(least(x, 0.0)))),
    "tanh": of_one(tanh, lambda x: 1.0 - tanh(x) * tanh(x)),
}
