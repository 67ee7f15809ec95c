"""The backward of the delta rule, where what is erased is what is written: a pass back along the chunks, with the states of a pass forth.

With X, W (`weights`), g (`entering`) and l (`written_on`, the source's weight w in it) as in `parts.pairs`, a chunk that the state S enters
makes u = X (v − g k S), result = g q S + W u, S' = f S + kᵀ (l u). Given the gradients o of the result and Z' of S':
    du = Wᵀ o + l k Z',  dv = Xᵀ du,  Z = f Z' + (g q)ᵀ o − (g k)ᵀ dv
and, with A = D ∘ (o uᵀ) on the diagonal and below, C = −D ∘ (dv uᵀ) below it, both without w, and l' = l without w,
    dq = g o Sᵀ + A w k,  y = l' u Z'ᵀ + Aᵀ q + Cᵀ k,  dk = w y − g dv Sᵀ + C w k,  dw = ⟨y, k⟩
dv is all that is needed of X: its gradient is −Xᵀ (du (v − g k S)ᵀ) Xᵀ = −dv uᵀ.
The gradient of the log of a gate is what the pairs of positions give that it stands between: those around the chunk, f ⟨S, Z'⟩; those that
end in it and those that begin in it; and those inside, w (q kᵀ ∘ A + k kᵀ ∘ C) below the diagonal, whose sums over either side are of the
same numbers in float32, so that what does not cross the gate cancels. Nothing is carried from chunk to chunk, so no rounding is either.

Four kernels: the pairs inside each chunk; the walk forth, which leaves `states` at each chunk's start and `new` = u; the walk back, which
leaves `state_gradients` at each chunk's end and dv; and the rest, for all chunks at once. The two walks hold the state transposed, as the
forward's does.
"""

from __future__ import annotations

from dataclasses import dataclass

from contractor.schedules.parts.along import enter_factor, entering, fade_factor, pairs, product, renewed, times, walking, written_factor
from contractor.schedules.parts.beside import weights_of
from contractor.schedules.parts.chunk import Place
from contractor.schedules.parts.ends import state_dims
from contractor.schedules.parts.form import WEIGHTS, Form
from contractor.schedules.parts.pairs import SCALARS, bare, each_chunk, pairs_kernel
from contractor.schedules.parts.walk import Layout, Rows, Walk, sizes, table
from contractor.tile.build import Builder
from contractor.tile.expression import Tile
from contractor.tile.kernel import Buffer, Kernel, Span
from contractor.tile.ops import ACC, I32, Expr, cast, cdiv, cumsum, iota, least, rename, select, size, total

FORTH_SAYS = "the state S at each chunk's start, and what is new in it: u = X (v − g k S)"
BACK_SAYS = "the gradient Z of the state at each chunk's end, and that of the value: dv = Xᵀ (Wᵀ o + l k Z)"
REST_SAYS = "the gradients of query, key, weight and log gate, from S, u, Z and dv of each chunk"


def backward_kernels(form: Form, layout: Layout) -> tuple[Kernel, ...]:
    """The four kernels of the backward."""
    return pairs_kernel(form, layout), forth_kernel(form, layout), back_kernel(form, layout), rest_kernel(form, layout)


