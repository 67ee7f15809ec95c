"""Which values differ between batch elements and between heads: both axes are implicit in a spec, so a plan has to find out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from math import lcm

from contractor.plan.problem import Problem
from contractor.program.expression import (
    Contract,
    Expression,
    Flipped,
    Leaf,
    Mask,
    MaskProduct,
    MaskSum,
    Named,
    Reduce,
    Reversed,
    Scaled,
    Variable,
    children,
)
from contractor.program.program import Definition


@dataclass(frozen=True, slots=True)
class Spread:
    """How many batch elements (1 or all of them) and heads (1, a divisor of H, or H) a value has."""

    batch: int = 1
    heads: int = 1

    def __or__(self, other: Spread) -> Spread:
        """The spread of a value made from both."""
        return Spread(max(self.batch, other.batch), lcm(self.heads, other.heads))


def spreads(problem: Problem) -> dict[str, Spread]:
    """The spread of every operand, definition and mask by name."""
    found: dict[str, Spread] = {}
    for operand in problem.program.operands:
        batch = problem.sizes.B if operand.role == "input" else 1
        found[operand.name] = Spread(batch, problem.heads_of(operand.name))
    for definition in problem.program.definitions:
        inside = definition.value if isinstance(definition, Definition) else definition.mask
        found[definition.name] = spread(inside, found)
    return found


def spread(value: Expression | Mask, known: Mapping[str, Spread]) -> Spread:
    """The spread of an expression or a mask, given that of the names in it."""
    return reduce(Spread.__or__, (known[name] for name in names(value)), Spread())


def names(value: Expression | Mask) -> Iterator[str]:
    """Every name used in an expression or a mask, those inside its masks included."""
    if isinstance(value, Variable | Named):
        yield value.name
    for child in inside(value):
        yield from names(child)


def inside(value: Expression | Mask) -> Iterator[Expression | Mask]:
    """What stands directly inside an expression or a mask, masks included; a named mask is a definition of its own."""
    match value:
        case Leaf():
            yield from (argument for _, argument in value.arguments)
        case MaskProduct() | MaskSum():
            yield from (value.left, value.right)
        case Scaled():
            yield from (value.factor, value.mask)
        case Reversed() | Flipped():
            yield value.mask
        case Named():
            return
        case _:
            yield from children(value)
            yield from masks(value)


def masks(value: Expression) -> tuple[Mask, ...]:
    """The mask that an expression stands under, if any."""
    match value:
        case Reduce():
            mask = value.under
        case Contract():
            mask = value.mask
        case _:
            mask = None
    return () if mask is None else (mask,)
