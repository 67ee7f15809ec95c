"""A mask expression as a sum of products: each product one merged law that runs in one direction.

Sums, products and names are multiplied out. A product's factors are brought to one direction: a factor without transitions is read
in any. Transitions of opposite directions meet on the diagonal only, where each of them is 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import pi
from typing import Literal, assert_never

from contractor.errors import ContractorError
from contractor.program.exchange import exchanged
from contractor.program.expression import (
    Apply,
    Axes,
    Constant,
    Expression,
    Flipped,
    Leaf,
    Mask,
    MaskProduct,
    MaskSum,
    Named,
    Number,
    Position,
    Reversed,
    Scaled,
    Size,
)
from contractor.program.masks import MASKS
from contractor.program.masks.mask import Dense, Fade, Law, Lookup, Rank, RankOne, Rotation, Step, Weight
from contractor.program.place import LENGTH, Binary, Held, Place, S, Source, T, Target, behind, joined

MOST_TERMS = 64
Direction = Literal["past", "future", "flipped", "turned"]


@dataclass(frozen=True, slots=True)
class Frame:
    """How a law is read: with t and s exchanged, on the mirrored sequence (places and position arguments alike), or both."""

    exchanged: bool = False
    mirrored: bool = False

    def to(self, other: Frame) -> Frame:
        """What has to be done to a law of this frame to read it in the other."""
        return Frame(self.exchanged != other.exchanged, self.mirrored != other.mirrored)

    @property
    def ahead(self) -> bool:
        """True if transitions run from the future to the past."""
        return self.exchanged != self.mirrored


PAST, FUTURE, BOTH = Frame(), Frame(exchanged=True), Frame(exchanged=True, mirrored=True)


@dataclass(frozen=True, slots=True)
class Term:
    """One product of a mask: the factors of `coefficient` (no positions) times a law.

    direction: "past": L[t, s] is the law at (t, s). "future" (reverse): the law at (s, t), transitions over t < j ≤ s, the one
    nearest the target applied last. "flipped": the law on the mirrored sequence, transitions over t ≤ j < s. "turned" (both): the law
    at (s, t) on the mirrored sequence, transitions over s ≤ j < t. The law's support, steps and weights are written for its own t and
    s; its write and ranks for the layer's: they stand with the operands.
    identity: the row and column of a matrix mask, where this term has no matrix of its own: its entries are multiples of I.
    """

    coefficient: tuple[Expression, ...]
    direction: Direction
    law: Law
    identity: Axes = ()

    @property
    def mirrored(self) -> bool:
        """True if the law runs on the mirrored sequence."""
        return self.direction in ("flipped", "turned")

    @property
    def exchanged(self) -> bool:
        """True if the law is read at (s, t)."""
        return self.direction in ("future", "turned")

    @property
    def factors(self) -> tuple[tuple[Direction, Law], ...]:
        """The directions that run here with their laws: always one."""
        return ((self.direction, self.law),)

    def carries(self) -> str:
        """Why no state can be carried past a position, in the user's words; "" if one can."""
        if self.law.stateless or self.law.support in (None, behind(0), behind(1)):
            return self.law.stateless
        return "masks from the past and from the future leave no more than the diagonal between them"


@dataclass(frozen=True, slots=True)
class Part:
    """A term on its way: a law in a frame."""

    law: Law
    frame: Frame = PAST
    coefficient: tuple[Expression, ...] = ()


def terms(mask: Mask) -> tuple[Term, ...]:
    """The mask as a sum of products.

    Raises ContractorError where there are more than 64, and for the few products that no law describes (they are evaluated by
    definition only).
    """
    matrix = is_matrix(mask)
    return tuple(term(part, mask.axes if matrix else ()) for part in parts(mask))


