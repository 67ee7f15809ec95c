"""The passes of a gate for each channel: of the key (n), in two kernels; of the value (p), in one."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import mul

from contractor.schedules.parts.beside import weights_of
from contractor.schedules.parts.chunk import Place, advance, carry_in, give_out, placed, score, through
from contractor.schedules.parts.dyadic import LEVELS, Fading, fading, held_rows, level_of, rate_of
from contractor.schedules.parts.ends import entering, leaving, segment, store_segment, walked_before
from contractor.schedules.parts.factors import Factors
from contractor.schedules.parts.form import Form
from contractor.schedules.parts.support import directed
from contractor.schedules.parts.walk import Layout, Rows, Walk, rows, sizes, stream_of, table
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel
from contractor.tile.ops import ACC, I32, Buffer, Expr, Span, cast, cdiv, dot, iota, number, rename, select, size

SAYS = "result[t, p] = scale · Σ over s and n of L[t, s, {}] · query[t, n] · key[s, n] · value[s, p]"
ENTERING_SAYS = "weights[t, s] = Σ over n of L[t, s, n] · query[t, n] · key[s, n] in a chunk; query and key as they meet the state"
SEGMENT_SAYS = "what each segment adds to the state: Σ over its s of L[segment end, s] · key[s, n] · value[s, p]"
SCALARS = ("scale", "T", "B", "SEQUENCES")


# ---- a gate on the key's channels --------------------------------------------------------------------------------------------------


def entering_kernel(form: Form, layout: Layout) -> Kernel:
    """The weights of each chunk's pairs, its query and key faded from and to the chunk's ends, and what the chunk leaves of the state."""
    k = Builder("chunk_weights", ENTERING_SAYS, {"t": "CHUNK", "s": "CHUNK", "n": "PIECE"}, scalars=SCALARS)
    blocks = cdiv(size("T"), size("CHUNK") * size("SEQUENCES")) if form.packed else cdiv(size("T"), size("CHUNK"))
    program = k.program(blocks * size("H") * size("SEQUENCES" if form.packed else "B"))
    block = k.let("block", program % blocks)
    w = stream_of(k, form, k.let("stream", program // blocks), number(0), None, None)
    lane = k.let("lane", iota("t"))
    if not form.packed:
        one_entering(k, form, layout, w, lane, block)
        return k.done()
    k.note("of packed sequences every so many-th chunk, as if all were of one length")
    chunks = k.let("chunks", cdiv(w.length, size("CHUNK")))
    with k.loop("step", (chunks + (blocks - 1) - block) // blocks) as step:
        one_entering(k, form, layout, w, lane, k.let("chunk", block + step * blocks))
    return k.done()


def one_entering(k: Builder, form: Form, layout: Layout, w: Walk, lane: Expr, chunk: Expr) -> None:
    """One chunk, a piece of n after the other."""
    here = rows(k, w, lane, chunk)
    k.axis("u", "CHUNK")
    weight = reduce(mul, weights_of(k, form.weighing("source"), w, here, "t"), number(1.0))
    weights = k.full("weights_sum", "t", "s")
    with k.loop("piece", size("BLOCK_N") // size("PIECE")) as piece:
        first = piece * size("PIECE")
        column = k.let("n", first + iota("n"))
        n = Span("n", first, column, column < size("N") if layout.padded_n else None, piece)
        query, key = (tile(k, layout, w, name, here, n) for name in ("query", "key"))
        fades = fading(k, layout, w, form, rate_of(k, w, form.gates[0], n), here, n, query)
        k.store(chunk_fades(k), chunk_slot(w, chunk), w.head, n, value=fades.chunk())
        scores = k.let("scores", dot(query, rename(key, t="s"), precision=layout.precision))
        held = held_rows(k, scores)
        k.update(weights, weights + level_scores(k, layout, fades, scores, held, query, key))
        k.note("the state that enters, as the query reads it, and the one that leaves, as the key writes it")
        target, head = between_table(k, layout, w, "entering", "query")
        k.store(target, w.batch, here.span("t"), head, n, value=faded(query, fades.enter()))
        target, head = between_table(k, layout, w, "leaving", "key")
        k.store(target, w.batch, here.span("t"), head, n, value=faded(key, fades.leave() * weight))
    seen = select(directed(form, lane, rename(lane, t="s")), weights * rename(weight, t="s"), 0.0)
    buffer, at, columns = pairs_of(k, layout, here, lane, "query")
    k.store(buffer, w.batch, at, w.head, columns, value=cast(k.let("weighted", seen), buffer.dtype))


def tile(k: Builder, layout: Layout, w: Walk, name: str, here: Rows, n: Span) -> Expr:
    """A piece of query or key [t, n]."""
    source, head = table(k, w, name, "N", via=layout.via)
    return k.load(f"{name}_tile", source, w.batch, here.span("t"), head, n)


def level_scores(k: Builder, layout: Layout, fades: Fading, scores: Expr, held: Expr, query: Expr, key: Expr) -> Expr:
    """The scores [t, s] of the chunk's pairs under the gate, from the scores without it; those of pairs that are not seen mean nothing."""
    k.note("inside the chunk: scores, from each row's own to those of pairs half a chunk apart")
    scores = k.carry("faded_scores", scores)
    with k.loop("level", LEVELS) as step:
        level = level_of(k, step, fades.row)
        middle = k.let("middle", cast(fades.middle(level, held), query))
        late, early = k.let("late", query * middle), k.let("early", rename(cast(key, query) * middle, t="s"))
        k.update(scores, select(level.together, scores, dot(late, early, precision=layout.precision)))
    return scores


