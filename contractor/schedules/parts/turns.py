"""Supports that a carried state can follow: states that take turns (every d-th position), and states that begin anew (at each block)."""

from __future__ import annotations

from dataclasses import dataclass

from contractor.program.expression import Constant
from contractor.program.place import LAG, Binary, Given, Place, S, T, Whole, conjuncts
from contractor.schedules.parts.form import Form
from contractor.tile.build import Builder
from contractor.tile.ops import Expr, iota, select, total

STATES = "STATES"


@dataclass(frozen=True, slots=True)
class Turns:
    """states: how many states take turns, position by position. block: after how many positions they begin anew (None: never)."""

    states: int = 1
    block: int | None = None


def turns(form: Form) -> Turns | None:
    """How states follow a form's support; None if they cannot: it says something else, or by numbers that are only known at a call."""
    strides: list[int] = []
    blocks: list[int] = []
    for condition in conjuncts(form.support):
        match condition:
            case Binary(sign="==", left=Binary(sign="%", left=lag, right=Given(value=Constant(value=int(size)))), right=Whole(value=0)) if (
                lag == LAG
            ):
                strides.append(size)
            case Binary(sign="==", left=Binary(sign="//", left=left, right=by), right=Binary(sign="//", left=right, right=same)) if (
                {left, right} == {T, S} and by == same and fixed(by) is not None
            ):
                blocks.append(fixed(by) or 1)
            case _:
                return None
    if len(strides) > 1 or len(blocks) > 1 or (strides and form.matrices):
        return None
    return Turns(strides[0] if strides else 1, blocks[0] if blocks else None)


def fixed(size: Place) -> int | None:
    """A size that is written in the spec."""
    return int(size.value.value) if isinstance(size, Given) and isinstance(size.value, Constant) else None


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """Whose turn it is at a position: which of the states (None: there is one), and how much of them is kept (None: all)."""

    own: Expr | None
    kept: Expr | None

    def begun(self, state: Expr) -> Expr:
        """The states, anew where a block begins."""
        return state if self.kept is None else state * self.kept

    def mine(self, state: Expr) -> Expr:
        """The state whose turn it is."""
        return state if self.own is None else total(select(self.own, state, 0.0), "r")

    def spread(self, update: Expr) -> Expr:
        """What is written, to the state whose turn it is."""
        return update if self.own is None else select(self.own, update, 0.0)


def turn(k: Builder, form: Form, position: Expr) -> Turn:
    """The turn at a position. Walking from the future, a block begins at its last position."""
    found = turns(form) or Turns()
    own = None if found.states == 1 else k.let("own", iota("r").same(position % found.states))
    if found.block is None:
        return Turn(own, None)
    first = found.block - 1 if form.future else 0
    return Turn(own, k.let("kept", select((position % found.block).same(first), 0.0, 1.0)))
