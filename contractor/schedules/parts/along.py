"""The walk along the chunks of a rank-one transition, whose pairs were made before (`parts.pairs`): the state, over [p, n], and what a step
of the walk is made of."""

from __future__ import annotations

from dataclasses import replace

from contractor.schedules.parts.chunk import Place, placed
from contractor.schedules.parts.ends import place_of
from contractor.schedules.parts.form import Form
from contractor.schedules.parts.pairs import pairs_of, passing
from contractor.schedules.parts.walk import Layout, Rows
from contractor.tile.build import Builder
from contractor.tile.expression import Tile
from contractor.tile.ops import ACC, Expr, cast, dot, least, rename, size


def walking(k: Builder, form: Form, layout: Layout) -> Place:
    """The program's place: a sequence, a head, a block of columns. What gates leave is read, so nothing is made of them."""
    return replace(placed(k, replace(form, steps=form.matrices), layout), form=form)


def entering(c: Place) -> Tile:
    """The carried state [p, n], before the first position."""
    if not c.form.initial:
        return c.k.full("state", "p", "n")
    source, where, columns = place_of(c.k, c.form, c.w, c.p, "initial")
    return c.k.carry("state", cast(c.k.load("initial_tile", source, where, c.w.head, c.n, columns, order=("p", "n")), ACC))


def product(c: Place, left: Expr, right: Expr, into: Expr | None = None) -> Expr:
    """left · right over the axis that they share, added to `into`."""
    return dot(left, right, into=into, precision=c.layout.precision)


def pairs(c: Place, name: str, here: Rows) -> Expr:
    """A chunk's pairs [t, s]."""
    source, rows, columns = pairs_of(c, here, name)
    return c.k.load(f"{name}_tile", source, c.w.batch, rows, c.w.head, columns)


def times(x: Expr, factor: Expr | None, **names: str) -> Expr:
    """A tile times a factor under other names of its axes; the tile itself where there is none."""
    return x if factor is None else x * rename(factor, **names)


def enter_factor(c: Place, here: Rows) -> Expr | None:
    """What gates leave of the state up to each row [t]; None where that is all."""
    return c.k.load("enter", passing(c.k, "entering"), c.w.batch, c.w.head, here.span("t")) if c.form.gates else None


def fade_factor(c: Place, here: Rows) -> Expr | None:
    """What gates leave of what passes the whole chunk; None where that is all."""
    if not c.form.gates:
        return None
    last = least(here.first + size("CHUNK"), c.w.length) - 1
    return c.k.load("fade", passing(c.k, "entering"), c.w.batch, c.w.head, last if c.w.begin is None else c.w.begin + last)


def written_factor(c: Place, here: Rows) -> Expr | None:
    """What is left of each row at the chunk's end, times its weight [t]; None where that is all."""
    if not c.form.gates and not c.form.weighing("source"):
        return None
    return c.k.load("written", passing(c.k, "written_on"), c.w.batch, c.w.head, here.span("t"))


def renewed(c: Place, before: Expr, key: Expr, value: Expr, solved: Expr, enter: Expr | None) -> Expr:
    """What is new [p, t]: the value, less what the state and the chunk's earlier rows hold under the key."""
    held = c.k.let("held", times(product(c, before, key), enter, t="s"))
    return c.k.let("fresh", product(c, cast(0.0 - held, key), solved, product(c, value, solved)))
