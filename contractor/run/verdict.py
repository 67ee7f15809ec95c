"""A row judged by its numbers: how far from others they are, what is off, and what is said about it."""

from __future__ import annotations

from dataclasses import replace

from contractor.run.rows import Row
from contractor.run.truth import Result, errors, without, worst


def against(row: Row, found: Result, right: Result, held_to: str, allowed: tuple[float, float]) -> Row:
    """A row with its errors against other numbers. NaN is never right."""
    output, slopes = errors(found, right)
    off = [f"the gradient of {name}" for name, slope in slopes.items() if not slope <= allowed[1]]
    wrong = not output <= allowed[0]
    lacking = [f"no gradient of {name}" for name in without(found, right)]
    said = [*(["the output"] if wrong else []), *off]
    notes = joined(row.note, f"{', '.join(said)} {'is' if len(said) == 1 else 'are'} off" if said else "", *lacking)
    made = (output, worst(slopes.values())) if slopes else (output,)
    backward = bool(off) or (row.ours and bool(lacking))
    return replace(row, errors=made, held_to=held_to, wrong_forward=wrong, wrong_backward=wrong or backward, note=notes)


def finite(row: Row, found: Result) -> Row:
    """A row that nothing was compared with."""
    forward = all(bool(one.isfinite().all()) for one in found.outputs)
    backward = all(bool(one.isfinite().all()) for one in found.gradients.values() if one is not None)
    note = joined(row.note, "" if forward and backward else "not finite")
    return replace(row, wrong_forward=not forward, wrong_backward=not (forward and backward), note=note)


def looser(allowed: tuple[float, float], factors: tuple[float, float]) -> tuple[float, float]:
    """What is allowed, by factors for outputs and gradients."""
    return allowed[0] * factors[0], allowed[1] * factors[1]


def joined(*notes: str) -> str:
    """What there is to say."""
    return "; ".join(note for note in notes if note)
