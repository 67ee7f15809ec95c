"""`delta(beta, K)`: the delta rule (DeltaNet, Schlag et al. 2021; gated: Yang et al. 2024; with `log` and `erase`: KDA, RWKV-7)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from contractor.program.expression import Axes, Leaf
from contractor.program.masks.mask import Entries, Law, Parameter, RankOne
from contractor.program.place import behind


class Delta:
    """∏ (diag(exp G_j) − beta_j k_j e_jᵀ) over s < j ≤ t, newest on the left; G = 0 and e = k unless given."""

    name: ClassVar[str] = "delta"
    says: ClassVar[str] = "the ordered product of I − beta_j k_j k_jᵀ over s < j ≤ t; `erase = E`: the second k, `log = G`: exp G_j for I"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("beta", (("S",),), "extra", says="the strength, [S] or [S, N]"),
        Parameter("K", (("S",),), "side", says="the key, [S, N]"),
        Parameter("erase", (("S",),), "side", keyword=True, says="what is erased, the key unless given"),
        Parameter("log", (("S",),), "extra", keyword=True, says="the log of the decay beside it"),
    )
    choices: ClassVar[tuple[Axes, ...]] = ()
    shifts: ClassVar[bool] = True
    matrix: ClassVar[bool] = True

    def entry(self, given: Entries) -> Tensor:
        """The step of every position: [batch, head, S, N, N]."""
        beta, key = vector(given.arguments["beta"]), vector(given.arguments["K"])
        erase = vector(given.arguments.get("erase", given.arguments["K"]))
        identity = torch.eye(key.shape[-1], dtype=torch.float64)
        log = given.arguments.get("log")
        kept = identity if log is None else vector(log).exp().unsqueeze(-1) * identity
        return kept - (beta * key).unsqueeze(-1) * erase.unsqueeze(-2)

    def law(self, leaf: Leaf) -> Law:
        """One step of rank one beside a diagonal."""
        beta, key, erase = leaf.argument("beta"), leaf.argument("K"), leaf.argument("erase")
        assert beta is not None and key is not None
        row, column = leaf.axes
        step = RankOne(beta, key, erase or key, leaf.argument("log"), row, column, leaf.shift)
        return Law(support=behind(leaf.shift), steps=(step,))


def vector(argument: Tensor) -> Tensor:
    """An argument over [batch, head, S, row, column], one of the last two of size 1, as a vector [batch, head, S, feature]."""
    return argument.flatten(-2)
