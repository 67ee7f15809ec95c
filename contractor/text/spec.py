"""What was written: one frozen node for each rule of the grammar, each with its place in the text.

Places do not take part in comparison, so `parse(show(spec)) == spec`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from contractor.errors import Span

NOWHERE = Span(0, 0)


def place() -> Span:
    """The field that holds where a node stands; it is not compared."""
    return field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A name: of a tensor, an axis, a mask, or the letters of one operand of a contraction."""

    text: str
    span: Span = place()


@dataclass(frozen=True, slots=True)
class Constant:
    """A finite number."""

    value: int | float
    span: Span = place()


@dataclass(frozen=True, slots=True)
class Relabel:
    """`X[T, P]`: a tensor's axes under other letters."""

    name: Name
    axes: tuple[Name, ...]
    span: Span = place()


@dataclass(frozen=True, slots=True)
class Negation:
    """`-x`."""

    operand: Expression
    span: Span = place()


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left sign right`."""

    sign: Literal["+", "-", "*", "/", "^"]
    left: Expression
    right: Expression
    span: Span = place()


@dataclass(frozen=True, slots=True)
class Option:
    """`log = g` in a call."""

    name: Name
    value: Expression
    span: Span = place()


@dataclass(frozen=True, slots=True)
class Call:
    """`f(x, option = y)`, `sum(x over N)`, `softmax(x over S under L)`: a function or a mask."""

    function: Name
    arguments: tuple[Expression, ...]
    options: tuple[Option, ...] = ()
    over: tuple[Name, ...] = ()
    under: Expression | None = None
    span: Span = place()


@dataclass(frozen=True, slots=True)
class Contraction:
    """`contract(TN, SN -> TS)(Q, K)`: each operand's letters in one name; no name for a result without axes."""

    operands: tuple[Name, ...]
    result: Name | None
    arguments: tuple[Expression, ...]
    span: Span = place()


Expression = Name | Constant | Relabel | Negation | Arithmetic | Call | Contraction


@dataclass(frozen=True, slots=True)
class Promise:
    """`in [low, high]`: inclusive, either may be infinite."""

    low: float
    high: float
    span: Span = place()


@dataclass(frozen=True, slots=True)
class Declaration:
    """`input X [S, N] : complex in [0, 1]` or `param …`."""

    role: Literal["input", "param"]
    name: Name
    axes: tuple[Name, ...]
    number: Literal["real", "complex", "int"] = "real"
    promise: Promise | None = None
    span: Span = place()


@dataclass(frozen=True, slots=True)
class Definition:
    """`X [T, F] = expression`; whether the right side is a mask is found when it is checked."""

    name: Name
    axes: tuple[Name, ...]
    value: Expression
    span: Span = place()


@dataclass(frozen=True, slots=True)
class Output:
    """`output e1, e2`."""

    values: tuple[Expression, ...]
    span: Span = place()


Statement = Declaration | Definition | Output


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its statements in the order written."""

    name: Name
    statements: tuple[Statement, ...]
    span: Span = place()


@dataclass(frozen=True, slots=True)
class Spec:
    """One file: its layers, which are independent. `text` is what was read, for messages."""

    layers: tuple[Layer, ...]
    text: str = field(default="", compare=False, repr=False)
    file: str = field(default="<spec>", compare=False, repr=False)
