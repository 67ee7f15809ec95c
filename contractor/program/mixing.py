"""The mixings of a program in normal form: result[t, outer] = Σ over s and inner of L[t, s, …] · query[t, inner] · key[s, inner] · value[s, outer].

Any masked contraction comes to this form by letters alone. A letter of the result that stands on both sides (or in an operand
together with the other kind) is `batch`: each of its values is a contraction of its own, like another head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from contractor.errors import ContractorError
from contractor.program.expression import Apply, Axes, Contract, Expression, Number, children
from contractor.program.laws import Term, terms
from contractor.program.masks.mask import Dense, Lookup, RankOne
from contractor.program.place import S, T
from contractor.program.program import Definition, Program


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

    inner: summed between query and key; outer: of value and result; batch: folded into the heads. With a matrix mask `inner` is the
    matrix' row (the query's letters) and `column` the key's. mask_letters: the mask's own feature letters under the contraction's names.
    axis_of: which axis of the program gives a letter its size.
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


@dataclass(frozen=True, slots=True)
class Mixing:
    """One masked contraction of a layer: the sum of its cores. `name` is the definition it stands in."""

    name: str
    contract: Contract
    terms: tuple[Core, ...]


def mixings(program: Program) -> tuple[Mixing, ...]:
    """Every masked contraction of a layer, in the order in which they are evaluated, each once."""
    found: dict[Contract, str] = {}
    for name, expression in places(program):
        for contract in contractions(expression):
            if contract.mask is not None and not unmasked(contract) and contract not in found:
                found[contract] = unused(name, set(found.values()))
    return tuple(Mixing(name, contract, cores(name, contract)) for contract, name in found.items())


def ordinary(program: Program) -> tuple[tuple[str, Contract], ...]:
    """Every contraction without a mask (or under `full()` alone), by the name of the definition it stands in."""
    found = ((name, contract) for name, expression in places(program) for contract in contractions(expression))
    return tuple((name, contract) for name, contract in found if contract.mask is None or unmasked(contract))


def places(program: Program) -> Iterator[tuple[str, Expression]]:
    """Every expression of a layer with the name of what it defines."""
    for definition in program.definitions:
        if isinstance(definition, Definition):
            yield definition.name, definition.value
    for output in program.outputs:
        yield "output", output


def contractions(expression: Expression) -> Iterator[Contract]:
    """The contractions inside an expression, innermost first."""
    for child in children(expression):
        yield from contractions(child)
    if isinstance(expression, Contract):
        yield expression


def unused(name: str, taken: set[str]) -> str:
    """The name itself, or with a number behind it."""
    return name if name not in taken else next(other for index in count(2) if (other := f"{name}_{index}") not in taken)


def unmasked(contract: Contract) -> bool:
    """True if the mask is 1 everywhere: then the contraction is an ordinary one."""
    if contract.mask is None:
        return True
    parts = terms(contract.mask)
    return len(parts) == 1 and not parts[0].coefficient and len(parts[0].factors) <= 1 and parts[0].law.trivial


def cores(name: str, contract: Contract) -> tuple[Core, ...]:
    """The mixing as a sum: a contraction distributes over a sum of masks."""
    assert contract.mask is not None
    if "T" not in contract.axes:
        raise ContractorError(f"{name}: a mixing whose result has no T is only evaluated by definition so far; write it with S and T exchanged")
    parts = terms(contract.mask)
    names = [name] if len(parts) == 1 else [f"{name}.{index + 1}" for index in range(len(parts))]
    return tuple(core(label, contract, term) for label, term in zip(names, parts, strict=True))


def core(name: str, contract: Contract, term: Term) -> Core:
    """One term of the mixing in normal form."""
    assert contract.mask is not None
    factors = [Factor(value, letters) for value, letters in zip(contract.operands, contract.letters, strict=True)]
    renamed = dict(zip(contract.mask.axes, contract.mask_axes, strict=True))
    if term.identity:
        factors, renamed = one_axis(factors, renamed, *(renamed[axis] for axis in term.identity))
    factors += [Factor(value, tuple(renamed.get(axis, axis) for axis in value.axes)) for value in (*term.coefficient, *written(term))]
    factors += ranked(term, {letter for factor in factors for letter in factor.letters}, renamed)
    term, factors = looked_up(term, factors)
    return classify(name, contract, term, tuple(factors), renamed)


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


def looked_up(term: Term, factors: list[Factor]) -> tuple[Term, list[Factor]]:
    """Operands with both positions become entrywise factors of the mask, read at [t, s]."""
    tables = [factor for factor in factors if {"T", "S"} <= set(factor.letters)]
    for table in tables:
        if table.features:
            raise ContractorError("an operand of a mixing with both T and S cannot have feature axes too so far")
    weights = tuple(Lookup(table.value, tuple(T if axis == "T" else S for axis in table.letters)) for table in tables)
    law = replace(term.law, weights=(*term.law.weights, *weights))
    return (replace(term, law=law) if tables else term), [factor for factor in factors if factor not in tables]


def classify(name: str, contract: Contract, term: Term, factors: tuple[Factor, ...], renamed: dict[str, str]) -> Core:
    """Which letters are inner, outer and batch, and on which side each operand stands."""
    row, column = matrix_axes(term, renamed)
    targets = [factor for factor in factors if "T" in factor.letters]
    sources = [factor for factor in factors if "S" in factor.letters]
    fixed = [factor for factor in factors if "T" not in factor.letters and "S" not in factor.letters]
    kept = [letter for letter in contract.axes if letter not in ("T", "S")]
    on_target = {letter for factor in targets for letter in factor.features} | set(row)
    on_source = {letter for factor in sources for letter in factor.features} | set(column)
    summed = [letter for letter in ordered(factors, renamed) if letter not in kept]
    batch = [letter for letter in kept if letter in on_target or letter not in on_source]
    outer = [letter for letter in kept if letter not in batch]
    for factor in sources:
        if any(letter in summed for letter in factor.features):
            batch += [letter for letter in factor.features if letter in outer and letter not in batch]
    outer = [letter for letter in outer if letter not in batch]
    fixed_value = [factor for factor in fixed if factor.features and set(factor.features) <= {*outer, *batch} and set(factor.features) & set(outer)]
    fixed_query = [factor for factor in fixed if factor not in fixed_value]
    for factor in fixed_query:
        batch += [letter for letter in factor.features if letter in outer and letter not in batch]
    outer = [letter for letter in outer if letter not in batch]
    value_side = [factor for factor in sources if set(factor.features) & set(outer)]
    inner = tuple(letter for letter in summed if letter not in column)
    return Core(
        name=name,
        query=(*targets, *fixed_query),
        key=tuple(factor for factor in sources if factor not in value_side),
        value=(*value_side, *fixed_value),
        inner=inner,
        column=column,
        outer=tuple(outer),
        batch=tuple(batch),
        term=term,
        mask_letters=tuple(renamed.items()),
        axis_of=tuple(sizes_of(factors, term, renamed).items()),
        number=contract.number,
    )


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


def sizes_of(factors: tuple[Factor, ...], term: Term, renamed: dict[str, str]) -> dict[str, str]:
    """The axis of the program behind each letter."""
    found = {letter: axis for axis, letter in renamed.items()}
    for factor in factors:
        found |= {letter: axis for axis, letter in zip(factor.value.axes, factor.letters, strict=True) if letter not in ("T", "S")}
    return found
