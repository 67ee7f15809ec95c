"""`causal()`: no target sees a later source (Vaswani et al. 2017; linear attention, Katharopoulos et al. 2020)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from contractor.program.expression import Axes, Leaf
from contractor.program.masks.grid import indicator, lags
from contractor.program.masks.mask import Entries, Law, Parameter
from contractor.program.place import LAG


class Causal:
    """1 for lag ≥ 0."""

    name: ClassVar[str] = "causal"
    says: ClassVar[str] = "1 for lag ≥ 0"
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    choices: ClassVar[tuple[Axes, ...]] = ()
    shifts: ClassVar[bool] = False
    matrix: ClassVar[bool] = False

    def entry(self, given: Entries) -> Tensor:
        """1 where the source is not ahead of the target."""
        return indicator(lags(given) >= 0)

    def law(self, _leaf: Leaf) -> Law:
        """The support alone."""
        return Law(support=LAG >= 0)
