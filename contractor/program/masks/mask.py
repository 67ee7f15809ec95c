"""What a mask is: a definition of every entry, and a law that says how a schedule may evaluate it.

A kind of mask is one file in this folder: its arguments, `entry` (the definition, dense, in float64: what the oracle uses) and
`law` (what schedules use). The two are written apart and tested against each other for every registered kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from torch import Tensor

from contractor.program.expression import Axes, Expression, Leaf
from contractor.program.place import Place

# ---- the law: what a schedule may use --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fade:
    """A scalar or diagonal transition: crossing position j multiplies the state by exp(value_j) (log) or value_j.

    value has axis S (one for each position) or no position (the same at all). Its feature axes are some of the mask's extra axes
    (none: one scalar for the whole state). shift 1: the crossing of t itself is left out.
    """

    value: Expression
    log: bool
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Dense:
    """A matrix transition: crossing j multiplies the state by value_j [row, column] from the left."""

    value: Expression
    row: str
    column: str
    shift: int = 0


@dataclass(frozen=True, slots=True)
class RankOne:
    """Crossing j multiplies by diag(exp log_j) − beta_j key_j erase_jᵀ (identity where there is no log).

    beta: [S] or [S, feature]; key, erase, log: [S, feature], where the feature is named row or column (either letter).
    """

    beta: Expression
    key: Expression
    erase: Expression
    log: Expression | None
    row: str
    column: str
    shift: int = 0


Step = Fade | Dense | RankOne


@dataclass(frozen=True, slots=True)
class Lookup:
    """An entrywise factor read from a tensor: `matrix(M)` at [t, s], `toeplitz(alpha)` at [lag].

    index: one place for each axis of `value` that is not a batch or head: positions or the lag. Outside the tensor it is 0.
    A target index counts in the targets' own coordinates when the axis is T. Axes behind those of `index` are the mask's.
    ahead: what is read at −index instead where the index is negative (`laws.terms` makes a term of its own of it).
    """

    value: Expression
    index: tuple[Place, ...]
    ahead: Expression | None = None


@dataclass(frozen=True, slots=True)
class Rotation:
    """The entrywise factor exp(−2πi·t·s/T) of the discrete Fourier transform."""


Weight = Lookup | Rotation


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank-R mask: the letters of `axis` are summed; left [T, axis] stands with the query, right [S, axis] with the key."""

    left: Expression
    right: Expression
    axis: str


@dataclass(frozen=True, slots=True)
class Law:
    """How one leaf may be evaluated.

    support: where an entry may be non-zero (None: everywhere). steps: the transitions crossed on s < j ≤ t, left applied last;
    with steps, support must hold only for lag ≥ 0. weights: entrywise factors. write: natural logs of factors on the source.
    ranks: the R's that are summed. stateless: why no state can be carried past a position, in the user's words ("" if one can).
    square: T ≠ S is refused.
    L = support · Π steps · Π weights · exp(Σ write), summed over the ranks.
    """

    support: Place | None = None
    steps: tuple[Step, ...] = ()
    weights: tuple[Weight, ...] = ()
    write: tuple[Expression, ...] = ()
    ranks: tuple[Rank, ...] = ()
    stateless: str = ""
    square: bool = False

    @property
    def trivial(self) -> bool:
        """True if every entry is 1."""
        return self.support is None and not (self.steps or self.weights or self.write or self.ranks)


# ---- a kind of mask ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a kind, as the checker and the help see it.

    positions: the position axes it may have, each alternative a tuple: ((),) none, (("S",),) the source, ((), ("S",)) either.
    features: "extra" (any of the mask's extra axes), "matrix" (both, row then column), "side" (one of them), "own" (one axis
    of its own, the lag or the rank), "none". integer: a positive integer, a size, or an int param. optional: may be left out
    although it is given in order.
    """

    name: str
    positions: tuple[Axes, ...] = ((),)
    features: Literal["extra", "matrix", "side", "own", "none"] = "none"
    integer: bool = False
    keyword: bool = False
    says: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Entries:
    """What `entry` is given: index grids and arguments, aligned, in float64 or complex128 (integers as int64).

    t: [T] target positions in the sources' coordinates; s: [S]. An argument is [batch, head, its position if it has one, then one
    dimension for each extra axis of the mask (size 1 where it has none)]; an "own" axis comes last instead.
    """

    t: Tensor
    s: Tensor
    extra: tuple[int, ...]
    arguments: dict[str, Tensor]
    has_position: dict[str, bool]
    shift: int = 0


class Kind(Protocol):
    """A kind of mask. One instance stands in the register `masks.MASKS`."""

    name: ClassVar[str]
    says: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]]
    choices: ClassVar[tuple[tuple[str, ...], ...]]  # each: exactly one of these parameters is given
    shifts: ClassVar[bool]  # takes `shift = 0 | 1`
    matrix: ClassVar[bool]  # entries are matrices over two extra axes

    def entry(self, given: Entries, /) -> Tensor:
        """Every entry by definition: [batch, head, T, S, *extra] (dimensions of size 1 where nothing differs).

        A matrix kind returns [batch, head, S, *extra] instead: the step at each position; the oracle multiplies them in order.
        """
        ...

    def law(self, leaf: Leaf, /) -> Law:
        """What a schedule may use."""
        ...
