"""`blocks(b)`: positions see each other within blocks of b (block-local attention; Parmar et al. 2018)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from contractor.program.expression import Axes, Leaf
from contractor.program.masks.grid import indicator, sources, targets, whole
from contractor.program.masks.mask import Entries, Law, Parameter
from contractor.program.place import Given, S, T


class Blocks:
    """1 where target and source are in the same block of b positions."""

    name: ClassVar[str] = "blocks"
    says: ClassVar[str] = "1 where t and s are in the same block of b"
    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("b", integer=True, says="the size of a block"),)
    choices: ClassVar[tuple[Axes, ...]] = ()
    shifts: ClassVar[bool] = False
    matrix: ClassVar[bool] = False

    def entry(self, given: Entries) -> Tensor:
        """1 where the numbers of the blocks agree."""
        size = whole(given, "b")
        block_of_target = torch.div(targets(given), size, rounding_mode="floor")
        return indicator(block_of_target == torch.div(sources(given), size, rounding_mode="floor"))

    def law(self, leaf: Leaf) -> Law:
        """Squares along the diagonal."""
        size = leaf.argument("b")
        assert size is not None
        stateless = "blocks: a target reads its own block only, sources ahead of it among them"
        return Law(support=(T // Given(size)).same(S // Given(size)), stateless=stateless, square=True)
