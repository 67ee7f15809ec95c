"""A mask's support read on tiles: which pairs are seen, and which blocks of sources a block of targets can see at all."""

from __future__ import annotations

from dataclasses import dataclass

from contractor.program.expression import Constant, Expression
from contractor.program.interval import lag_range
from contractor.program.place import Place, evaluate
from contractor.schedules.parts.form import Form
from contractor.schedules.parts.walk import Rows, Walk, head_of
from contractor.tile.build import Builder
from contractor.tile.ops import I64, Expr, least, most, number, rename, size


def directed(form: Form, target: Expr, source: Expr) -> Expr:
    """The source is not after the target (in the future direction not before), and not at it where strict."""
    if form.future:
        return source > target if form.strict else source >= target
    return target > source if form.strict else target >= source


def bounds(k: Builder, form: Form, w: Walk) -> dict[str, Expr]:
    """The support's integer arguments without positions, read for the program's head, by buffer."""
    found: dict[str, Expr] = {}
    for one in form.arguments:
        if not one.held:
            count, head = head_of(w, one.name)
            found[one.name] = k.load(f"{one.name}_value", k.buffer(one.name, count, dtype=I64), head)
    return found


def supported(k: Builder, form: Form, w: Walk, known: dict[str, Expr], target: Rows, source: Rows, prefix: str, axis: str = "s") -> Expr:
    """Where the support holds over (t, s), or over t alone where each target has one source (axis t). A transposed mask is read with the
    two exchanged."""
    assert form.support is not None
    at, by = placed_from(form, target.place), placed_from(form, rename(source.place, t=axis))
    blocks = {id(at): (target, "t", "t"), id(by): (source, axis, "s")}
    later, earlier = (by, at) if form.future else (at, by)

    def label(value: Expression, place: Expr) -> Expr:
        block, over, role = blocks[id(place)]
        name = buffer_of(form, value)
        count, head = head_of(w, name)
        return k.load(f"{prefix}{name}_{role}", k.buffer(name, "B", "T", count, dtype=I64), w.batch, block.span(over), head)

    return evaluate(form.support, later, earlier, sources(form), lambda value: bound(form, known, value), label, lambda a, b: a.same(b))


def placed_from(form: Form, place: Expr) -> Expr:
    """A place as the support counts it: from the first source."""
    return place - size("offset") if form.shifted else place


def sources(form: Form) -> Expr:
    """How many sources there are."""
    return size("T") - size("offset") if form.shifted else size("T")


def buffer_of(form: Form, value: Expression) -> str:
    """The buffer that holds an argument."""
    return next(one.name for one in form.arguments if one.value == value)


def bound(form: Form, known: dict[str, Expr], value: Expression) -> Expr:
    """An integer argument without positions: a number as written, else what was read."""
    return number(int(value.value)) if isinstance(value, Constant) else known[buffer_of(form, value)]


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The source blocks that a target block can see: `count` of them, beginning at `first`."""

    first: Expr
    count: Expr


def visible(k: Builder, form: Form, w: Walk, known: dict[str, Expr], blocks: Expr, own: bool) -> Blocks:
    """The source blocks that may hold a seen pair, derived from the support's bounds of the lag.

    own: the target's own block is among them; without it, a directed mask sees only what is before (in the future direction after).
    """
    assert w.row_block is not None
    low, high = reach(form, known)
    first_row = w.row_block * size("CHUNK")
    last_row = first_row + (size("CHUNK") - 1)
    first = number(0) if high is None else k.let("first_block", most(0, first_row - high) // size("CHUNK"))
    stop = blocks if low is None else k.let("stop_block", least(blocks, most(-1, last_row - low) // size("CHUNK") + 1))
    if form.directed and form.future:
        first = w.row_block if own else w.row_block + 1
    elif form.directed:
        stop = w.row_block + 1 if own else w.row_block
    bounded = not (low is None and high is None)
    return Blocks(first, k.let("visible", most(0, stop - first) if bounded else stop - first))


def reach(form: Form, known: dict[str, Expr]) -> tuple[Expr | None, Expr | None]:
    """The least and the greatest lag (both inclusive) that the support allows, as the kernel's own walk counts it; None: no bound."""
    if form.support is None:
        return None, None
    low, high = (None if place is None else placed(form, known, place) for place in lag_range(form.support))
    if form.future:
        low, high = (None if high is None else number(0) - high), (None if low is None else number(0) - low)
    return low, high


def placed(form: Form, known: dict[str, Expr], place: Place) -> Expr:
    """The value of a place that names neither t nor s."""
    return evaluate(place, None, None, sources(form), lambda value: bound(form, known, value), None, lambda a, b: a.same(b))
