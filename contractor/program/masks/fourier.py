"""`fourier()`: the discrete Fourier transform along the sequence (FNet, Lee-Thorp et al. 2021)."""

from __future__ import annotations

from math import pi
from typing import ClassVar

import torch
from torch import Tensor

from contractor.program.expression import Axes, Leaf
from contractor.program.masks.grid import sources, targets
from contractor.program.masks.mask import Entries, Law, Parameter, Rotation


class Fourier:
    """exp(−2πi·t·s/T)."""

    name: ClassVar[str] = "fourier"
    says: ClassVar[str] = "exp(−2πi·t·s/T)"
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    choices: ClassVar[tuple[Axes, ...]] = ()
    shifts: ClassVar[bool] = False
    matrix: ClassVar[bool] = False

    def entry(self, given: Entries) -> Tensor:
        """The angle is reduced by whole turns in integers, so that it is exact for long sequences."""
        count = max(len(given.t), 1)
        angle = (targets(given) * sources(given) % count).to(torch.float64) * (-2 * pi / count)
        return torch.polar(torch.ones_like(angle), angle)

    def law(self, _leaf: Leaf) -> Law:
        """A rotation of every entry."""
        return Law(weights=(Rotation(),), stateless="fourier: every target reads the whole sequence", square=True)
