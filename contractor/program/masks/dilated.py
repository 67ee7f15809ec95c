"""`dilated(d)`: every d-th source back from the target (LongNet, Ding et al. 2023; strided attention, Child et al. 2019)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from contractor.program.expression import Axes, Leaf
from contractor.program.masks.grid import indicator, lags, whole
from contractor.program.masks.mask import Entries, Law, Parameter
from contractor.program.place import LAG, Given


class Dilated:
    """1 for lag ≥ 0 where d divides the lag."""

    name: ClassVar[str] = "dilated"
    says: ClassVar[str] = "1 for lag ≥ 0, lag mod d = 0"
    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("d", integer=True, says="the stride"),)
    choices: ClassVar[tuple[Axes, ...]] = ()
    shifts: ClassVar[bool] = False
    matrix: ClassVar[bool] = False

    def entry(self, given: Entries) -> Tensor:
        """1 at every d-th source."""
        lag = lags(given)
        return indicator((lag >= 0) & (lag % whole(given, "d") == 0))

    def law(self, leaf: Leaf) -> Law:
        """A comb."""
        stride = leaf.argument("d")
        assert stride is not None
        stateless = "dilated: it takes d states in turn, and one is carried"
        return Law(support=(LAG >= 0) & (LAG % Given(stride)).same(0), stateless=stateless)
