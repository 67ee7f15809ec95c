"""The state where a walk begins and where it ends: given and asked for, or left by the segments before."""

from __future__ import annotations

from contractor.schedules.parts.form import Form
from contractor.schedules.parts.walk import Layout, Walk
from contractor.tile.build import Builder
from contractor.tile.expression import Tile
from contractor.tile.ops import ACC, I64, Buffer, Expr, Span, cast, cdiv, least, size


def streams(form: Form) -> str:
    """The size that counts sequences: packed ones, or the batch."""
    return "SEQUENCES" if form.packed else "B"


def state_dims(form: Form) -> tuple[str, ...]:
    """The dimensions of a state for each sequence."""
    return (streams(form), "H", "N", "P")


def segment_dims(form: Form, *features: str) -> tuple[str, ...]:
    """The dimensions of what there is for each segment."""
    return (streams(form), "H", "SEGMENTS", *features)


def segment_fades(k: Builder, form: Form, n: Span, p: Span) -> tuple[Buffer, tuple[Span, ...]]:
    """What each segment leaves of what passes it, for each channel that a gate differs over: the tensor, and the program's channels."""
    sides = {side for gate in form.gates for side in gate.features}
    channels = tuple(span for span in (n, p) if span.axis in sides)
    return k.buffer("fades", *segment_dims(form, *(span.axis.upper() for span in channels)), dtype=ACC), channels


def entering(k: Builder, form: Form, layout: Layout, w: Walk, n: Span, p: Span) -> Tile:
    """The carried state, before the program's first position."""
    if form.initial:
        source, where, columns = place_of(k, form, w, p, "initial")
        state = k.carry("state", cast(k.load("initial_tile", source, where, w.head, n, columns), ACC))
    else:
        state = k.full("state", "n", "p")
    if layout.segmented:
        assert w.segment is not None
        k.note("what the segments before have left: each one's own state, faded by those after it")
        segments = k.buffer("segments", *segment_dims(form, "N", "P"), dtype=ACC)
        with k.loop("earlier", walked_before(form, w)) as earlier:
            number = size("SEGMENTS") - 1 - earlier if form.future else earlier
            own = k.load("segment_tile", segments, w.sequence, w.head, number, n, p)
            faded = state
            if form.gates:
                fades, channels = segment_fades(k, form, n, p)
                faded = state * k.load("segment_fade", fades, w.sequence, w.head, number, *channels)
            k.update(state, faded + own)
    return state


def place_of(k: Builder, form: Form, w: Walk, p: Span, name: str) -> tuple[Buffer, Expr, Span]:
    """Where a sequence's state is: the tensor, the row of it, and the program's columns, none if there is no such row."""
    if not form.pooled:
        dtype = ACC if name == "final" and not form.initial else "initial"
        return k.buffer(name, *state_dims(form), dtype=dtype), w.sequence, p
    slot = k.load(f"{name}_slot", k.buffer("slots", streams(form), dtype=I64), w.sequence)
    return k.buffer("pool", "SLOTS", "H", "N", "P"), slot, Span("p", p.first, p.index, (p.index < size("P")) & (slot >= 0))


def leaving(k: Builder, form: Form, layout: Layout, w: Walk, n: Span, p: Span, state: Expr) -> None:
    """Stores the state after the last position, by the program that comes there."""
    if not form.final:
        return
    target, where, columns = place_of(k, form, w, p, "final")
    if layout.segmented:
        last = walked_before(form, w).same(size("SEGMENTS") - 1)
        columns = Span("p", p.first, p.index, (p.index < size("P")) & last)
    k.note("the state after the last position")
    k.store(target, where, w.head, n, columns, value=cast(state, target.dtype))


def walked_before(form: Form, w: Walk) -> Expr:
    """How many segments are walked over before the program's own."""
    assert w.segment is not None
    return size("SEGMENTS") - 1 - w.segment if form.future else w.segment


def segment(k: Builder, form: Form, layout: Layout, w: Walk) -> tuple[Expr | None, Expr]:
    """The program's first chunk (None: 0) and how many it walks over; those of a segment are a multiple of what belongs together."""
    chunks = k.let("chunks", cdiv(w.length, size("CHUNK")))
    if not layout.segmented:
        return None, chunks
    assert w.segment is not None
    each = cdiv(chunks, size("SEGMENTS"))
    if form.spanned:
        together = size("SPAN") // size("CHUNK")
        each = cdiv(each, together) * together
    each = k.let("segment_chunks", each)
    first = k.let("first_chunk", w.segment * each)
    return first, k.let("own_chunks", least(each, chunks - first))


def store_segment(k: Builder, form: Form, w: Walk, n: Span, p: Span, state: Expr, fade: Expr | None) -> None:
    """Stores a segment's own state and how much it fades what comes before it."""
    assert w.segment is not None
    k.store(k.buffer("segments", *segment_dims(form, "N", "P"), dtype=ACC), w.sequence, w.head, w.segment, n, p, value=state)
    if fade is not None:
        fades, channels = segment_fades(k, form, n, p)
        k.store(fades, w.sequence, w.head, w.segment, *channels, value=fade)
