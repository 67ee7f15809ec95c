"""The values of scalar expressions at given sizes: numbers, or one number for each of the programs (or of a sample of them)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from contractor.errors import TileError
from contractor.tile.expression import Binary, Cast, Dot, Expr, Iota, Number, Program, Reduce, Rename, Select, Sign, Size, Tile, Unary
from contractor.tile.kernel import Kernel, Let, Load, statements

Numbers = Any  # a float, or a numpy array of float64 with one entry for each program looked at
SAMPLE = 4096
GOLDEN = (5**0.5 - 1) / 2  # steps by this fraction are spread evenly, whatever the programs' order repeats with

SIGNS: Mapping[Sign, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "<<": lambda a, b: a * 2.0**b,
    "cdiv": lambda a, b: -(-a // b),
    "least": np.fmin,
    "most": np.fmax,
    "==": lambda a, b: a == b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "&": np.logical_and,
    "|": np.logical_or,
    "^": np.logical_xor,
}


@dataclass(frozen=True, slots=True)
class Places:
    """Sizes by name, the number of programs, and assumed values of what is read from memory."""

    sizes: dict[str, int]
    programs: int
    assumed: dict[str, float]

    def looked_at(self) -> Numbers:
        """The programs that are looked at: all, or a sample."""
        if self.programs <= SAMPLE:
            return np.arange(self.programs, dtype=np.float64)
        return np.floor(np.arange(SAMPLE) * GOLDEN % 1.0 * self.programs)

    def start(self, kernel: Kernel) -> dict[str, Numbers]:
        """The values of what is loaded as a single number: as assumed, else unknown (a NaN, which `least` and `most` pass over)."""
        loads = (one.tile.name for one in statements(kernel.body) if isinstance(one, Load) and not one.tile.axes)
        return {name: self.assumed.get(name, float("nan")) for name in loads}

    def remember(self, one: Let, known: dict[str, Numbers]) -> None:
        """Adds the value of a named scalar, if it has one."""
        if not one.tile.axes and computable(one.value, known):
            known[one.tile.name] = value(one.value, self, known)

    def greatest(self, numbers: Numbers) -> int:
        """The greatest count of any program looked at."""
        return int(np.max(numbers, initial=0.0))


def computable(x: Expr, known: Mapping[str, Numbers]) -> bool:
    """True if an expression is made of sizes, the program's number and values that are known."""
    match x:
        case Number() | Size() | Program():
            return True
        case Tile():
            return x.name in known
        case Cast():
            return computable(x.source, known)
        case Binary():
            return computable(x.left, known) and computable(x.right, known)
        case Select():
            return all(computable(one, known) for one in (x.condition, x.first, x.second))
        case Iota() | Rename() | Unary() | Reduce() | Dot():
            return False
        case _:
            assert_never(x)


def value(x: Expr, places: Places, known: Mapping[str, Numbers]) -> Numbers:
    """The value of a scalar expression. Raises TileError if it names what is not known."""
    match x:
        case Number():
            return float(x.value)
        case Size():
            if x.name not in places.sizes:
                raise TileError(f"the size {x.name} is not given")
            return float(places.sizes[x.name])
        case Program():
            return places.looked_at()
        case Tile() if x.name in known:
            return known[x.name]
        case Cast():
            return value(x.source, places, known)
        case Binary():
            return SIGNS[x.sign](value(x.left, places, known), value(x.right, places, known))
        case Select():
            return np.where(*(value(one, places, known) for one in (x.condition, x.first, x.second)))
        case _:
            raise TileError("a count that is computed from data")


def mean(numbers: Numbers) -> float:
    """The average over the programs, nothing below zero. Raises TileError if it is not known."""
    average = float(np.mean(np.maximum(numbers, 0.0))) if np.size(numbers) else 0.0
    if np.isnan(average):
        raise TileError("a loop count depends on data alone: say what to assume")
    return average
