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
from contractor.schedules.parts.form import Gate
from contractor.schedules.parts.walk import Layout, Rows, Walk, head_of, table
from contractor.tile.build import Builder
from contractor.tile.ops import ACC, Expr, Precision, Span, cast, dot, exp2, most, rename, select, total

LEVELS = 6  # of a chunk of 64 rows; of a smaller one the last levels have no pairs
LEAST = -1e4  # base 2


@dataclass(frozen=True, slots=True, eq=False)
class Fading:
    """The gates of one chunk, base 2, over [u, channel]: the sum of `parts` (one tile, or two of 16 bits that keep a float32's leading
    16), and `whole` in the accumulators' dtype. row: the chunk's places [t]. late: a row's own gate is not crossed."""

    k: Builder
    layout: Layout
    parts: tuple[Expr, ...]
    whole: Expr
    row: Expr
    late: bool

    @property
    def other(self) -> Expr:
        """The chunk's places [u]."""
        return rename(self.row, t="u")

    def over(self, name: str, crossed: Expr) -> Expr:
        """The factor [t, channel] of the gates of the rows u that each row crosses, `crossed` [t, u]."""
        zeros_and_ones = self.k.let(f"{name}_crossed", cast(select(crossed, 1.0, 0.0), self.parts[0]))
        log: Expr | None = None
        for part in reversed(self.parts):
            log = dot(zeros_and_ones, part, into=log, precision=self.precision)
        assert log is not None
        return self.k.let(name, exp2(log))

    @property
    def precision(self) -> Precision | None:
        """Of products with the gates."""
        return self.layout.precision or ("ieee" if self.parts[0].dtype == ACC else None)

    def first(self) -> Expr:
        """From the chunk's first row up to each row, its own gate among them unless it is late [t, channel]."""
        return self.over("from_first", self.other < self.row if self.late else self.row >= self.other)

    def last(self) -> Expr:
        """From behind each row to the chunk's end [t, channel]."""
        return self.over("to_last", self.other > self.row)

    def middle(self, half: Expr) -> Expr:
        """Between each row and the middle of its block of twice `half` rows [t, channel]."""
        near = (self.row ^ self.other) < half
        second = (self.row & half) > 0
        crossed = near & ((self.other > self.row) ^ second)
        if self.late:
            crossed = crossed & ((self.row ^ self.other) > 0)
        return self.over("to_middle", crossed)

    def chunk(self) -> Expr:
        """Across the whole chunk [channel]."""
        return self.k.let("fade", exp2(total(self.whole, "u")))


def fading(k: Builder, layout: Layout, w: Walk, gate: Gate, rate: Expr | None, here: Rows, channel: Span, like: Expr) -> Fading:
    """The gates of a chunk's rows. rate: of a fixed decay, for each channel. like: a tile of the operands, whose dtype products take."""
    k.axis("u", dict(k.sizes)["t"])
    k.note("the gates of the chunk, base 2")
    if rate is None:
        source, head = table(k, w, gate.name, channel.axis.upper(), dtype=ACC)
        natural = k.load(f"{gate.name}_natural", source, w.batch, here.span("u"), head, channel)
        whole = k.let(f"{gate.name}_steps", most(natural * LOG2E, LEAST))
    else:
        whole = k.let(f"{gate.name}_steps", select(rename(here.inside, t="u"), rate, 0.0))
    parts: tuple[Expr, ...] = (whole,)
    if layout.clamped or layout.split:
        high = k.let(f"{gate.name}_high", cast(whole, like))
        parts = (high, k.let(f"{gate.name}_low", cast(whole - cast(high, ACC), like)))
    return Fading(k, layout, parts, whole, here.place, bool(gate.shift))


def rate_of(k: Builder, w: Walk, gate: Gate, channel: Span) -> Expr | None:
    """The base-2 log of a fixed decay for each channel, None of another gate."""
    if not gate.fixed:
        return None
    count, head = head_of(w, gate.name)
    natural = k.load(f"{gate.name}_natural", k.buffer(gate.name, count, channel.axis.upper(), dtype=ACC), head, channel)
    return k.let(f"{gate.name}_rate", most(natural * LOG2E, LEAST))
