"""`decay(gamma)`: a fixed decay per position (RetNet, Sun et al. 2023; complex: a diagonal SSM, S4D, Gu et al. 2022)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from contractor.program.expression import Axes, Leaf
from contractor.program.masks.grid import at_places
from contractor.program.masks.mask import Entries, Fade, Law, Parameter
from contractor.program.place import behind


class Decay:
    """gamma to the power of the lag; 1 on the diagonal, for gamma = 0 too."""

    name: ClassVar[str] = "decay"
    says: ClassVar[str] = "gamma^lag for lag ≥ 0, 1 on the diagonal; `log = g` takes log gamma"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("gamma", features="extra", says="the decay of one position"),
        Parameter("log", features="extra", keyword=True, says="its natural log"),
    )
    choices: ClassVar[tuple[Axes, ...]] = (("gamma", "log"),)
    shifts: ClassVar[bool] = True
    matrix: ClassVar[bool] = False

    def entry(self, given: Entries) -> Tensor:
        """The power by repeated multiplication: one factor for each of the positions s < j ≤ t (shift 1: s < j < t)."""
        log = given.arguments.get("log")
        gamma = given.arguments["gamma"] if log is None else log.exp()
        powers = [torch.ones_like(gamma)]
        for _ in range(1, len(given.s)):
            powers.append(powers[-1] * gamma)
        return at_places(torch.stack(powers, 2), given.t[:, None] - given.s[None, :] - given.shift)

    def law(self, leaf: Leaf) -> Law:
        """One fixed fade."""
        log = leaf.argument("log")
        gamma = leaf.argument("gamma")
        value = gamma if log is None else log
        assert value is not None
        return Law(support=behind(leaf.shift), steps=(Fade(value, log is not None, leaf.shift),))
