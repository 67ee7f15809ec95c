"""`toeplitz(alpha)`: one weight for each lag, a causal convolution (TNN, Qin et al. 2023; Hyena, Poli et al. 2023)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from contractor.errors import ContractorError
from contractor.program.expression import Axes, Expression, Leaf
from contractor.program.masks.grid import at_places, indicator, targets
from contractor.program.masks.mask import Entries, Law, Lookup, Parameter
from contractor.program.place import LAG, T


class Toeplitz:
    """alpha[lag] for lag ≥ 0; with ahead, beta[−lag] for lag < 0. Zero beyond their sizes."""

    name: ClassVar[str] = "toeplitz"
    says: ClassVar[str] = "alpha[lag] for lag ≥ 0, zero beyond its size; `ahead = beta` adds beta[−lag] for lag < 0"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("alpha", features="own", says="the weight at each lag; its first axis is the lag"),
        Parameter("ahead", features="own", keyword=True, says="the weight at each lag ahead"),
    )
    choices: ClassVar[tuple[Axes, ...]] = ()
    shifts: ClassVar[bool] = False
    matrix: ClassVar[bool] = False

    def entry(self, given: Entries) -> Tensor:
        """The weight at the lag, looked up."""
        lag = given.t[:, None] - given.s[None, :]
        behind = at_places(given.arguments["alpha"].movedim(-1, 2), lag)
        if "ahead" not in given.arguments:
            return behind
        ahead = at_places(given.arguments["ahead"].movedim(-1, 2), (-lag).where(lag < 0, -1))
        return behind + ahead * indicator(targets(given) >= 0)

    def law(self, leaf: Leaf) -> Law:
        """A lookup at the lag."""
        alpha, ahead = leaf.argument("alpha"), leaf.argument("ahead")
        assert alpha is not None
        for value in (alpha, ahead):
            check_first(value, leaf)
        return Law(
            support=LAG >= 0 if ahead is None else T >= 0,
            weights=(Lookup(alpha, (LAG,), ahead),),
            stateless="toeplitz: the weight of a source changes with its lag in no fixed way, so no transition carries it",
        )


def check_first(value: Expression | None, leaf: Leaf) -> None:
    """The lag is the first axis."""
    if value is not None and value.axes and value.axes[0] in leaf.axes:
        raise ContractorError(f"the first axis of toeplitz()'s weights is the lag; {value.axes[0]} is an axis of the mask")
