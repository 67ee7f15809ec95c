"""Small kernels that several tests share, written as lowerings write them."""

from __future__ import annotations

from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel, Via
from contractor.tile.ops import (
    ACC,
    I32,
    I64,
    Expr,
    Span,
    cast,
    cdiv,
    cumsum,
    dot,
    exp2,
    iota,
    least,
    most,
    number,
    rename,
    select,
    size,
    total,
)

LOG2E = 1.4426950408889634
SAYS = "y[t, p] = scale · Σ over s and n of L[t, s] · q[t, n] · k[s, n] · v[s, p]"


def columns(k: Builder, axis: str, block: Expr) -> Span:
    """A block of p (or n) that divides it."""
    constant = size(f"BLOCK_{axis.upper()}")
    return Span(axis, block * constant, k.let(axis, block * constant + iota(axis)), None, block)


def one_pass(via: Via = "pointer", gated: bool = False, precision: str | None = None) -> Kernel:
    """The causal (or gated) chunked form, the state in registers; ragged T."""
    k = Builder("one_pass", SAYS, {"t": "CHUNK", "s": "CHUNK", "n": "N", "p": "BLOCK_P"}, scalars=("scale", "T", "B"))
    blocks = size("P") // size("BLOCK_P")
    program = k.program(blocks * size("H") * size("B"))
    block, stream = k.let("block", program % blocks), k.let("stream", program // blocks)
    head, batch = k.let("head", stream % size("H")), k.let("batch", stream // size("H"))
    q, key, v, y = (k.buffer(name, "B", "T", "H", dim, via=via) for name, dim in (("q", "N"), ("k", "N"), ("v", "P"), ("y", "P")))
    lane = k.let("lane", iota("t"))
    n, p = Span("n", number(0), k.let("n", iota("n"))), columns(k, "p", block)
    seen = k.let("seen", lane >= rename(lane, t="s"))
    state = k.full("state", "n", "p")
    with k.loop("chunk", cdiv(size("T"), size("CHUNK"))) as chunk:
        first = k.let("first_row", chunk * size("CHUNK"))
        row, inside = k.let("row", cast(first, I64) + lane), k.let("inside", first + lane < size("T"))
        targets, sources = Span("t", first, row, inside), Span("s", first, rename(row, t="s"), rename(inside, t="s"))
        query = k.load("q_tile", q, batch, targets, head, n)
        keys, values = k.load("k_tile", key, batch, sources, head, n), k.load("v_tile", v, batch, sources, head, p)
        enter = leave = fade = within = None
        if gated:
            natural = k.load("natural", k.buffer("gate", "B", "T", "H", dtype=ACC), batch, targets, head)
            sums = k.let("sums", cumsum(natural * LOG2E, "t"))
            whole = k.let("whole", total(natural * LOG2E, "t"))
            within = k.let("within", exp2(select(seen, sums - rename(sums, t="s"), float("-inf"))))
            enter, leave, fade = exp2(sums), exp2(whole - rename(sums, t="s")), exp2(whole)
        k.note("inside the chunk: scores under the mask")
        scores = dot(query, keys, precision=precision)
        weights = k.let("weights", select(seen, scores, 0.0) if within is None else scores * within)
        k.note("from earlier chunks: the query reads the carried state")
        carried = dot(query, cast(state, query), precision=precision)
        carried = k.let("carried", carried if enter is None else carried * enter)
        out = k.let("out", dot(cast(weights, values), values, into=carried, precision=precision))
        k.store(y, batch, targets, head, p, value=cast(out * size("scale", ACC), y.name))
        leaving = values if leave is None else k.let("leaving", cast(cast(values, ACC) * leave, values))
        k.update(state, dot(keys, leaving, into=state if fade is None else state * fade, precision=precision))
    return k.done()


def packed() -> Kernel:
    """Running sums within packed sequences, chunk by chunk backwards: loop counts differ between programs."""
    k = Builder("packed", "y[t] = Σ over the rows of t's sequence from t on of x", {"t": "CHUNK", "n": "N"}, scalars=("S",))
    sequence = k.program(size("S"))
    offsets = k.buffer("offsets", "OFFSETS", dtype=I32)
    start, stop = k.load("start", offsets, sequence), k.load("stop", offsets, sequence + 1)
    length = k.let("length", stop - start)
    lane, n = k.let("lane", iota("t")), Span("n", number(0), iota("n"))
    later = k.full("later", "n")
    chunks = k.let("chunks", cdiv(length, size("CHUNK")))
    with k.loop("step", chunks) as step:
        chunk = k.let("chunk", chunks - 1 - step)
        place = k.let("place", chunk * size("CHUNK") + lane)
        first = k.let("first_row", start + chunk * size("CHUNK"))
        rows = Span("t", first, k.let("row", cast(first, I64) + lane), k.let("inside", place < length))
        x = cast(k.load("x_tile", k.buffer("x", "T", "N"), rows, n), ACC)
        here = k.let("here", total(x, "t"))
        k.store(k.buffer("y", "T", "N", dtype="x"), rows, n, value=cast(later + (here - cumsum(x, "t")) + x, "x"))
        k.update(later, later + here)
    k.store(k.buffer("sums", "S", "N", dtype=ACC), sequence, n, value=later)
    return k.done()


def transition() -> Kernel:
    """A state under a matrix at every position, transposed in memory at the end: tiles over three axes and permuted stores."""
    k = Builder("transition", "state ← A[t] · state + u[t]", {"n": "N", "m": "N", "p": "P"}, scalars=("T",))
    batch = k.program(size("B"))
    n, m, p = (Span(axis, number(0), k.let(axis, iota(axis))) for axis in "nmp")
    begin = k.buffer("begin", "B", "P", "N", dtype=ACC)
    state = k.carry("state", k.load("given", begin, batch, p, n, order=("n", "p")))
    with k.loop("t", size("T")) as t:
        matrix = cast(k.load("matrix", k.buffer("A", "B", "T", "N", "N"), batch, t, n, m), ACC)
        update = cast(k.load("row", k.buffer("u", "B", "T", "N", "P", dtype="A"), batch, t, n, p), ACC)
        before = rename(k.let("before", state), n="m")
        k.update(state, k.let("after", total(matrix * before, "m")) + update)
    k.store(k.buffer("end", "B", "P", "N", dtype=ACC), batch, p, n, value=state)
    return k.done()


def window() -> Kernel:
    """Each block of rows sums the blocks that a window of lags reaches: first and count of the loop depend on the program."""
    k = Builder("window", "y[t] = Σ over s with 0 ≤ t − s < W of x[s]", {"t": "CHUNK", "s": "CHUNK"}, scalars=("T", "W"))
    block = k.program(cdiv(size("T"), size("CHUNK")))
    lane = iota("t")
    first = k.let("first_row", block * size("CHUNK"))
    row = k.let("row", first + lane)
    begin = k.let("begin", most(0, first - size("W") + 1) // size("CHUNK"))
    x, y = k.buffer("x", "T", dtype=ACC), k.buffer("y", "T", dtype=ACC)
    out = k.full("out", "t")
    with k.loop("step", least(block, block - begin) + 1) as step:
        source = k.let("source", (begin + step) * size("CHUNK") + rename(lane, t="s"))
        tile = k.load("x_tile", x, Span("s", (begin + step) * size("CHUNK"), source, source < size("T")))
        seen = (row >= source) & (row - source < size("W"))
        k.update(out, out + total(select(seen, tile, 0.0), "s"))
    k.store(y, Span("t", first, row, row < size("T")), value=out)
    return k.done()


def running() -> Kernel:
    """A running sum with its last value carried as a single number, one row a step where rows end."""
    k = Builder("running", "y[t] = Σ over s ≤ t of x[s] / T", {"t": "CHUNK"}, scalars=("T",))
    batch = k.program(size("B"))
    sofar = k.full("sofar")
    x, y = k.buffer("x", "B", "T"), k.buffer("y", "B", "T", dtype=ACC)
    whole = k.let("whole", size("T") // size("CHUNK"))
    with k.loop("chunk", whole) as chunk:
        first = k.let("first_row", chunk * size("CHUNK"))
        row = k.let("row", first + iota("t"))
        rows = Span("t", first, row, row < size("T"))
        tile = k.load("x_tile", x, batch, rows)
        k.store(y, batch, rows, value=(cumsum(tile, "t") + sofar) / cast(size("T"), ACC))
        k.update(sofar, sofar + total(tile, "t"))
    with k.loop("rest", size("T") - whole * size("CHUNK")) as rest:
        last = k.let("last", cast(size("T") - size("T") % size("CHUNK") + rest, I64))
        k.update(sofar, sofar + cast(k.load("x_row", x, batch, last), ACC))
        k.store(y, batch, last, value=sofar / size("T", ACC))
    return k.done()


def gathered() -> Kernel:
    """A table read at the lag of every pair of rows: a span over two axes."""
    k = Builder("gathered", "y[t] = Σ over s of table[t − s] · x[s]", {"t": "CHUNK", "s": "CHUNK"}, scalars=("T",))
    block = k.program(cdiv(size("T"), size("CHUNK")))
    first = k.let("first_row", block * size("CHUNK"))
    row = k.let("row", first + iota("t"))
    x, y, table = k.buffer("x", "T"), k.buffer("y", "T", dtype=ACC), k.buffer("table", "LAGS", dtype=ACC)
    out = k.full("out", "t")
    with k.loop("step", cdiv(size("T"), size("CHUNK"))) as step:
        start = k.let("start", step * size("CHUNK"))
        source = k.let("source", start + iota("s"))
        lag = k.let("lag", row - source)
        weights = k.load("weights", table, Span(("t", "s"), number(0), lag, (lag >= 0) & (lag < size("LAGS"))))
        tile = k.load("x_tile", x, Span("s", start, source, source < size("T")))
        k.update(out, out + total(weights * tile, "s"))
    k.store(y, Span("t", first, row, row < size("T")), value=out)
    return k.done()


def small_dot() -> Kernel:
    """One product of two whole matrices."""
    k = Builder("small_dot", "c[t, p] = Σ over n of a[t, n] · b[n, p]", {"t": "T", "n": "N", "p": "P"})
    batch = k.program(size("B"))
    t, n, p = (Span(axis, number(0), k.let(axis, iota(axis))) for axis in "tnp")
    a = k.load("a_tile", k.buffer("a", "B", "T", "N"), batch, t, n)
    b = k.load("b_tile", k.buffer("b", "B", "N", "P"), batch, n, p)
    k.store(k.buffer("c", "B", "T", "P", dtype=ACC), batch, t, p, value=dot(a, b))
    return k.done()


KERNELS = {
    "one_pass": one_pass,
    "gated": lambda: one_pass(gated=True),
    "described": lambda: one_pass("descriptor"),
    "packed": packed,
    "transition": transition,
    "window": window,
    "running": running,
    "gathered": gathered,
    "dot": small_dot,
}
