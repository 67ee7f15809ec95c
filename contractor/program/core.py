"""One contraction in normal form: result[t, outer] = Σ over s and inner of L[t, s, …] · query[t, inner] · key[s, inner] · value[s, outer].

Any masked contraction comes to this form by letters alone. A letter of the result that stands on both sides (or in an operand
together with the other kind) is `batch`: each of its values is a contraction of its own, like another head. So is a summed letter that the
mask's entries differ over in a way that no state knows; its values are added up afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from contractor.errors import RefusedError
from contractor.program.expression import Apply, Axes, Contract, Expression, Number
from contractor.program.laws import Term, as_lookup
from contractor.program.masks.mask import Dense, Fade, Lookup, RankOne, Rotation
from contractor.program.place import Place, S, T

OTHER = {"T": "S", "S": "T"}
KEPT = "S'"  # the letter of a result that keeps S beside T


@dataclass(frozen=True, slots=True)
class Factor:
    """One operand of a mixing: its value and its axes under the contraction's letters, in the value's own order."""

    value: Expression
    letters: Axes

    @property
    def features(self) -> Axes:
        """The letters that are not positions."""
        return tuple(letter for letter in self.letters if letter not in ("T", "S"))


@dataclass(frozen=True, slots=True)
class Core:
    """One contraction under one product of masks. A side without operands is a column of ones.

    inner: summed between query and key; outer: of value and result; batch: folded into the heads, those of them in `folded` summed
    afterwards. With a matrix mask `inner` is the matrix' row (the query's letters) and `column` the key's. mask_letters: the mask's own
    feature letters under the contraction's names. axis_of: which axis of the program gives a letter its size. tables: the entrywise
    factors, each with the letters of its axes behind those of its index. source_weight,
    target_weight: factors of each source, and of each target of the result, that are one number a position.
    scale: what the result is multiplied by; skip: what of the value at the target's own place is added to it then (None: 1 and nothing).
    exchanged: the result has S and not T, so the two stand in each
    other's place, in operands and mask alike. axes: the result's.
    """

    name: str
    query: tuple[Factor, ...]
    key: tuple[Factor, ...]
    value: tuple[Factor, ...]
    inner: Axes
    column: Axes
    outer: Axes
    batch: Axes
    term: Term
    mask_letters: tuple[tuple[str, str], ...]
    axis_of: tuple[tuple[str, str], ...]
    number: Number
    axes: Axes
    tables: tuple[Factor, ...] = ()
    folded: Axes = ()
    exchanged: bool = False
    source_weight: tuple[Factor, ...] = ()
    target_weight: tuple[Factor, ...] = ()
    scale: Expression | None = None
    skip: Expression | None = None

    @property
    def keeps(self) -> bool:
        """True if the result has both positions: each source is then a column of its own."""
        return KEPT in self.outer

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Everything that it reads beside the arguments of its mask."""
        beside = () if self.skip is None else (self.skip,)
        factors = (*self.query, *self.key, *self.value, *self.tables, *self.source_weight, *self.target_weight)
        return (*(factor.value for factor in factors), *beside)

    @property
    def weights(self) -> tuple[tuple[Literal["target", "source"], tuple[Factor, ...]], ...]:
        """What multiplies the rows of targets, and of sources."""
        return ("target", self.target_weight), ("source", self.source_weight)

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """The entrywise factors."""
        return tuple(weight for weight in self.term.law.weights if isinstance(weight, Lookup))

    @property
    def matrix(self) -> bool:
        """True if a step of the mask couples the rows of the state."""
        return any(isinstance(step, Dense | RankOne) for step in self.term.law.steps)

    def sides(self, value: Expression) -> frozenset[str]:
        """Where an argument of the mask has feature axes: among "inner", "outer" and "batch"."""
        names = dict(self.mask_letters)
        letters = [names[axis] for axis in value.axes if axis in names]
        kinds = {"inner": (*self.inner, *self.column), "outer": self.outer, "batch": self.batch}
        return frozenset(kind for letter in letters for kind, members in kinds.items() if letter in members)


