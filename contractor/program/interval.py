"""A mask's support over a block of targets and sources, in three values: never, sometimes, always; and its bounds of the lag."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import assert_never

from contractor.program.expression import Constant, Expression
from contractor.program.place import LAG, Binary, Given, Held, Length, Place, S, Source, T, Target, Whole, evaluate


class Cover(IntEnum):
    """Where a condition holds over a block: nowhere, it is not known, everywhere."""

    EMPTY = 0
    PARTIAL = 1
    FULL = 2

    def __and__(self, other: int) -> Cover:
        """Both hold."""
        return Cover(min(int(self), other))

    def __or__(self, other: int) -> Cover:
        """One of them holds."""
        return Cover(max(int(self), other))


def decided(always: bool, never: bool) -> Cover:
    """The cover of a condition that is known to hold always, known to hold never, or neither."""
    if always:
        return Cover.FULL
    return Cover.EMPTY if never else Cover.PARTIAL


@dataclass(frozen=True, slots=True)
class Interval:
    """All integers from low to high, both included."""

    low: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Interval) -> Interval:
        corners = [a * b if a and b else 0 for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(corners), max(corners))

    def __floordiv__(self, other: Interval) -> Interval:
        if other.low < 1:
            return UNKNOWN
        corners = [divided(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(corners), max(corners))

    def __mod__(self, other: Interval) -> Interval:
        if other.low < 1:
            return UNKNOWN
        if other.low == other.high < inf and divided(self.low, other.low) == divided(self.high, other.low):
            return Interval(self.low % other.low, self.high % other.low)
        return Interval(0, other.high - 1)

    def __ge__(self, other: Interval) -> Cover:
        return decided(self.low >= other.high, self.high < other.low)

    def __lt__(self, other: Interval) -> Cover:
        return decided(self.high < other.low, self.low >= other.high)

    def same(self, other: Interval) -> Cover:
        """Equality: known only of single integers or of intervals that do not meet."""
        apart = self.high < other.low or other.high < self.low
        return decided(self.low == self.high == other.low == other.high, apart)


UNKNOWN = Interval(-inf, inf)


def divided(a: float, b: float) -> float:
    """a // b for b ≥ 1, with infinities."""
    if abs(a) == inf:
        return a
    if b == inf:
        return 0 if a >= 0 else -1
    return a // b


def anything(_value: Expression, _place: Interval) -> Interval:
    """What an argument over positions may hold."""
    return UNKNOWN


def written(value: Expression) -> int | None:
    """An integer argument that the spec writes out."""
    return int(value.value) if isinstance(value, Constant) else None


def cover(
    support: Place | None,
    t: tuple[int, int],
    s: tuple[int, int],
    length: int | None = None,
    given: Callable[[Expression], int | None] = written,
) -> Cover:
    """Does the support hold over the targets t[0] … t[1] and the sources s[0] … s[1] (both ends included)?

    t is in the sources' coordinates. length: the number of sources, if known. given: an integer argument's value, if known.
    A block without positions is empty.
    """
    if t[0] > t[1] or s[0] > s[1]:
        return Cover.EMPTY
    if support is None:
        return Cover.FULL

    def known(value: int | None) -> Interval:
        return UNKNOWN if value is None else Interval(value, value)

    return evaluate(
        support,
        Interval(*t),
        Interval(*s),
        known(length),
        lambda value: known(given(value)),
        anything,
        Interval.same,
        known,
    )


# ---- bounds of the lag ----------------------------------------------------------------------------------------------

Bounds = tuple[Place | None, Place | None]


def lag_range(support: Place | None) -> Bounds:
    """The least and the greatest lag (both included) that a support allows, as places that name neither t nor s.

    None: no bound is known. The bounds are necessary, not sufficient.
    """
    match support:
        case Binary(sign="&"):
            left, right = lag_range(support.left), lag_range(support.right)
            return tighter(left[0], right[0], max), tighter(left[1], right[1], min)
        case Binary(sign="|"):
            left, right = lag_range(support.left), lag_range(support.right)
            return looser(left[0], right[0], min), looser(left[1], right[1], max)
        case Binary(sign=">=" | "<" | "=="):
            return compared(support)
        case _:
            return None, None


def compared(condition: Binary) -> Bounds:
    """The bounds that one comparison of the lag, or of the numbers of two blocks, gives."""
    match condition:
        case Binary(left=Binary(sign="//", left=a, right=size), right=Binary(sign="//", left=b, right=other), sign="=="):
            within = {a, b} == {T, S} and size == other and is_fixed(size)
            return (minus(Whole(1), size), minus(size, Whole(1))) if within else (None, None)
        case Binary(left=left, right=bound) if left == LAG and is_fixed(bound):
            return within_bound(condition, bound)
        case Binary(left=left, right=bound) if left == S - T and is_fixed(bound):
            low, high = within_bound(condition, bound)
            return (None if high is None else minus(Whole(0), high)), (None if low is None else minus(Whole(0), low))
        case _:
            return None, None


def within_bound(condition: Binary, bound: Place) -> Bounds:
    """The range of what a comparison has on its left."""
    match condition.sign:
        case ">=":
            return bound, None
        case "<":
            return None, minus(bound, Whole(1))
        case "==":
            return bound, bound
        case _:
            return None, None


def minus(left: Place, right: Place) -> Place:
    """A difference, computed where it can be."""
    if isinstance(left, Whole) and isinstance(right, Whole):
        return Whole(left.value - right.value)
    return Binary("-", left, right)


def tighter(left: Place | None, right: Place | None, choose: Callable[[int, int], int]) -> Place | None:
    """One bound of two that both hold: the better one where that is known, else a written argument before a number."""
    if isinstance(left, Whole) and isinstance(right, Whole):
        return Whole(choose(left.value, right.value))
    if left is None or (isinstance(left, Whole) and right is not None):
        return right
    return left


def looser(left: Place | None, right: Place | None, choose: Callable[[int, int], int]) -> Place | None:
    """The bound of either of two conditions."""
    if left == right:
        return left
    if isinstance(left, Whole) and isinstance(right, Whole):
        return Whole(choose(left.value, right.value))
    return None


def is_fixed(place: Place) -> bool:
    """True if a place names no position."""
    match place:
        case Whole() | Given() | Length():
            return True
        case Target() | Source() | Held():
            return False
        case Binary():
            return is_fixed(place.left) and is_fixed(place.right)
        case _:
            assert_never(place)
