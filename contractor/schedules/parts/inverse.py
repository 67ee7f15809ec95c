"""The inverse of I + A for A strictly below the diagonal, by blocks that double: [[X, 0], [C, Z]]⁻¹ = [[X⁻¹, 0], [−Z⁻¹ C X⁻¹, Z⁻¹]].

All blocks of one size are inverted together, by two products: with X the inverse of the blocks of h on the diagonal and C what lies beside
them in blocks of 2h, it is X − X C X for those. A pair of positions t > s is in C exactly if h ≤ t xor s < 2h. No entry is ever more than
a sum of products along the paths from s to t, as in the substitution row by row.
"""

from __future__ import annotations

from contractor.tile.build import Builder
from contractor.tile.ops import Expr, Precision, dot, rename, select

LEVELS = 5  # doublings from blocks of 2 to 64 positions; of smaller chunks the last ones change nothing


def inverse(k: Builder, below: Expr, lane: Expr, precision: Precision) -> Expr:
    """below [t, s], 0 on the diagonal and above → (I + below)⁻¹ [t, s], of at most 64 rows. lane: 0, 1, 2, … over t."""
    k.axis("u", dict(k.sizes)["t"])
    apart = k.let("apart", lane ^ rename(lane, t="s"))
    k.note("the inverse, its blocks doubled level by level")
    solved = k.carry("solved", select(apart.same(0), 1.0, 0.0) - select(apart.same(1), below, 0.0))
    with k.loop("level", LEVELS) as level:
        near = k.let("near", 2 << level)
        beside = k.let("beside", select((apart >= near) & (apart < near + near), below, 0.0))
        passed = k.let("passed", dot(rename(solved, s="u"), rename(beside, t="u"), precision=precision))
        k.update(solved, solved - dot(rename(passed, s="u"), rename(solved, t="u"), precision=precision))
    return solved