def core(name: str, contract: Contract, term: Term) -> Core:
    """One term of the mixing in normal form."""
    assert contract.mask is not None
    factors = [Factor(value, letters) for value, letters in zip(contract.operands, contract.letters, strict=True)]
    renamed = dict(zip(contract.mask.axes, contract.mask_axes, strict=True))
    if term.identity:
        factors, renamed = one_axis(factors, renamed, *(renamed[axis] for axis in term.identity))
    factors += [Factor(value, tuple(renamed.get(axis, axis) for axis in value.axes)) for value in (*term.coefficient, *written(term))]
    factors += ranked(term, {letter for factor in factors for letter in factor.letters}, renamed)
    term, tables, factors = looked_up(term, factors, renamed)
    found = classify(name, contract, term, positioned(contract, factors), renamed, tables)
    if found.exchanged and found.matrix:
        raise RefusedError(f"{name}: under a mask of matrices a mixing that sums over T is refused; write it with S and T exchanged")
    return found


def positioned(contract: Contract, factors: list[Factor]) -> tuple[Factor, ...]:
    """The factors as seen from the result's position: where it has S and not T, the two exchange their places."""
    if not exchanges(contract):
        return tuple(factors)
    return tuple(replace(factor, letters=tuple(OTHER.get(letter, letter) for letter in factor.letters)) for factor in factors)


def exchanges(contract: Contract) -> bool:
    """True if the result has S and not T."""
    return "S" in contract.axes and "T" not in contract.axes


def one_axis(factors: list[Factor], renamed: dict[str, str], row: str, column: str) -> tuple[list[Factor], dict[str, str]]:
    """A multiple of the identity couples nothing: the matrix' column goes by its row's letter."""
    same = [replace(factor, letters=tuple(row if letter == column else letter for letter in factor.letters)) for factor in factors]
    return same, {axis: row if letter == column else letter for axis, letter in renamed.items()}


def written(term: Term) -> list[Expression]:
    """The factors exp(i_s) of exponential input gates."""
    return [Apply("exp", (value,), value.axes, value.number) for value in term.law.write]


def ranked(term: Term, taken: set[str], renamed: dict[str, str]) -> list[Factor]:
    """A rank-R mask's left and right factors, with R under a letter of its own: R becomes one more summed axis of the state."""
    factors: list[Factor] = []
    for rank in term.law.ranks:
        letter = unused(rank.axis, taken | set(renamed.values()))
        renamed[rank.axis] = letter
        for value in (rank.left, rank.right):
            factors.append(Factor(value, tuple(renamed.get(axis, axis) for axis in value.axes)))
    return factors


def looked_up(term: Term, factors: list[Factor], renamed: dict[str, str]) -> tuple[Term, tuple[Factor, ...], list[Factor]]:
    """The mask's entrywise factors with their letters; operands with both positions become such factors, read at [t, s]."""
    own = [as_lookup(weight) if isinstance(weight, Rotation) else weight for weight in term.law.weights]
    tables = [Factor(one.value, table_letters(one, tuple(renamed.get(axis, axis) for axis in one.value.axes))) for one in own]
    both = [factor for factor in factors if {"T", "S"} <= set(factor.letters)]
    for factor in both:
        own.append(Lookup(factor.value, tuple(place_of(axis, term) for axis in factor.letters if axis in OTHER)))
        tables.append(Factor(factor.value, table_letters(own[-1], factor.letters)))
    rest = [factor for factor in factors if factor not in both]
    return replace(term, law=replace(term.law, weights=tuple(own))), tuple(tables), rest


def place_of(axis: str, term: Term) -> Place:
    """Where an operand of the layer is read by a law: in the future direction the law's own t is the layer's s."""
    return T if (axis == "T") != term.exchanged else S


def table_letters(weight: Lookup, letters: Axes) -> Axes:
    """The letters of a table: of its index, by number, then of what it holds there."""
    count = len(weight.index)
    return (*(str(index) for index in range(count)), *letters[count:])


