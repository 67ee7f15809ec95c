"""What was chosen, what was not, and why: offers, refusals and the plan of a whole layer."""

from __future__ import annotations

from dataclasses import dataclass, field

from contractor.plan.cost import Cost
from contractor.plan.machine import Machine
from contractor.plan.problem import Problem


@dataclass(frozen=True, slots=True)
class Tiling:
    """The block sizes of a schedule's kernels by the names they are printed under, and warps and stages of each program. via: how tiles
    are reached. summed: running sums of gates are made before."""

    constants: tuple[tuple[str, int], ...]
    warps: int = 4
    stages: int = 2
    via: str = "pointer"
    summed: bool = False

    def __getitem__(self, name: str) -> int:
        """A block size by name."""
        return dict(self.constants)[name]


@dataclass(frozen=True, slots=True)
class Offer:
    """An order of evaluation that may be used, at its best tiling. bound: what limits it ("bytes", "tensor", "arithmetic", "steps",
    "launches")."""

    schedule: str
    tiling: Tiling
    cost: Cost
    milliseconds: float
    bound: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """An order that may not be used, and why, in the user's words."""

    schedule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Choice:
    """For one mixing (or term of one): the chosen offer and everything that was not chosen. dense: what opt_einsum picks when it
    takes the mask as a dense tensor, and what that would cost."""

    name: str
    says: str
    chosen: Offer | None
    others: tuple[Offer | Refusal, ...]
    dense: Pairwise | None = None


@dataclass(frozen=True, slots=True)
class Pairwise:
    """The pairwise order of an ordinary contraction: opt_einsum's path over the operands as written, and its cost."""

    name: str
    equation: str
    path: tuple[tuple[int, ...], ...]
    flops: int
    largest: int
    milliseconds: float = field(default=0.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """Every mixing's choice and every ordinary contraction's order, for one problem on one machine."""

    problem: Problem
    machine: Machine
    choices: tuple[Choice, ...]
    contractions: tuple[Pairwise, ...]
