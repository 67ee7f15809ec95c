"""Which rows, which heads and which columns a program owns, and how the tensors of a contraction are addressed."""

from __future__ import annotations

from dataclasses import dataclass

from contractor.schedules.parts.form import Form, heads_name
from contractor.tile.build import Builder
from contractor.tile.ops import I32, I64, Buffer, Expr, Precision, Span, Via, cast, cdiv, iota, number, rename, size


@dataclass(frozen=True, slots=True)
class Layout:
    """How the axes meet their blocks: padded axes have blocks wider than they are and need bounds; tiles come through host
    descriptors (`via`) where rows are aligned and nothing is padded. precision: how float32 products are computed. clamped:
    operands are of 16 bits, so a gate that closes the past may be summed as a large number instead of being counted. split: what is
    rounded to 16 bits on its way through the state is taken in two parts, so that the result is right to float32. segmented: a
    sequence is cut into SEGMENTS, each walked over by a program of its own. summed: running sums of gates are read, not made."""

    padded_n: bool = False
    padded_p: bool = False
    via: Via = "pointer"
    precision: Precision | None = None
    clamped: bool = False
    split: bool = False
    segmented: bool = False
    summed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """One program: a sequence, a head, one block of columns and, where rows are split too, one block of rows or one segment of them.

    batch: where the sequence stands in the tensors; begin: its first row there, None where that is 0; length: its positions. heads: for
    each grouped buffer the size that counts its heads and the program's head in it.
    """

    sequence: Expr
    batch: Expr
    begin: Expr | None
    length: Expr
    segment: Expr | None
    head: Expr
    column_block: Expr
    row_block: Expr | None
    heads: dict[str, tuple[str, Expr]]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A block of positions over the axis t: the first, each one's place in the sequence (also in 64 bits, for addresses), and which
    are inside the sequence."""

    first: Expr
    place: Expr
    row: Expr
    inside: Expr

    def span(self, axis: str) -> Span:
        """The rows as one dimension of a buffer, under the tile axis t or s."""
        return Span(axis, self.first, rename(self.row, t=axis), rename(self.inside, t=axis))


def sizes(layout: Layout) -> dict[str, str]:
    """Each tile axis and the constant that holds its block size."""
    return {"t": "CHUNK", "s": "CHUNK", "n": "BLOCK_N" if layout.padded_n else "N", "p": "BLOCK_P"}


def walk(k: Builder, form: Form, layout: Layout, split_rows: bool = False) -> Walk:
    """Column blocks fastest (they share their rows in the cache), then blocks of rows or segments, heads, sequences."""
    columns = column_blocks(layout)
    row_blocks = cdiv(size("T"), size("CHUNK")) if split_rows else size("SEGMENTS") if layout.segmented else number(1)
    program = k.program(columns * row_blocks * size("H") * size("SEQUENCES" if form.packed else "B"))
    column_block = k.let("column_block", program % columns)
    rest = program // columns
    row_block = k.let("row_block", rest % row_blocks) if split_rows else None
    segment = k.let("segment", rest % row_blocks) if layout.segmented and not split_rows else None
    return stream_of(k, form, k.let("stream", rest // row_blocks), column_block, row_block, segment)


def stream_of(k: Builder, form: Form, stream: Expr, column_block: Expr, row_block: Expr | None, segment: Expr | None) -> Walk:
    """The sequence and the head that a number stands for, heads fastest."""
    head = k.let("head", stream % size("H"))
    heads = {buffer: (heads_name(buffer), group_head(k, buffer, head)) for buffer in form.grouped}
    sequence = k.let("sequence" if form.packed else "batch", stream // size("H"))
    if not form.packed:
        return Walk(sequence, sequence, None, size("T"), segment, head, column_block, row_block, heads)
    k.note("the sequence's rows among those of all")
    starts = k.buffer("starts", "BOUNDS", dtype=I64)
    begin = k.load("begin", starts, sequence)
    length = k.let("length", cast(k.load("end", starts, sequence + 1) - begin, I32))
    return Walk(sequence, number(0), begin, length, segment, head, column_block, row_block, heads)


def column_blocks(layout: Layout) -> Expr:
    """How many blocks the columns make."""
    return cdiv(size("P"), size("BLOCK_P")) if layout.padded_p else size("P") // size("BLOCK_P")


def group_head(k: Builder, buffer: str, head: Expr) -> Expr:
    """The head of a grouped buffer: head h reads h // (H / count)."""
    return k.let(f"{buffer}_head", head // (size("H") // size(heads_name(buffer))))


def inner(k: Builder, layout: Layout) -> Span:
    """All of n."""
    column = k.let("n", iota("n"))
    return Span("n", number(0), column, column < size("N") if layout.padded_n else None)


def outer(k: Builder, layout: Layout, w: Walk) -> Span:
    """The program's block of p."""
    first = w.column_block * size("BLOCK_P")
    column = k.let("p", first + iota("p"))
    return Span("p", first, column, column < size("P") if layout.padded_p else None, w.column_block)


def rows(k: Builder, w: Walk, lane: Expr, block: Expr, prefix: str = "") -> Rows:
    """Block number `block` of the sequence."""
    first = k.let(f"{prefix}first_row", block * size("CHUNK"))
    place = k.let(f"{prefix}place", first + lane)
    row = cast(place, I64) if w.begin is None else w.begin + place
    return Rows(first, place, k.let(f"{prefix}row", row), k.let(f"{prefix}inside", place < w.length))


def head_of(w: Walk, buffer: str) -> tuple[str, Expr]:
    """The size that counts a buffer's heads, and the program's head in it."""
    return w.heads.get(buffer, ("H", w.head))


def table(k: Builder, w: Walk, name: str, *features: str, dtype: str | None = None, via: Via = "pointer") -> tuple[Buffer, Expr]:
    """A tensor [B, T, heads, *features] and the program's head in it."""
    count, head = head_of(w, name)
    return k.buffer(name, "B", "T", count, *features, dtype=dtype, via=via), head