def faded(operand: Expr, factor: Expr) -> Expr:
    """An operand times a factor, in the operand's dtype."""
    return cast(cast(operand, ACC) * factor, operand)


def between_table(k: Builder, layout: Layout, w: Walk, name: str, like: str) -> tuple[Buffer, Expr]:
    """A tensor [B, T, H, N] that the first kernel leaves for the second. like: an operand of the kernel at hand."""
    return table(k, w, name, "N", dtype=like, via=layout.via)


def pairs_of(k: Builder, layout: Layout, here: Rows, lane: Expr, like: str) -> tuple[Buffer, Span, Span]:
    """Where a chunk's weights are: the tensor, its rows t, its columns s."""
    buffer = k.buffer("weights", "B", "T", "H", "CHUNK", dtype=like, via=layout.via)
    return buffer, here.span("t"), Span("s", number(0), rename(lane, t="s"))


def chunk_fades(k: Builder) -> Buffer:
    """What each chunk leaves of what passes it."""
    return k.buffer("chunk_fades", "CHUNKS", "H", "N", dtype=ACC)


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
    first, count = segment(k, form, layout, c.w)
    with k.loop("step", count) as step:
        chunk = chunk_of(k, form, first, count, step)
        here = c.rows(chunk)
        source, head = between_table(k, layout, c.w, "entering", "value")
        query = k.load("query_tile", source, c.w.batch, here.span("t"), head, c.n)
        key, value = leaving_tile(c, here), c.tile("value", "s", here)
        buffer, at, columns = pairs_of(k, layout, here, c.lane, "value")
        weights = k.load("weights_tile", buffer, c.w.batch, at, c.w.head, columns)
        fade = k.load("fade", chunk_fades(k), chunk_slot(c.w, chunk), c.w.head, c.n)
        give_out(c, here, weights, value, carry_in(c, query, Factors(), state))
        k.note("carry: fade the state, add the chunk's outer products")
        advance(k, layout, state, key, value, Factors(fade=fade))
    leaving(k, form, layout, c.w, c.n, c.p, state)
    return k.done()


def leaving_tile(c: Place, here: Rows) -> Expr:
    """The key [s, n], faded up to where the state leaves the chunk."""
    source, head = between_table(c.k, c.layout, c.w, "leaving", "value")
    return c.k.load("key_tile", source, c.w.batch, here.span("s"), head, c.n)


