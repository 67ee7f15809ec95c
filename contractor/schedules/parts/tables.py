"""Entrywise factors of a mask, read from tensors at places."""

from __future__ import annotations

from contractor.program.place import Place, evaluate
from contractor.schedules.parts.form import Form, Table
from contractor.schedules.parts.walk import Rows, Walk, head_of
from contractor.tile.build import Builder
from contractor.tile.ops import ACC, Expr, Span, number, rename, size


def looked_up(k: Builder, form: Form, w: Walk, table: Table, target: Rows, source: Rows, prefix: str, axis: str = "s") -> Expr:
    """What a table holds for every pair (t, s), or for each target and its one source (axis t); 0 outside it. A transposed mask is read
    with the two exchanged."""
    count, head = head_of(w, table.name)
    dims = tuple(f"{table.name.upper()}_{axis}" for axis in ("ROWS", "COLUMNS")[: len(table.index)])
    buffer = k.buffer(table.name, *(("B",) if table.batched else ()), count, *dims, dtype=ACC)
    at, by = target.row, rename(source.row, t=axis)
    later, earlier = (by, at) if form.future else (at, by)
    spans = tuple(span(place, later, earlier, extent) for place, extent in zip(table.index, dims, strict=True))
    return k.load(
        f"{prefix}{table.name}_tile",
        buffer,
        *((w.batch,) if table.batched else ()),
        head,
        *spans,
        order=("t", "s") if axis == "s" else None,
    )


def span(place: Place, later: Expr, earlier: Expr, extent: str) -> Span:
    """One dimension of a table: the place, inside the table."""
    index = evaluate(place, later, earlier, size("T"), None, None, None)
    return Span(index.axes, number(0), index, (index >= 0) & (index < size(extent)))
