"""What a result is multiplied by, as a number: an expression of numbers and sizes."""

from __future__ import annotations

from dataclasses import replace

import torch

from contractor.errors import TileError
from contractor.plan.problem import Sizes
from contractor.program.expression import Apply, Constant, Expression, Size
from contractor.program.functions import ELEMENTWISE


def scale_of(expression: Expression | None, sizes: Sizes) -> float:
    """The value of an expression of numbers and sizes; without one it is 1. Raises TileError if it has anything else in it."""
    match expression:
        case None:
            return 1.0
        case Constant():
            return float(expression.value)
        case Size():
            return float(sizes[expression.axis])
        case Apply():
            values = (torch.tensor(scale_of(one, sizes), dtype=torch.float64) for one in expression.arguments)
            return float(ELEMENTWISE[expression.function].apply(*values))
        case _:
            raise TileError(f"a scale is made of numbers and sizes, not of {type(expression).__name__}")


def settled(expression: Expression, sizes: Sizes) -> Expression:
    """An expression whose sizes are numbers."""
    match expression:
        case Size():
            return Constant(float(sizes[expression.axis]))
        case Apply():
            return replace(expression, arguments=tuple(settled(one, sizes) for one in expression.arguments))
        case _:
            return expression
