"""How a gate for each channel fades between the rows of one chunk, without a bound on the gate and without a positive exponent.

Every pair of rows is anchored at the middle of the smallest dyadic block that holds both. At level h = 1, 2, 4, … the chunk is cut into
blocks of 2h rows: a row of a second half fades from its block's middle on, a row of a first half up to it, and the two factors together
are the pair's. Two rows belong to level h exactly if h ≤ t xor s < 2h. The log of a factor is a sum of gates, a product of a tile of
zeros and ones with the gates: never a difference, so a gate of −inf (taken as LEAST, whose factor is 0 in every precision) costs its
neighbours nothing, and a later row's gate cannot change an earlier row's factor.
"""

from __future__ import annotations

from dataclasses import dataclass

from contractor.schedules.parts.factors import LOG2E
from contractor.schedules.parts.form import Form, Gate
from contractor.schedules.parts.walk import Layout, Rows, Walk, head_of, table
from contractor.tile.build import Builder
from contractor.tile.ops import ACC, I32, Expr, Precision, Span, cast, dot, exp2, most, number, rename, select, total

LEVELS = 6  # of a chunk of 64 rows; of a smaller one the last levels have no pairs
LEAST = -1e4  # base 2


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Blocks of 2h rows in halves of h = `half`: the first row of each row's half [t], and whether it is a second one. Tiles over two rows
    are made of these alone, so that none is the same at every level: the compiler would keep it in registers."""

    half: Expr
    block: Expr
    second: Expr

    @property
    def together(self) -> Expr:
        """Rows of one half [t, s]: their pairs belong to levels below."""
        return self.block.same(rename(self.block, t="s"))

    @property
    def across(self) -> Expr:
        """Rows on both sides of a middle [t, s]: the pairs of the level."""
        return (self.block ^ self.half).same(rename(self.block, t="s"))


def level_of(k: Builder, number: Expr, row: Expr) -> Level:
    """Level number 0, 1, … of some rows [t]."""
    half = k.let("half", 1 << number)
    return Level(half, k.let("half_block", row - (row & (half - 1))), k.let("second", (row & half) > 0))


@dataclass(frozen=True, slots=True, eq=False)
class Fading:
    """The gates of one chunk, base 2, over [u, channel]: the sum of `parts` (one tile, or two of 16 bits that keep 16 binary digits), and
    `whole` in the accumulators' dtype. row: the chunk's places [t]. late: a row's own gate is not crossed. future: sources come after
    their targets."""

    k: Builder
    layout: Layout
    parts: tuple[Expr, ...]
    whole: Expr
    row: Expr
    late: bool
    future: bool

    @property
    def precision(self) -> Precision | None:
        """Of products with the gates."""
        return self.layout.precision or ("ieee" if self.parts[0].dtype == ACC else None)

    @property
    def upto(self) -> Expr:
        """Where the gates up to each row stop [t]: behind its own, unless that is not crossed."""
        return self.row if self.late else self.row + 1

    def over(self, name: str, crossed: Expr) -> Expr:
        """The factor [t, channel] of the gates of the rows u that each row crosses, `crossed` [t, u]."""
        zeros_and_ones = self.k.let(f"{name}_crossed", cast(select(crossed, 1.0, 0.0), self.parts[0]))
        log: Expr | None = None
        for part in reversed(self.parts):
            log = dot(zeros_and_ones, part, into=log, precision=self.precision)
        assert log is not None
        return self.k.let(name, exp2(log))

    def enter(self) -> Expr:
        """Of the state that enters the chunk, up to each row [t, channel]."""
        return self.last() if self.future else self.first()

    def leave(self) -> Expr:
        """Of each row, up to where the state leaves the chunk [t, channel]."""
        return self.first() if self.future else self.last()

    def first(self) -> Expr:
        """From the chunk's first row up to each row."""
        return self.over("from_first", rename(self.row, t="u") < self.upto)

    def last(self) -> Expr:
        """From behind each row to the chunk's end. (Triton 3.6 compiles this wrongly where it is kept as the middles are.)"""
        return self.over("to_last", rename(self.row, t="u") > self.row)

    def middle(self, level: Level, held: Expr) -> Expr:
        """Between each row and the middle of its block of the level [t, channel]."""
        begin = self.k.let("crossed_from", select(level.second, level.block, self.row + 1))
        stop = self.k.let("crossed_to", kept_at(select(level.second, self.upto, level.block + level.half), held))
        other = rename(self.row, t="u")
        return self.over("to_middle", (other >= begin) & (other < stop))

    def chunk(self) -> Expr:
        """Across the whole chunk [channel]."""
        return self.k.let("fade", exp2(total(self.whole, "u")))


def held_rows(k: Builder, scores: Expr) -> Expr:
    """Something of each row's scores [t, s] whose only use is where it is: with the threads that hold the row's products (`kept_at`)."""
    return k.let("held", cast(total(scores, "s"), I32))


def kept_at(bound: Expr, held: Expr) -> Expr:
    """A bound for each row, the same number, which is to be made by the threads that hold the rows' products: so are tiles compared with
    it then, and a product takes them from where they are. Without that they would be made elsewhere and pass through shared memory."""
    return select((held & number(1)) > 1, 0, bound)


def fading(k: Builder, layout: Layout, w: Walk, form: Form, rate: Expr | None, here: Rows, channel: Span, like: Expr) -> Fading:
    """The gates of a chunk's rows. rate: of a fixed decay, for each channel. like: a tile of the operands, whose dtype products take."""
    k.axis("u", dict(k.sizes)["t"])
    (gate,) = form.gates
    k.note("the gates of the chunk, base 2")
    if rate is None:
        source, head = table(k, w, gate.name, channel.axis.upper(), dtype=ACC, via=layout.via)
        natural = k.load(f"{gate.name}_natural", source, w.batch, here.span("u"), head, channel)
        whole = k.let(f"{gate.name}_steps", most(natural * LOG2E, LEAST))
    else:
        whole = k.let(f"{gate.name}_steps", select(rename(here.inside, t="u"), rate, 0.0))
    parts: tuple[Expr, ...] = (whole,)
    if layout.clamped or layout.split:
        high = k.let(f"{gate.name}_high", cast(whole, like))
        parts = (high, k.let(f"{gate.name}_low", cast(whole - cast(high, ACC), like)))
    return Fading(k, layout, parts, whole, here.place, bool(gate.shift), form.future)


def rate_of(k: Builder, w: Walk, gate: Gate, channel: Span) -> Expr | None:
    """The base-2 log of a fixed decay for each channel, None of another gate."""
    if not gate.fixed:
        return None
    count, head = head_of(w, gate.name)
    natural = k.load(f"{gate.name}_natural", k.buffer(gate.name, count, channel.axis.upper(), dtype=ACC), head, channel)
    return k.let(f"{gate.name}_rate", most(natural * LOG2E, LEAST))
