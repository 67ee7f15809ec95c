"""A program with sizes: everything that a plan may depend on, and nothing of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contractor.program.program import Program

DType = Literal["bfloat16", "float16", "float32", "float64", "complex64", "complex128"]
BYTES: dict[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16}


@dataclass(frozen=True, slots=True)
class Sizes:
    """B batch, T targets, S sources, H heads (the largest count of any operand), and each feature axis by its letter."""

    B: int
    T: int
    S: int
    H: int
    features: tuple[tuple[str, int], ...]

    def __getitem__(self, axis: str) -> int:
        """The size of an axis by its letter; `B`, `T`, `S` and `H` too."""
        return self.mapping[axis]

    @property
    def mapping(self) -> dict[str, int]:
        """All sizes by letter."""
        return {"B": self.B, "T": self.T, "S": self.S, "H": self.H, **dict(self.features)}


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed sequences: batch 1, `sequences` of them end to end along T."""

    sequences: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One layer at given sizes. heads: (operand, its head count) for those that do not have all H heads; dtype: of the inputs. initial,
    final: a state is handed in, and handed out; pooled: it stays where it is, in a pool of states that is updated in place."""

    program: Program
    sizes: Sizes
    dtype: DType = "bfloat16"
    heads: tuple[tuple[str, int], ...] = ()
    packed: Packed | None = None
    initial: bool = False
    final: bool = False
    pooled: bool = False

    def heads_of(self, operand: str) -> int:
        """How many heads an operand has."""
        return dict(self.heads).get(operand, self.sizes.H)
