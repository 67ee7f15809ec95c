"""The passes of a gate for each channel: of the key (n), in two kernels; of the value (p), in one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import mul

from contractor.schedules.parts.beside import weights_of
from contractor.schedules.parts.chunk import Place, advance, carry_in, give_out, placed, score, through
from contractor.schedules.parts.dyadic import LEVELS, Fading, fading, rate_of
from contractor.schedules.parts.ends import entering, leaving
from contractor.schedules.parts.factors import Factors
from contractor.schedules.parts.form import Form
from contractor.schedules.parts.support import directed
from contractor.schedules.parts.walk import Layout, Rows, Walk, inner, sizes, stream_of, table
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel
from contractor.tile.ops import ACC, I32, Buffer, Expr, Span, cast, cdiv, dot, iota, number, rename, select, size

SAYS = "result[t, p] = scale · Σ over s and n of L[t, s, {}] · query[t, n] · key[s, n] · value[s, p]"
ENTERING_SAYS = "weights[t, s] = Σ over n of L[t, s, n] · query[t, n] · key[s, n] in a chunk; query and key as they meet the state"
SCALARS = ("scale", "T", "B", "SEQUENCES")


# ---- a gate on the key's channels --------------------------------------------------------------------------------------------------


def entering_kernel(form: Form, layout: Layout) -> Kernel:
    """The weights of each chunk's pairs, its query and key faded from and to the chunk's ends, and what the chunk leaves of the state."""
    k = Builder("chunk_weights", ENTERING_SAYS, sizes(layout), scalars=SCALARS)
    for c, chunk in each_chunk(k, form, layout):
        one_entering(c, chunk)
    return k.done()


def each_chunk(k: Builder, form: Form, layout: Layout) -> Iterator[tuple[Place, Expr]]:
    """The place of a program and its chunk, heads slowest; of packed sequences it takes every so many-th, as if all were of one length."""
    blocks = cdiv(size("T"), size("CHUNK") * size("SEQUENCES")) if form.packed else cdiv(size("T"), size("CHUNK"))
    program = k.program(blocks * size("H") * size("SEQUENCES" if form.packed else "B"))
    block = k.let("block", program % blocks)
    c = alone(k, form, layout, stream_of(k, form, k.let("stream", program // blocks), number(0), None, None))
    if not form.packed:
        yield c, block
        return
    chunks = k.let("chunks", cdiv(c.w.length, size("CHUNK")))
    with k.loop("step", (chunks + (blocks - 1) - block) // blocks) as step:
        yield c, k.let("chunk", block + step * blocks)


def alone(k: Builder, form: Form, layout: Layout, w: Walk) -> Place:
    """The place of a program that has all of n and no columns of p."""
    n, lane = inner(k, layout), k.let("lane", iota("t"))
    return Place(k, form, layout, w, n, n, lane, k.let("seen", directed(form, lane, rename(lane, t="s"))), {}, None, None)


def one_entering(c: Place, chunk: Expr) -> None:
    """One chunk."""
    k, form = c.k, c.form
    here = c.rows(chunk)
    query, key = c.tile("query", "t", here), c.tile("key", "s", here)
    gate = form.gates[0]
    fades = fading(k, c.layout, c.w, gate, rate_of(k, c.w, gate, c.n), here, c.n, query)
    rows = tuple(weights_of(k, form.weighing("source"), c.w, here, "s"))
    k.note("the state that enters, as the query reads it, and the one that leaves, as the key writes it")
    enter, leave = (fades.last(), fades.first()) if form.future else (fades.first(), fades.last())
    source, head = between_table(c, "entering", "query")
    k.store(source, c.w.batch, here.span("t"), head, c.n, value=faded(query, enter))
    written = reduce(mul, rows, rename(leave, t="s"))
    target, head = between_table(c, "leaving", "key")
    k.store(target, c.w.batch, here.span("s"), head, c.n, value=faded(key, written))
    k.store(chunk_fades(k), chunk_slot(c.w, chunk), c.w.head, c.n, value=fades.chunk())
    weights = reduce(mul, rows, select(c.seen, level_scores(c, fades, query, key), 0.0))
    buffer, at, columns = pairs_of(c, here, "query")
    k.store(buffer, c.w.batch, at, c.w.head, columns, value=cast(k.let("weighted", weights), buffer.dtype))


def level_scores(c: Place, fades: Fading, query: Expr, key: Expr) -> Expr:
    """The scores [t, s] of the chunk's pairs under the gate; those of pairs that are not seen mean nothing."""
    k = c.k
    k.note("inside the chunk: scores, from each row's own to those of pairs half a chunk apart")
    apart = k.let("apart", c.lane ^ rename(c.lane, t="s"))
    scores = k.carry("scores", dot(query, key, precision=c.layout.precision))
    with k.loop("level", LEVELS) as level:
        half = k.let("half", 1 << level)
        middle = fades.middle(half)
        late, early = k.let("late", faded(query, middle)), k.let("early", faded(key, rename(middle, t="s")))
        k.update(scores, select(apart < half, scores, dot(late, early, precision=c.layout.precision)))
    return scores


def faded(operand: Expr, factor: Expr) -> Expr:
    """An operand times a factor, in the operand's dtype."""
    return cast(cast(operand, ACC) * factor, operand)


