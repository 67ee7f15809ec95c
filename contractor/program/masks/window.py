"""`window(w)`: sliding-window attention (Longformer, Beltagy et al. 2020; Mistral)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from contractor.program.expression import Axes, Leaf
from contractor.program.masks.grid import indicator, lags, whole
from contractor.program.masks.mask import Entries, Law, Parameter
from contractor.program.place import LAG, Binary, Given


class Window:
    """1 for 0 ≤ lag < w."""

    name: ClassVar[str] = "window"
    says: ClassVar[str] = "1 for 0 ≤ lag < w"
    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("w", integer=True, says="how many positions a target sees"),)
    choices: ClassVar[tuple[Axes, ...]] = ()
    shifts: ClassVar[bool] = False
    matrix: ClassVar[bool] = False

    def entry(self, given: Entries) -> Tensor:
        """1 for the last w sources."""
        lag = lags(given)
        return indicator((lag >= 0) & (lag < whole(given, "w")))

    def law(self, leaf: Leaf) -> Law:
        """A band."""
        width = leaf.argument("w")
        assert width is not None
        stateless = "window: a target reads the last w positions only, and a state cannot forget one at a time"
        return Law(support=(LAG >= 0) & Binary("<", LAG, Given(width)), stateless=stateless)
