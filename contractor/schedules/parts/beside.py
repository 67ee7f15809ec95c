"""What a kernel reads beside query, key, value and gates: the weights of rows, and how much of a target's own value skips past."""

from __future__ import annotations

from collections.abc import Iterator

from contractor.schedules.parts.walk import Rows, Walk, head_of, table
from contractor.tile.build import Builder
from contractor.tile.ops import ACC, Expr


def weights_of(k: Builder, names: tuple[str, ...], w: Walk, here: Rows, axis: str, prefix: str = "") -> Iterator[Expr]:
    """What each of some rows is multiplied by, one buffer after the other."""
    for name in names:
        source, head = table(k, w, name, dtype=ACC)
        yield k.load(f"{prefix}{name}_row", source, w.batch, here.span(axis), head)


def skip_of(k: Builder, w: Walk) -> Expr:
    """What a target's own value is multiplied by before it is added."""
    count, head = head_of(w, "skip")
    return k.load("own_share", k.buffer("skip", count, dtype=ACC), head)
