"""Arithmetic over the two positions t and s, as a value that can be read in several ways.

A mask states once where it may be non-zero; the checker of laws evaluates that on integers, the planner on intervals (to skip
tiles), and a lowering on tiles. `t` counts in the sources' coordinates (target position + S − T), so `t - s` is the lag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from contractor.program.expression import Expression

Sign = Literal["+", "-", "*", "//", "%", "==", ">=", "<", "&", "|"]


def as_place(value: Any) -> Place:
    """An integer as a place; a place as itself."""
    return Whole(value) if isinstance(value, int) else value


class Arithmetic:
    """The signs that places and conditions are written with."""

    __slots__ = ()

    def __add__(self, other: Place | int) -> Binary:
        return Binary("+", as_place(self), as_place(other))

    def __sub__(self, other: Place | int) -> Binary:
        return Binary("-", as_place(self), as_place(other))

    def __mul__(self, other: Place | int) -> Binary:
        return Binary("*", as_place(self), as_place(other))

    def __floordiv__(self, other: Place | int) -> Binary:
        return Binary("//", as_place(self), as_place(other))

    def __mod__(self, other: Place | int) -> Binary:
        return Binary("%", as_place(self), as_place(other))

    def __ge__(self, other: Place | int) -> Binary:
        return Binary(">=", as_place(self), as_place(other))

    def __lt__(self, other: Place | int) -> Binary:
        return Binary("<", as_place(self), as_place(other))

    def __and__(self, other: Place) -> Binary:
        return Binary("&", as_place(self), other)

    def __or__(self, other: Place) -> Binary:
        return Binary("|", as_place(self), other)

    def same(self, other: Place | int) -> Binary:
        """Equality, as a value (`==` compares the nodes themselves)."""
        return Binary("==", as_place(self), as_place(other))


@dataclass(frozen=True, slots=True)
class Whole(Arithmetic):
    """An integer."""

    value: int


@dataclass(frozen=True, slots=True)
class Target(Arithmetic):
    """t, in the sources' coordinates."""


@dataclass(frozen=True, slots=True)
class Source(Arithmetic):
    """s."""


@dataclass(frozen=True, slots=True)
class Length(Arithmetic):
    """The number of sources (of the own sequence, when packed)."""


@dataclass(frozen=True, slots=True)
class Given(Arithmetic):
    """An integer argument of a mask without positions: a number, a size, an int param (may differ between heads)."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Held(Arithmetic):
    """What an argument with one position axis holds at a place: `documents`' ids at t or at s."""

    value: Expression
    at: Place


@dataclass(frozen=True, slots=True)
class Binary(Arithmetic):
    """One sign between two places; `== >= <` give conditions, `& |` join them."""

    sign: Sign
    left: Place
    right: Place


Place = Whole | Target | Source | Length | Given | Held | Binary
T, S, LENGTH = Target(), Source(), Length()
LAG = T - S


def behind(least: int) -> Binary:
    """The lag is at least so much."""
    return Binary(">=", LAG, Whole(least))


def joined(left: Place | None, right: Place | None) -> Place | None:
    """Both conditions, without those that follow from another: lag ≥ 1 gives lag ≥ 0, which gives t ≥ 0."""
    found = list(dict.fromkeys((*conjuncts(left), *conjuncts(right))))
    if behind(1) in found:
        found = [one for one in found if one != behind(0)]
    if behind(0) in found or behind(1) in found:
        found = [one for one in found if one != (T >= 0)]
    whole: Place | None = None
    for condition in found:
        whole = condition if whole is None else whole & condition
    return whole


def conjuncts(place: Place | None) -> tuple[Place, ...]:
    """The conditions that are joined by &."""
    if isinstance(place, Binary) and place.sign == "&":
        return conjuncts(place.left) + conjuncts(place.right)
    return () if place is None else (place,)


SIGNS: Mapping[Sign, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
}


def unread(*_given: Any) -> Any:
    """Stands for what a place does not hold."""
    raise TypeError("this place holds an argument that it was not read with")


def evaluate(
    place: Place,
    t: Any,
    s: Any,
    length: Any,
    given: Callable[[Expression], Any] | None,
    held: Callable[[Expression, Any], Any] | None,
    same: Callable[[Any, Any], Any] | None,
    whole: Callable[[int], Any] = int,
) -> Any:
    """The value of a place under any reading of t, s, length and the arguments that knows Python's signs.

    given: an argument without positions → its value. held: an argument and a place's value → what it holds there.
    same: equality under this reading. whole: an integer under this reading. None for what the place does not hold.
    """

    of, at, equal = given or unread, held or unread, same or unread

    def value(node: Place) -> Any:
        match node:
            case Whole():
                return whole(node.value)
            case Target():
                return t
            case Source():
                return s
            case Length():
                return length
            case Given():
                return of(node.value)
            case Held():
                return at(node.value, value(node.at))
            case Binary(sign="=="):
                return equal(value(node.left), value(node.right))
            case Binary():
                return SIGNS[node.sign](value(node.left), value(node.right))
            case _:
                assert_never(node)

    return value(place)
