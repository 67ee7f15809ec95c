"""What the positions of one chunk are to each other under a rank-one transition, made for all chunks at once, before any walk along them.

With D[t, s] the gates between two positions and e, w, q, k as in `schedules.delta`: `inverse` = X of I + M, where M = D ∘ e wᵀ below the
diagonal; `weights` = D ∘ q kᵀ on it and below, each source's weight in it; and, where what is erased is not what is written, `known` = X N,
N = D ∘ e kᵀ below the diagonal, and `overlaps` = D ∘ q wᵀ. Beside them what the gates leave of a state from the chunk's start up to each
position, `entering`, and from each position to the chunk's end, `written_on` with the source's weight and `erased_on` without: the walk
computes no exponential.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import mul

from contractor.schedules.parts.beside import weights_of
from contractor.schedules.parts.chunk import Place
from contractor.schedules.parts.factors import rates
from contractor.schedules.parts.form import Form, Matrix
from contractor.schedules.parts.inverse import inverse
from contractor.schedules.parts.support import directed
from contractor.schedules.parts.walk import Layout, Rows, Walk, inner, sizes, stream_of, table
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel, Span
from contractor.tile.ops import ACC, Buffer, Expr, Precision, cast, cdiv, dot, iota, number, rename, select, size

SAYS = "inverse of I + M, M[t, s] = D[t, s] · e[t] · w[s] for s < t of one chunk; weights[t, s] = D[t, s] · query[t] · key[s] for s ≤ t"
SCALARS = ("scale", "T", "B", "SEQUENCES")


def pairs_kernel(form: Form, layout: Layout) -> Kernel:
    """What positions of one chunk are to each other, for every chunk."""
    k = Builder("chunk_pairs", SAYS, sizes(layout), scalars=SCALARS)
    each_chunk(k, form, layout, one_chunk)
    return k.done()


def each_chunk(k: Builder, form: Form, layout: Layout, body: Callable[[Place, Rows], None]) -> None:
    """One program a chunk and head, heads fastest; of packed sequences as many as one would have, were all of one length."""
    blocks = cdiv(size("T"), size("CHUNK") * size("SEQUENCES")) if form.packed else cdiv(size("T"), size("CHUNK"))
    program = k.program(blocks * size("H") * size("SEQUENCES" if form.packed else "B"))
    block = k.let("block", program // size("H") % blocks)
    stream = k.let("stream", program // (blocks * size("H")) * size("H") + program % size("H"))
    c = alone(k, form, layout, stream_of(k, form, stream, number(0), None, None))
    if not form.packed:
        body(c, c.rows(block))
        return
    chunks = k.let("chunks", cdiv(c.w.length, size("CHUNK")))
    with k.loop("step", (chunks + (blocks - 1) - block) // blocks) as step:
        body(c, c.rows(k.let("chunk", block + step * blocks)))


def alone(k: Builder, form: Form, layout: Layout, w: Walk) -> Place:
    """The place of a program that has all columns, and no skip."""
    n, lane = inner(k, layout), k.let("lane", iota("t"))
    seen, fixed = k.let("seen", directed(form, lane, rename(lane, t="s"))), rates(k, form, w, {})
    return Place(k, form, layout, w, n, n, lane, seen, fixed, None, None)


def one_chunk(c: Place, here: Rows) -> None:
    """The pairs of one chunk, stored."""
    k, (step,) = c.k, c.form.matrices
    fades = bare(c).factors(here)
    rows = tuple(weights_of(k, c.form.weighing("source"), c.w, here, "s"))
    key, query = c.tile("key", "s", here), c.tile("query", "t", here)
    erase, write = erased(c, step, here, key)
    strict = k.let("before", c.lane > rename(c.lane, t="s"))
    k.note("what each row reads of the rows before it in its chunk")
    own = rows if step.tied else ()
    below = k.let("below", select(strict, product(c, erase, write, fades.within, *own), 0.0))
    solved = inverse(k, below, c.lane, c.layout.precision or "tf32")
    store_pairs(c, here, "inverse", solved)
    k.note("what each row reads of the rows up to it")
    reading = k.let("reading", select(c.seen, product(c, query, key, fades.within, *rows), 0.0))
    store_pairs(c, here, "weights", reading)
    if not step.tied:
        known = select(strict, product(c, erase, key, fades.within, *rows), 0.0)
        precision: Precision = c.layout.precision or "tf32"
        store_pairs(c, here, "known", dot(rename(solved, s="u"), rename(k.let("earlier", known), t="u"), precision=precision))
        store_pairs(c, here, "overlaps", select(c.seen, product(c, query, write, fades.within), 0.0))
    if fades.enter is not None and fades.leave is not None:
        k.store(passing(k, "entering"), c.w.batch, c.w.head, here.span("t"), value=fades.enter)
    if rows or fades.leave is not None:
        parts = (*(() if fades.leave is None else (fades.leave,)), *rows)
        k.store(passing(k, "written_on"), c.w.batch, c.w.head, here.span("s"), value=reduce(mul, parts))
    if not step.tied and fades.leave is not None:
        k.store(passing(k, "erased_on"), c.w.batch, c.w.head, here.span("s"), value=fades.leave)


def product(c: Place, left: Expr, right: Expr, *factors: Expr | None) -> Expr:
    """left · right over n, times what is not None."""
    whole: Expr = dot(left, right, precision=c.layout.precision)
    for factor in factors:
        whole = whole if factor is None else whole * factor
    return whole


def store_pairs(c: Place, here: Rows, name: str, value: Expr) -> None:
    """Stores one tile of pairs, in the operands' dtype."""
    target, rows, columns = pairs_of(c, here, name)
    c.k.store(target, c.w.batch, rows, c.w.head, columns, value=cast(value, target.dtype))


def pairs_of(c: Place, here: Rows, name: str) -> tuple[Buffer, Span, Span]:
    """Where a chunk's pairs are: the tensor, its rows t and its columns s."""
    buffer = c.k.buffer(name, "B", "T", "H", "CHUNK", dtype="key", via=c.layout.via)
    return buffer, here.span("t"), Span("s", number(0), rename(c.lane, t="s"))


def passing(k: Builder, name: str) -> Buffer:
    """What gates leave of what passes a chunk's border, at each position."""
    return k.buffer(name, "B", "H", "T", dtype=ACC)


def bare(c: Place) -> Place:
    """The place of the same rows without weights."""
    return replace(c, form=replace(c.form, weights=()))


def erased(c: Place, step: Matrix, here: Rows, key: Expr) -> tuple[Expr, Expr]:
    """What a rank-one step reads [t, n], and the key that it erases at [s, n], in the operands' dtype."""
    if step.tied:
        return rename(key, s="t"), key
    return side(c, f"{step.name}_erase", "t", here), side(c, f"{step.name}_key", "s", here)


def side(c: Place, name: str, axis: str, here: Rows) -> Expr:
    """One of the vectors of a rank-one step."""
    source, head = table(c.k, c.w, name, "N", via=c.layout.via)
    return cast(c.k.load(f"{name}_tile", source, c.w.batch, here.span(axis), head, c.n), "key")
