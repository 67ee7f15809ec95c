"""`prefix(n)`: a prefix that all targets see, causal behind it (prefix language models; T5, Raffel et al. 2020)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from contractor.program.expression import Axes, Leaf
from contractor.program.masks.grid import indicator, lags, sources, targets, whole
from contractor.program.masks.mask import Entries, Law, Parameter
from contractor.program.place import LAG, Binary, Given, S, T


class Prefix:
    """1 for s < n or lag ≥ 0 (never for a target before the first source)."""

    name: ClassVar[str] = "prefix"
    says: ClassVar[str] = "1 for s < n or lag ≥ 0"
    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("n", integer=True, says="the length of the prefix"),)
    choices: ClassVar[tuple[Axes, ...]] = ()
    shifts: ClassVar[bool] = False
    matrix: ClassVar[bool] = False

    def entry(self, given: Entries) -> Tensor:
        """1 in the prefix and behind the target."""
        early = (sources(given) < whole(given, "n")) & (targets(given) >= 0)
        return indicator((lags(given) >= 0) | early)

    def law(self, leaf: Leaf) -> Law:
        """A column beside a triangle."""
        length = leaf.argument("n")
        assert length is not None
        stateless = "prefix: a target in the prefix reads sources ahead of it"
        return Law(support=(LAG >= 0) | (Binary("<", S, Given(length)) & (T >= 0)), stateless=stateless)