def chunk_of(k: Builder, form: Form, first: Expr | None, count: Expr, step: Expr) -> Expr:
    """The number of the step's chunk, from the last one on where the mask runs from the future. first: the program's first, None: 0."""
    along = count - 1 - step if form.future else step
    return along if first is None and not form.future else k.let("chunk", along if first is None else first + along)


def segments_kernel(form: Form, layout: Layout) -> Kernel:
    """What each segment but the last adds to the state, and how much it fades what was there, channel by channel."""
    k = Builder("segment_states", SEGMENT_SAYS, sizes(layout), scalars=SCALARS)
    c = walking(k, form, layout)
    (side,) = form.gates[0].features
    rate = rate_of(k, c.w, form.gates[0], c.p) if side == "p" else None
    state, passed = k.full("state", "n", "p"), k.full("passed", side, value=1.0)
    first, count = segment(k, form, layout, c.w)
    before_last = walked_before(form, c.w) < size("SEGMENTS") - 1
    with k.loop("step", k.let("needed", select(before_last, count, 0))) as step:
        chunk = chunk_of(k, form, first, count, step)
        here = c.rows(chunk)
        value = c.tile("value", "s", here)
        if side == "n":
            key = leaving_tile(c, here)
            found = Factors(fade=k.load("fade", chunk_fades(k), chunk_slot(c.w, chunk), c.w.head, c.n))
        else:
            key = c.tile("key", "s", here)
            fades = fading(k, layout, c.w, form, rate, here, c.p, value)
            weighing = weights_of(k, form.weighing("source"), c.w, here, "s")
            found = Factors(leave=reduce(mul, weighing, rename(fades.leave(), t="s")), fade=fades.chunk())
        advance(k, layout, state, key, value, found)
        if found.fade is not None:
            k.update(passed, passed * found.fade)
    store_segment(k, form, c.w, c.n, c.p, state, passed)
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
    first, count = segment(k, form, layout, c.w)
    with k.loop("step", count) as step:
        here = c.rows(chunk_of(k, form, first, count, step))
        query, key, value = c.tile("query", "t", here), c.tile("key", "s", here), c.tile("value", "s", here)
        fades = fading(k, layout, c.w, form, rate, here, c.p, value)
        weighing = tuple(weights_of(k, form.weighing("source"), c.w, here, "s"))
        seen = directed(form, here.place, rename(here.place, t="s"))
        scores = score(c, query, key)
        held = held_rows(k, scores)
        weights = k.let("weights", cast(reduce(mul, weighing, select(seen, scores, 0.0)), value))
        fade = fades.chunk()
        carried = k.carry("gathered", carry_in(c, query, Factors(enter=fades.enter()), state))
        add_levels(c, fades, held, weights, value, carried)
        give_out(c, here, k.let("own_pairs", select(here.place.same(rename(here.place, t="s")), weights, 0.0)), value, carried)
        k.note("carry: fade the state, add the chunk's outer products")
        written = reduce(mul, weighing, rename(fades.leave(), t="s"))
        advance(k, layout, state, key, value, Factors(leave=written, fade=fade))
    leaving(k, form, layout, c.w, c.n, c.p, state)
    return k.done()


def add_levels(c: Place, fades: Fading, held: Expr, weights: Expr, value: Expr, out: Expr) -> None:
    """Adds what the chunk's pairs give, level by level, but for each row's own."""
    k = c.k
    k.note("inside the chunk: from neighbours to pairs half a chunk apart")
    with k.loop("level", LEVELS) as step:
        level = level_of(k, step, fades.row)
        middle = fades.middle(level, held)
        pairs = k.let("pairs", select(level.across, weights, cast(number(0.0), weights)))
        factor = rename(middle, t="s")
        early = k.let("early", cast(value, ACC) * factor if c.layout.split else value * cast(factor, value))
        k.update(out, out + through(k, c.layout, pairs, early, "early", None) * middle)
