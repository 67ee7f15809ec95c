"""`semiseparable(a)`: the gates between source and target, multiplied (the 1-SS mask of SSD, Dao and Gu 2024; with extra axes
gated linear attention, Yang et al. 2024, and S6, Gu and Dao 2023). `write`: exponential input gates (xLSTM, Beck et al. 2024)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from contractor.errors import ContractorError
from contractor.program.expression import Axes, Leaf
from contractor.program.masks.mask import Entries, Fade, Law, Parameter, Rank
from contractor.program.place import behind


class Semiseparable:
    """∏ a_j over s < j ≤ t; with left and right a sum of R of them."""

    name: ClassVar[str] = "semiseparable"
    says: ClassVar[str] = (
        "the product of a_j over s < j ≤ t; `log = g` takes log a, `write = i` gives a factor exp(i_s), `left` and `right` rank R"
    )
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("a", (("S",),), "extra", says="the gate at each position"),
        Parameter("log", (("S",),), "extra", keyword=True, says="its natural log"),
        Parameter("write", (("S",),), "extra", keyword=True, says="the log of a factor on the source"),
        Parameter("left", (("T",),), "own", keyword=True, says="the factors on the target, [T, R]"),
        Parameter("right", (("S",),), "own", keyword=True, says="the factors on the source, [S, R]"),
    )
    choices: ClassVar[tuple[Axes, ...]] = (("a", "log"),)
    shifts: ClassVar[bool] = True
    matrix: ClassVar[bool] = False

    def entry(self, given: Entries) -> Tensor:
        """Every product by multiplication from its source on (logs: by addition), then the factors on target and source."""
        log = given.arguments.get("log")
        write = given.arguments.get("write")
        if log is None:
            entries = crossed(given.arguments["a"], given, 1.0, 0.0)
            entries = entries if write is None else entries * write.exp().unsqueeze(2)
        else:
            sums = crossed(log, given, 0.0, float("-inf"))
            entries = (sums if write is None else sums + write.unsqueeze(2)).exp()
        return self.summed(entries, given)

    def summed(self, entries: Tensor, given: Entries) -> Tensor:
        """Σ_r c_tr entries_ts(r) b_sr."""
        if "left" not in given.arguments:
            return entries
        if entries.dim() == 4 + len(given.extra):
            entries = entries.unsqueeze(-1)
        left, right = given.arguments["left"].unsqueeze(3), given.arguments["right"].unsqueeze(2)
        return (left * entries * right).sum(-1)

    def law(self, leaf: Leaf) -> Law:
        """One fade at each position; the rank as two more operands."""
        log, write = leaf.argument("log"), leaf.argument("write")
        value = leaf.argument("a") if log is None else log
        assert value is not None
        return Law(
            support=behind(leaf.shift),
            steps=(Fade(value, log is not None, leaf.shift),),
            write=() if write is None else (write,),
            ranks=ranks(leaf),
        )


def ranks(leaf: Leaf) -> tuple[Rank, ...]:
    """The rank of a leaf, if it has left and right."""
    left, right = leaf.argument("left"), leaf.argument("right")
    if left is None and right is None:
        return ()
    if left is None or right is None:
        raise ContractorError("semiseparable() takes left and right together")
    own = {axis for value in (left, right) for axis in value.axes if axis not in ("T", "S", *leaf.axes)}
    if len(own) > 1:
        axes = " and ".join(sorted(own))
        raise ContractorError(f"left and right of semiseparable() share one axis of their own; these have {axes}")
    return (Rank(left, right, own.pop()),)


def crossed(gate: Tensor, given: Entries, start: float, outside: float) -> Tensor:
    """The gates [batch, head, S, …] over s < j ≤ t (shift 1: s < j < t), combined from `start` (1: by products, 0: by sums);
    `outside` where lag < shift. [batch, head, T, S, …]."""
    count = len(given.s)
    order = given.s.reshape(-1, *(1 for _ in gate.shape[3:]))
    row = torch.full_like(gate, outside)
    rows: list[Tensor] = [row]
    for j in range(count):
        step = gate[:, :, j : j + 1]
        row = torch.where(order < j, row * step if start else row + step, torch.where(order == j, start, outside).to(gate.dtype))
        rows.append(row)
    wanted = (given.t + 1 - given.shift).clamp(min=0)
    return torch.stack(rows, 2)[:, :, wanted]
