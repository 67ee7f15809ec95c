"""`full()`: every target sees every source (attention, Vaswani et al. 2017; linear attention, Katharopoulos et al. 2020)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from contractor.program.expression import Axes, Leaf
from contractor.program.masks.grid import indicator, lags
from contractor.program.masks.mask import Entries, Law, Parameter


class Full:
    """1 everywhere."""

    name: ClassVar[str] = "full"
    says: ClassVar[str] = "1 everywhere"
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    choices: ClassVar[tuple[Axes, ...]] = ()
    shifts: ClassVar[bool] = False
    matrix: ClassVar[bool] = False

    def entry(self, given: Entries) -> Tensor:
        """1."""
        return indicator(lags(given) == lags(given))

    def law(self, _leaf: Leaf) -> Law:
        """No support, no step: one state for all targets."""
        return Law()
