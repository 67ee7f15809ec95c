"""`product(A)`: the ordered product of matrix transitions, newest on the left (a dense SSM: S4, Gu et al. 2021; LSSL)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from contractor.program.expression import Axes, Leaf
from contractor.program.masks.mask import Dense, Entries, Law, Parameter
from contractor.program.place import behind


class Product:
    """∏ A_j over s < j ≤ t; the first extra axis of the mask is the row."""

    name: ClassVar[str] = "product"
    says: ClassVar[str] = "the ordered product of the matrices A_j over s < j ≤ t, newest on the left"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("A", ((), ("S",)), "matrix", says="the transition, fixed [N, M] or at each position [S, N, M]"),
    )
    choices: ClassVar[tuple[Axes, ...]] = ()
    shifts: ClassVar[bool] = True
    matrix: ClassVar[bool] = True

    def entry(self, given: Entries) -> Tensor:
        """A_j for every position: [batch, head, S, N, M]."""
        matrices = given.arguments["A"]
        return matrices if given.has_position["A"] else matrices.unsqueeze(2).expand(-1, -1, len(given.s), -1, -1)

    def law(self, leaf: Leaf) -> Law:
        """One dense step."""
        matrices = leaf.argument("A")
        assert matrices is not None
        row, column = leaf.axes
        return Law(support=behind(leaf.shift), steps=(Dense(matrices, row, column, leaf.shift),))
