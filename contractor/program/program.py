"""A layer that has been understood: its operands, its definitions in order, its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contractor.program.expression import Axes, Expression, Mask, Number


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor given at the call. Layouts: with one position [batch, position, head, features …]; `[T, S]` first: [batch, head, T,
    S, …]; no position, input: [batch, head, …]; param: [head, …]. A param's head axis may be of size 1 or missing."""

    name: str
    role: Literal["input", "param"]
    axes: Axes
    number: Number = Number.REAL
    low: float = float("-inf")
    high: float = float("inf")


@dataclass(frozen=True, slots=True)
class Definition:
    """`name [axes] = value`; value's own axes are among them (the rest is broadcast)."""

    name: str
    axes: Axes
    value: Expression
    number: Number


@dataclass(frozen=True, slots=True)
class MaskDefinition:
    """`name [T, S, *extra] = mask`."""

    name: str
    extra: Axes
    mask: Mask


@dataclass(frozen=True, slots=True)
class Program:
    """One layer. `self_mixing`: S and T are one length. `stateless`: why no state can be carried ("" if one can)."""

    name: str
    operands: tuple[Operand, ...]
    definitions: tuple[Definition | MaskDefinition, ...]
    outputs: tuple[Expression, ...]
    self_mixing: bool
    stateless: str = ""

    def operand(self, name: str) -> Operand:
        """The operand of that name."""
        return next(operand for operand in self.operands if operand.name == name)
