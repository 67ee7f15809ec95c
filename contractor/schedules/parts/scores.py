"""Which pairs of a tile are seen: a mask's support, read on tiles."""

from __future__ import annotations

from typing import Any

from contractor.program.expression import Constant, Expression
from contractor.program.place import Place, evaluate
from contractor.schedules.parts.form import Form
from contractor.tile.build import Builder
from contractor.tile.ops import Expr, rename, select

NEVER = float("-inf")


def directed(form: Form, lane: Expr) -> Expr:
    """Inside one chunk: the source is not after the target (in the future direction not before), and not at it where strict."""
    source = rename(lane, t="s")
    if form.future:
        return source > lane if form.strict else source >= lane
    return lane > source if form.strict else lane >= source
