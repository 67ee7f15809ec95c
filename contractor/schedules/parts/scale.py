"""What a result is multiplied by, as a number: an expression of numbers and sizes."""

from __future__ import annotations

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