def is_matrix(mask: Mask) -> bool:
    """True if a leaf of the mask is of a matrix kind."""
    match mask:
        case Leaf():
            return MASKS[mask.kind].matrix
        case MaskProduct() | MaskSum():
            return is_matrix(mask.left) or is_matrix(mask.right)
        case Scaled() | Named() | Reversed() | Flipped():
            return is_matrix(mask.mask)
        case _:
            assert_never(mask)


def term(part: Part, matrix: Axes) -> Term:
    """A part as it is handed out."""
    turns: dict[Frame, Direction] = {PAST: "past", FUTURE: "future", BOTH: "turned"}
    has_own = any(isinstance(step, Dense | RankOne) for step in part.law.steps)
    if matrix:
        check_beside_matrix(part.law)
    return Term(part.coefficient, turns.get(part.frame, "flipped"), part.law, () if has_own else matrix)


def check_beside_matrix(law: Law) -> None:
    """Beside a matrix only transitions may be diagonal."""
    looked_up = [weight.value.axes[len(weight.index) :] for weight in law.weights if isinstance(weight, Lookup)]
    on_source = [tuple(axis for axis in value.axes if axis != "S" and axis != "T") for value in law.write]
    if any(looked_up) or any(on_source):
        raise ContractorError("beside a matrix a table of weights and a write are scalars; only gates and decays may be diagonal")


def parts(mask: Mask) -> tuple[Part, ...]:
    """The mask multiplied out."""
    match mask:
        case Leaf():
            return split(MASKS[mask.kind].law(mask))
        case Named():
            return parts(mask.mask)
        case Scaled():
            return tuple(replace(part, coefficient=(mask.factor, *part.coefficient)) for part in parts(mask.mask))
        case MaskSum():
            left, right = parts(mask.left), parts(mask.right)
            check_count(len(left) + len(right))
            return left + right
        case MaskProduct():
            left, right = parts(mask.left), parts(mask.right)
            check_count(len(left) * len(right))
            return tuple(product(a, b) for a in left for b in right)
        case Reversed():
            return tuple(reversed_part(part) for part in parts(mask.mask))
        case Flipped():
            return tuple(simplest(replace(part, frame=turned(part.frame, mirror=True))) for part in parts(mask.mask))
        case _:
            assert_never(mask)


def check_count(count: int) -> None:
    """Raises where a mask has too many terms."""
    if count > MOST_TERMS:
        raise ContractorError(f"multiplied out, this mask has {count} terms; at most {MOST_TERMS} are allowed")


def split(law: Law) -> tuple[Part, ...]:
    """A leaf's law; weights ahead of the target are a part of their own, read with t and s exchanged."""
    for weight in law.weights:
        if isinstance(weight, Lookup) and weight.ahead is not None:
            ahead = converted(replace(law, weights=()), FUTURE)
            now = replace(law, support=joined(law.support, behind(0)), weights=(replace(weight, ahead=None),))
            later = replace(ahead, support=joined(ahead.support, behind(1)), weights=(Lookup(weight.ahead, weight.index),))
            return Part(now), Part(later, FUTURE)
    return (Part(law),)


# ---- directions -----------------------------------------------------------------------------------------------------


def turned(frame: Frame, exchange: bool = False, mirror: bool = False) -> Frame:
    """The frame of the reversed or flipped mask."""
    return Frame(frame.exchanged != exchange, frame.mirrored != mirror)


def reversed_part(part: Part) -> Part:
    """The part with t and s exchanged: what stood on the source stands on the target."""
    law = part.law
    write = tuple(exchanged(value) for value in law.write)
    ranks = tuple(Rank(exchanged(rank.right), exchanged(rank.left), rank.axis) for rank in law.ranks)
    return simplest(replace(part, frame=turned(part.frame, exchange=True), law=replace(law, write=write, ranks=ranks)))


def simplest(part: Part) -> Part:
    """Read without the mirror where gates do not depend on it."""
    unmirrored = part.frame.to(BOTH)
    if part.frame.mirrored and can_convert(part.law, BOTH):
        return replace(part, law=converted(part.law, BOTH), frame=unmirrored)
    return part