def slot(w: Walk, chunk: Expr) -> Expr:
    """Where a chunk of the program's sequence stands among all: those of a batch element follow one another; packed sequences have one
    more than their full chunks, so that none is in another's place."""
    if w.begin is None:
        return w.sequence * cdiv(size("T"), size("CHUNK")) + chunk
    return cast(w.begin // size("CHUNK"), I32) + w.sequence + chunk


def state_at(c: Place, name: str, chunk: Expr, p: Span) -> tuple[Buffer, Expr, Span, Expr, Span]:
    """Where the state [p, n] of a chunk is, or its gradient: the tensor and the index."""
    buffer = c.k.buffer(name, "CHUNKS", "P", "H", "N", dtype="key", via=c.layout.via)
    return buffer, slot(c.w, chunk), p, c.w.head, c.n


def rows_of(c: Place, name: str, dtype: str | None = None) -> Buffer:
    """A tensor over the value's features, with all heads."""
    return c.k.buffer(name, "B", "T", "H", "P", dtype=dtype, via=c.layout.via)


# ---- the walks --------------------------------------------------------------------------------------------------------------------


def forth_kernel(form: Form, layout: Layout) -> Kernel:
    """The forward's walk again, which leaves states and what is new."""
    k = Builder("delta_states", FORTH_SAYS, sizes(layout), scalars=SCALARS)
    c = walking(k, form, layout)
    state = entering(c)
    with k.loop("step", k.let("chunks", cdiv(c.w.length, size("CHUNK")))) as step:
        here = c.rows(step)
        key, value, solved = c.tile("key", "s", here), c.tile("value", "s", here), pairs(c, "inverse", here)
        enter, written, fade = enter_factor(c, here), written_factor(c, here), fade_factor(c, here)
        before = k.let("before", cast(state, key))
        target, *where = state_at(c, "states", step, c.p)
        k.store(target, *where, value=before)
        fresh = renewed(c, before, key, value, solved, enter)
        k.store(rows_of(c, "new", "key"), c.w.batch, here.span("t"), c.w.head, c.p, value=cast(fresh, key))
        k.note("carry: fade the state, add what is new")
        k.update(state, product(c, cast(rename(times(fresh, written), t="s"), key), key, times(state, fade)))
    return k.done()


def back_kernel(form: Form, layout: Layout) -> Kernel:
    """The walk back, which leaves the states' gradients and the value's."""
    k = Builder("delta_back", BACK_SAYS, sizes(layout), scalars=SCALARS)
    c = walking(k, form, layout)
    carried = arriving(c)
    chunks = k.let("chunks", cdiv(c.w.length, size("CHUNK")))
    with k.loop("step", chunks) as step:
        chunk = k.let("chunk", chunks - 1 - step)
        one_back(c, chunk, c.rows(chunk), carried)
    if form.initial:
        k.note("what arrives at the first position")
        target = k.buffer("initial_gradient", *state_dims(form), dtype=ACC)
        k.store(target, c.w.sequence, c.w.head, c.n, c.p, value=carried * size("scale", ACC))
    return k.done()


def arriving(c: Place) -> Tile:
    """The gradient [p, n] of the state after the last position, by the scale too large."""
    if not c.form.final:
        return c.k.full("carried", "p", "n")
    source = c.k.buffer("final_gradient", *state_dims(c.form), dtype=ACC)
    return c.k.carry("carried", c.k.load("final_tile", source, c.w.sequence, c.w.head, c.n, c.p, order=("p", "n")))


def one_back(c: Place, chunk: Expr, here: Rows, carried: Tile) -> None:
    """A chunk's gradient of the value, and that of the state before it."""
    k, scale = c.k, size("scale", ACC)
    query, key = c.tile("query", "t", here), c.tile("key", "s", here)
    arrived = k.load("arrived_tile", rows_of(c, "arrived"), c.w.batch, here.span("t"), c.w.head, c.p)
    solved, weights = pairs(c, "inverse", here), pairs(c, "weights", here)
    enter, written, fade = enter_factor(c, here), written_factor(c, here), fade_factor(c, here)
    later = k.let("later", cast(carried, key))
    target, *where = state_at(c, "state_gradients", chunk, c.p)
    k.store(target, *where, value=cast(carried * scale, key))
    k.note("what is new is read in this chunk and in later ones")
    reached = times(product(c, later, key), written, t="s")
    fresh = k.let("fresh", product(c, arrived, weights, reached))
    shown = k.let("shown", product(c, cast(rename(fresh, s="t"), key), solved))
    k.store(rows_of(c, "value_gradient", "key"), c.w.batch, here.span("s"), c.w.head, c.p, value=cast(shown * scale, key))
    k.note("carry: fade it, add what this chunk reads of the state")
    read = product(c, arrived if enter is None else cast(times(arrived, enter), key), query, times(carried, fade))
    k.update(carried, product(c, cast(0.0 - times(shown, enter, t="s"), key), key, read))


# ---- the rest ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """What is summed over the value's columns. shown [t, s]: o uᵀ; hidden [t, s]: dv uᵀ; read [n, t]: (o Sᵀ)ᵀ; missed [n, t]: (dv Sᵀ)ᵀ;
    kept [n, s]: (u Zᵀ)ᵀ; passing: ⟨S, Z⟩."""

    shown: Tile
    hidden: Tile
    read: Tile
    missed: Tile
    kept: Tile
    passing: Tile | None


def rest_kernel(form: Form, layout: Layout) -> Kernel:
    """The gradients of query, key, weight and log gate. Their tiles are over [n, …], so that pairs of positions are right operands only,
    which may be read along either axis."""
    k = Builder("delta_rest", REST_SAYS, {**sizes(layout), "p": "COLUMNS"}, scalars=SCALARS)
    each_chunk(k, form, layout, one_rest)
    return k.done()


def one_rest(c: Place, here: Rows) -> None:
    """The gradients of one chunk: each sum is used up before the next is touched."""
    k, scale = c.k, size("scale", ACC)
    found = summed(c, here)
    query, key = turned_tile(c, "query", "t", here), turned_tile(c, "key", "s", here)
    keys = rename(key, s="t")
    fades = bare(c).factors(here)
    (weight,) = weights_of(k, (WEIGHTS["source"],), c.w, here, "s")
    strict = c.lane > rename(c.lane, t="s")
    k.note("the pairs inside the chunk")
    shown = k.let("shown", select(c.seen, times(found.shown, fades.within) * scale, 0.0))
    hidden = k.let("hidden", select(strict, times(0.0 - found.hidden, fades.within), 0.0))
    inside = product(c, query, key) * shown + product(c, keys, key) * hidden
    inside = k.let("inside_pairs", select(strict, inside * weight, 0.0))
    ending = k.let("ending", total(inside, "s") - rename(total(inside, "t"), s="t"))
    k.note("the query's gradient")
    read = k.let("carried_in", times(found.read, fades.enter) * scale)
    ending = k.let("ending_read", ending + total(cast(query, ACC) * read, "n"))
    store(c, here, "query", product(c, key, cast(shown * weight, "key"), read))
    k.note("the key's, as it writes and as it erases")
    kept = k.let("kept", times(found.kept, fades.leave))
    beginning = k.let("beginning", rename(weight * total(cast(key, ACC) * kept, "n"), s="t"))
    written = k.let("written", product(c, keys, cast(hidden, "key"), product(c, query, cast(shown, "key"), kept)))
    store_row(c, here, f"{WEIGHTS['source']}_gradient", "s", total(cast(key, ACC) * written, "n"))
    missed = k.let("missed", times(found.missed, fades.enter))
    ending = k.let("ending_missed", ending - total(cast(keys, ACC) * missed, "n"))
    store(c, here, "key", product(c, key, cast(hidden * weight, "key"), rename(written * weight, s="t") - missed))
    if found.passing is not None and fades.fade is not None:
        k.note("the gate's: the pairs that end here, those that begin here, those around the chunk")
        store_row(c, here, "gate_gradient", "t", flow(c, here, ending, beginning, found.passing * fades.fade))


def summed(c: Place, here: Rows) -> Sums:
    """What is summed over the value's columns. T bounds their blocks so that the compiler does not know how many there are: it would take a
    loop of one turn apart, lay all pairs out for the products behind it, and run out of registers."""
    k, chunk = c.k, here.first // size("CHUNK")
    sums = Sums(
        k.full("shown_sum", "t", "s"),
        k.full("hidden_sum", "t", "s"),
        *(k.full(f"{name}_sum", "n", axis) for name, axis in (("read", "t"), ("missed", "t"), ("kept", "s"))),
        passing=k.full("passing") if c.form.gates else None,
    )
    with k.loop("column", least(cdiv(size("P"), size("COLUMNS")), size("T"))) as column:
        first = column * size("COLUMNS")
        index = k.let("p", first + iota("p"))
        p = Span("p", first, index, index < size("P") if c.layout.padded_p else None, column)
        arrived, lost, fresh = (
            k.load(f"{name}_tile", rows_of(c, name, dtype), c.w.batch, here.span(axis), c.w.head, p)
            for name, axis, dtype in (("arrived", "t", None), ("value_gradient", "t", "key"), ("new", "s", "key"))
        )
        state, later = (k.load(f"{name}_tile", *state_at(c, name, chunk, p)) for name in ("states", "state_gradients"))
        for one, left, right in (
            (sums.shown, arrived, fresh),
            (sums.hidden, lost, fresh),
            (sums.read, state, arrived),
            (sums.missed, state, lost),
            (sums.kept, later, fresh),
        ):
            k.update(one, product(c, left, right, one))
        if sums.passing is not None:
            k.update(sums.passing, sums.passing + total(total(cast(state, ACC) * cast(later, ACC), "n"), "p"))
    return sums


def flow(c: Place, here: Rows, ending: Expr, beginning: Expr, around: Expr) -> Expr:
    """The gradient of each row's log gate: what is around the chunk, what ends from there on, what begins before; 0 at the first position
    if nothing comes before it."""
    ends = total(ending, "t") - cumsum(ending, "t") + ending
    value = around + ends + (cumsum(beginning, "t") - beginning)
    return value if c.form.initial else select(here.place >= 1, value, 0.0)


def turned_tile(c: Place, name: str, axis: str, here: Rows) -> Expr:
    """A chunk's tile of query or key, over [n, position]."""
    source, head = table(c.k, c.w, name, "N", via=c.layout.via)
    return c.k.load(f"{name}_tile", source, c.w.batch, here.span(axis), head, c.n, order=("n", axis))


def store(c: Place, here: Rows, name: str, value: Expr) -> None:
    """Stores the gradient [n, t] of query or key, for all heads."""
    target = c.k.buffer(f"{name}_gradient", "B", "T", "H", "N", dtype=name, via=c.layout.via)
    c.k.store(target, c.w.batch, here.span("t"), c.w.head, c.n, value=cast(c.k.let(f"{name}_change", value), name))


def store_row(c: Place, here: Rows, name: str, axis: str, value: Expr) -> None:
    """Stores one number a row."""
    c.k.store(c.k.buffer(name, "B", "T", "H", dtype=ACC), c.w.batch, here.span(axis), c.w.head, value=value)
