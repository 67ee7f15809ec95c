"""`matrix(M)`: any tensor as a mask (additive or multiplicative biases; Dao and Gu 2024's general structured masked attention)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from contractor.program.expression import Axes, Leaf
from contractor.program.masks.mask import Entries, Law, Lookup, Parameter
from contractor.program.place import S, T


class Matrix:
    """M[t, s]."""

    name: ClassVar[str] = "matrix"
    says: ClassVar[str] = "any tensor M [T, S]"
    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("M", (("T", "S"),), "extra", says="the entries"),)
    choices: ClassVar[tuple[Axes, ...]] = ()
    shifts: ClassVar[bool] = False
    matrix: ClassVar[bool] = False

    def entry(self, given: Entries) -> Tensor:
        """The tensor itself."""
        return given.arguments["M"]

    def law(self, leaf: Leaf) -> Law:
        """A lookup at both positions."""
        entries = leaf.argument("M")
        assert entries is not None
        index = tuple(T if axis == "T" else S for axis in entries.axes if axis in ("T", "S"))
        return Law(weights=(Lookup(entries, index),), stateless="matrix: a table of entries has no transition")