def can_convert(law: Law, by: Frame) -> bool:
    """True if the law can be read in another frame: its transitions are then crossed in the same order."""
    return by == PAST or not law.steps or (by == BOTH and all(is_fixed(step) for step in law.steps))


def is_fixed(step: Step) -> bool:
    """True if a transition is the same at every position."""
    return isinstance(step, Fade | Dense) and "S" not in step.value.axes


def converted(law: Law, by: Frame) -> Law:
    """The law read in another frame."""
    support = None if law.support is None else moved(law.support, by)
    return replace(law, support=support, weights=tuple(reread(weight, by) for weight in law.weights))


def reread(weight: Weight, by: Frame) -> Weight:
    """An entrywise factor in another frame; a tensor over positions is mirrored together with its places."""
    if isinstance(weight, Rotation):
        return reread(as_lookup(weight), by) if by.mirrored else weight
    index = tuple(moved(place, Frame(by.exchanged, by.mirrored and place not in (T, S))) for place in weight.index)
    return Lookup(weight.value, index)


def as_lookup(_rotation: Rotation) -> Lookup:
    """The discrete Fourier transform as a table of the turns, read at t · s modulo their number."""
    place, size = Position("S"), Size("S")
    part = Apply("/", (place, size), ("S",), Number.REAL)
    angle = Apply("*", (Constant(-2 * pi), part), ("S",), Number.REAL)
    return Lookup(Apply("polar", (Constant(1.0), angle), ("S",), Number.COMPLEX), ((T * S) % LENGTH,))


def moved(place: Place, by: Frame) -> Place:
    """A place with t and s exchanged, mirrored, or both."""
    match place:
        case Target() | Source():
            other = (S if place == T else T) if by.exchanged else place
            return (LENGTH - 1) - other if by.mirrored else other
        case Binary(sign="-", left=Target() | Source() as left, right=Target() | Source() as right):
            return Binary("-", right, left) if by.ahead else place
        case Binary():
            return Binary(place.sign, moved(place.left, by), moved(place.right, by))
        case Held():
            return Held(place.value, moved(place.at, Frame(by.exchanged)))
        case _:
            return place


# ---- products -------------------------------------------------------------------------------------------------------


def product(left: Part, right: Part) -> Part:
    """Two parts as one, in the direction of the one that cannot be read in the other's."""
    coefficient = (*left.coefficient, *right.coefficient)
    if can_convert(right.law, right.frame.to(left.frame)):
        law = converted(right.law, right.frame.to(left.frame))
        return Part(merged(left.law, law), left.frame, coefficient)
    if can_convert(left.law, left.frame.to(right.frame)):
        law = converted(left.law, left.frame.to(right.frame))
        return Part(merged(law, right.law), right.frame, coefficient)
    if left.frame.ahead == right.frame.ahead or not (left.law.steps and right.law.steps):
        raise ContractorError("gates of a reversed and of a flipped mask in one product go by definition only")
    return Part(merged(on_diagonal(left), on_diagonal(right)), PAST, coefficient)


def on_diagonal(part: Part) -> Law:
    """A law beside one of the opposite direction: no transition is crossed at t = s."""
    return converted(replace(part.law, steps=()), part.frame)


def merged(left: Law, right: Law) -> Law:
    """The product of two laws of one frame; where both have transitions the right one's are applied first."""
    if {rank.axis for rank in left.ranks} & {rank.axis for rank in right.ranks}:
        raise ContractorError("two masks of rank R in one product need letters of their own for R")
    return Law(
        support=joined(left.support, right.support),
        steps=left.steps + right.steps,
        weights=left.weights + right.weights,
        write=left.write + right.write,
        ranks=left.ranks + right.ranks,
        stateless=left.stateless or right.stateless,
        square=left.square or right.square,
    )