def classify(
    name: str, contract: Contract, term: Term, factors: tuple[Factor, ...], renamed: dict[str, str], tables: tuple[Factor, ...]
) -> Core:
    """Which letters are inner, outer and batch, and on which side each operand stands."""
    row, column = matrix_axes(term, renamed)
    targets = tuple(factor for factor in factors if "T" in factor.letters)
    sources = tuple(factor for factor in factors if "S" in factor.letters)
    fixed = tuple(factor for factor in factors if "T" not in factor.letters and "S" not in factor.letters)
    kept = tuple(letter for letter in contract.axes if letter not in OTHER)
    summed = tuple(letter for letter in ordered(factors, renamed) if letter not in kept)
    batch = batch_letters(kept, summed, (targets, sources, fixed), (row, column))
    folded = tuple(letter for letter in folding(term, tables, renamed, batch, kept) if letter not in batch)
    batch += folded
    outer = tuple(letter for letter in kept if letter not in batch) + ((KEPT,) if {"T", "S"} <= set(contract.axes) else ())
    fixed_value = tuple(one for one in fixed if set(one.features) & set(outer) and set(one.features) <= {*outer, *batch})
    value_side = tuple(one for one in sources if set(one.features) & set(outer))
    return Core(
        name=name,
        query=(*targets, *(one for one in fixed if one not in fixed_value)),
        key=tuple(factor for factor in sources if factor not in value_side),
        value=(*value_side, *fixed_value),
        inner=tuple(letter for letter in summed if letter not in column and letter not in batch),
        column=column,
        outer=outer,
        batch=batch,
        term=term,
        mask_letters=tuple(renamed.items()),
        axis_of=(*sizes_of((*factors, *tables), renamed).items(), (KEPT, "S")),
        number=contract.number,
        axes=contract.axes,
        tables=tables,
        folded=tuple(letter for letter in folded if letter not in kept),
        exchanged=exchanges(contract),
    )


def batch_letters(kept: Axes, summed: Axes, sides: tuple[tuple[Factor, ...], ...], matrix: tuple[Axes, Axes]) -> Axes:
    """The result's letters that are on both sides, or in an operand with letters of the other kind."""
    targets, sources, fixed = sides
    on_target = {letter for factor in targets for letter in factor.features} | set(matrix[0])
    on_source = {letter for factor in sources for letter in factor.features} | set(matrix[1])
    batch = [letter for letter in kept if letter in on_target or letter not in on_source]
    for factor in sources:
        if any(letter in summed for letter in factor.features):
            batch += [letter for letter in factor.features if letter in kept and letter not in batch]
    for factor in fixed:
        if not set(factor.features) <= set(kept):
            batch += [letter for letter in factor.features if letter in kept and letter not in batch]
    return tuple(batch)


def folding(term: Term, tables: tuple[Factor, ...], renamed: dict[str, str], batch: Axes, kept: Axes) -> Axes:
    """The letters that a state cannot have: those of entrywise factors, and the result's where signs or phases turn by both sides."""
    letters = [letter for table in tables for letter in table.features if not letter.isdigit()]
    for step in term.law.steps:
        if isinstance(step, Fade) and (step.value.number is Number.COMPLEX or not step.log):
            own = [renamed[axis] for axis in step.value.axes if axis in renamed and renamed[axis] not in batch]
            if any(letter not in kept for letter in own):
                letters += [letter for letter in own if letter in kept]
    return tuple(dict.fromkeys(letters))


def matrix_axes(term: Term, renamed: dict[str, str]) -> tuple[Axes, Axes]:
    """The contraction's letters for a matrix mask's row and column."""
    pairs = {(renamed[step.row], renamed[step.column]) for step in term.law.steps if isinstance(step, Dense | RankOne)}
    if not pairs:
        return (), ()
    row, column = pairs.pop()
    return (row,), (column,)


def ordered(factors: tuple[Factor, ...], renamed: dict[str, str]) -> list[str]:
    """All feature letters, in the order in which the operands name them, the mask's last."""
    letters = [letter for factor in factors for letter in factor.features] + list(renamed.values())
    return list(dict.fromkeys(letters))


def sizes_of(factors: tuple[Factor, ...], renamed: dict[str, str]) -> dict[str, str]:
    """The axis of the program behind each letter."""
    found = {letter: axis for axis, letter in renamed.items()}
    for factor in factors:
        pairs = zip(factor.value.axes, factor.letters, strict=True)
        found |= {letter: axis for axis, letter in pairs if letter not in OTHER and not letter.isdigit()}
    return found


def unused(name: str, taken: set[str]) -> str:
    """The name itself, or with a number behind it."""
    return name if name not in taken else next(other for index in count(2) if (other := f"{name}_{index}") not in taken)