def between_table(c: Place, name: str, like: str) -> tuple[Buffer, Expr]:
    """A tensor [B, T, H, N] that the first kernel leaves for the second. like: an operand of the kernel at hand."""
    return table(c.k, c.w, name, "N", dtype=like, via=c.layout.via)


def pairs_of(c: Place, here: Rows, like: str) -> tuple[Buffer, Span, Span]:
    """Where a chunk's weights are: the tensor, its rows t, its columns s."""
    buffer = c.k.buffer("weights", "B", "T", "H", "CHUNK", dtype=like, via=c.layout.via)
    return buffer, here.span("t"), Span("s", number(0), rename(c.lane, t="s"))


def chunk_fades(k: Builder) -> Buffer:
    """What each chunk leaves of what passes it."""
    return k.buffer("fades", "CHUNKS", "H", "N", dtype=ACC)


def chunk_slot(w: Walk, chunk: Expr) -> Expr:
    """Where a chunk of the program's sequence stands among all: packed sequences have one more than their full chunks."""
    if w.begin is None:
        return w.sequence * cdiv(size("T"), size("CHUNK")) + chunk
    return cast(w.begin // size("CHUNK"), I32) + w.sequence + chunk


def inner_kernel(form: Form, layout: Layout) -> Kernel:
    """The walk along the chunks, whose rows the first kernel has faded."""
    k = Builder("walk_faded", SAYS.format("n"), sizes(layout), scalars=SCALARS)
    c = walking(k, form, layout)
    state = entering(k, form, layout, c.w, c.n, c.p)
    chunks = k.let("chunks", cdiv(c.w.length, size("CHUNK")))
    with k.loop("step", chunks) as step:
        chunk = k.let("chunk", chunks - 1 - step) if form.future else step
        here = c.rows(chunk)
        source, head = between_table(c, "entering", "value")
        query = k.load("query_tile", source, c.w.batch, here.span("t"), head, c.n)
        target, head = between_table(c, "leaving", "value")
        key = k.load("key_tile", target, c.w.batch, here.span("s"), head, c.n)
        value = c.tile("value", "s", here)
        buffer, at, columns = pairs_of(c, here, "value")
        weights = k.load("weights_tile", buffer, c.w.batch, at, c.w.head, columns)
        fade = k.load("fade", chunk_fades(k), chunk_slot(c.w, chunk), c.w.head, c.n)
        give_out(c, here, weights, value, carry_in(c, query, Factors(), state))
        k.note("carry: fade the state, add the chunk's outer products")
        advance(k, layout, state, key, value, Factors(fade=fade))
    leaving(k, form, layout, c.w, c.n, c.p, state)
    return k.done()


def walking(k: Builder, form: Form, layout: Layout) -> Place:
    """The program's place: a sequence, a head, a block of columns."""
    return replace(placed(k, replace(form, steps=()), layout), form=form)


# ---- a gate on the value's channels -------------------------------------------------------------------------------------------------


def outer_kernel(form: Form, layout: Layout) -> Kernel:
    """The walk along the chunks: values fade at the sources, results at the targets."""
    k = Builder("walk_fading", SAYS.format("p"), sizes(layout), scalars=SCALARS)
    c = walking(k, form, layout)
    rate = rate_of(k, c.w, form.gates[0], c.p)
    state = entering(k, form, layout, c.w, c.n, c.p)
    chunks = k.let("chunks", cdiv(c.w.length, size("CHUNK")))
    with k.loop("step", chunks) as step:
        here = c.rows(k.let("chunk", chunks - 1 - step) if form.future else step)
        query, key, value = c.tile("query", "t", here), c.tile("key", "s", here), c.tile("value", "s", here)
        fades = fading(k, layout, c.w, form.gates[0], rate, here, c.p, value)
        rows = tuple(weights_of(k, form.weighing("source"), c.w, here, "s"))
        weights = k.let("weights", reduce(mul, rows, select(c.seen, score(c, query, key), 0.0)))
        enter, leave = (fades.last(), fades.first()) if form.future else (fades.first(), fades.last())
        carried = k.carry("gathered", carry_in(c, query, Factors(enter=enter), state))
        apart = k.let("apart", here.place ^ rename(here.place, t="s"))
        add_levels(c, fades, weights, value, apart, carried)
        give_out(c, here, k.let("own_pairs", select(apart.same(0), weights, 0.0)), value, carried)
        k.note("carry: fade the state, add the chunk's outer products")
        written = reduce(mul, rows, rename(leave, t="s"))
        advance(k, layout, state, key, value, Factors(leave=written, fade=fades.chunk()))
    leaving(k, form, layout, c.w, c.n, c.p, state)
    return k.done()


def add_levels(c: Place, fades: Fading, weights: Expr, value: Expr, apart: Expr, out: Expr) -> None:
    """Adds what the chunk's pairs give, level by level, but for each row's own."""
    k = c.k
    k.note("inside the chunk: from neighbours to pairs half a chunk apart")
    with k.loop("level", LEVELS) as level:
        half = k.let("half", 1 << level)
        middle = fades.middle(half)
        pairs = k.let("pairs", cast(select((apart >= half) & (apart < half + half), weights, 0.0), value))
        early = k.let("early", cast(value, ACC) * rename(middle, t="s"))
        k.update(out, out + through(k, c.layout, pairs, early, "early", None) * middle)
