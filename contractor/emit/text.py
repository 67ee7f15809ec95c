"""What the printers share: brackets by precedence, lines, and which of them nobody reads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from contractor.tile.expression import COMPARISONS, Binary, Expr, Number, Rename, Sign

LEVELS: dict[Sign, int] = {"|": 1, "^": 2, "&": 3, "<<": 4, "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6}
INFIX = frozenset({*LEVELS, *COMPARISONS})
ATOM, SUM = 9, 5
WIDTH = 106
INDENT = "    "


def level(x: Expr) -> int:
    """How tightly the printed form of an expression binds; comparisons bind least, new names of axes print as nothing."""
    if isinstance(x, Rename):
        return level(x.source)
    if isinstance(x, Binary) and x.sign in INFIX:
        return LEVELS.get(x.sign, 0)
    return ATOM - 1 if isinstance(x, Number) and x.value < 0 else ATOM


def infix(x: Binary, left: str, right: str, levels: tuple[int, int]) -> str:
    """Two printed operands joined by a sign, bracketed where Python would read them otherwise."""
    own = level(x)
    tight = own + (own == 0)
    first = f"({left})" if levels[0] < tight else left
    second = f"({right})" if levels[1] <= own or (levels[1] == ATOM - 1 and own >= SUM) else right
    return f"{first} {x.sign} {second}"


def real(value: int | float) -> str:
    """A number as Python reads it back."""
    if isinstance(value, float) and math.isinf(value):
        return 'float("inf")' if value > 0 else 'float("-inf")'
    return repr(value)


def signature(name: str, arguments: Iterable[str]) -> str:
    """`def name(arguments):`, on as many lines as it wants."""
    lines = [f"def {name}("]
    for position, one in enumerate(arguments):
        added = f"{', ' if position else ''}{one}"
        if len(lines[-1]) + len(added) > WIDTH:
            lines[-1] += ","
            lines.append(" " * 8 + one)
        else:
            lines[-1] += added
    return "\n".join(lines) + "):"


@dataclass(frozen=True, slots=True)
class Line:
    """A printed line. sets: the name that it gives a value and that may be left out with it, if nobody reads it."""

    text: str
    sets: str | None = None


WORD = re.compile(r"[A-Za-z_]\w*")


def words(text: str) -> set[str]:
    """The names in a line of code."""
    return set() if text.lstrip().startswith("#") else set(WORD.findall(text))


def needed(lines: list[Line]) -> list[Line]:
    """The lines without those that set what no later line reads."""
    kept: list[Line] = []
    read: set[str] = set()
    for line in reversed(lines):
        if line.sets is not None and line.sets not in read:
            continue
        kept.append(line)
        read |= words(line.text)
    return kept[::-1]


def used(lines: Iterable[Line], names: Iterable[str]) -> tuple[str, ...]:
    """Those of some names that the lines read."""
    read = set().union(*(words(line.text) for line in lines))
    return tuple(name for name in names if name in read)
