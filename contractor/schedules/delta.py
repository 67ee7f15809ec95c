"""Chunked under rank-one transitions: the delta rule (DeltaNet; Gated DeltaNet), the state never leaving the registers.

The state steps by S[t] = a[t] (I − w[t] e[t]ᵀ) S[t−1] + k[t] v[t]ᵀ, with gates a, the key w that it erases at (its strength in it), e that
it reads for that, and the pair k, v that it writes (the source's weight in k). Let r[t] = a[t] e[t]ᵀ S[t−1] be what is read and erased.
Inside a chunk that the state S enters, with D[t, s] the gates between two positions and g[t] those up to t:
    S[t] = g[t] S + Σ over s ≤ t of D[t, s] (k[s] v[s]ᵀ − w[s] r[s]ᵀ)
    r[t] = g[t] e[t]ᵀ S + Σ over s < t of D[t, s] ((e[t] · k[s]) v[s] − (e[t] · w[s]) r[s])
so that (I + M) r = g e S + N v with M = D ∘ e wᵀ and N = D ∘ e kᵀ below the diagonal: one triangular inverse X = (I + M)⁻¹ a chunk, which
a first kernel makes for all chunks at once (`parts.pairs`). The second walks along the chunks:
    r = X (g e S) + (X N) v,  result = g q S + (D ∘ q kᵀ) v − (D ∘ q wᵀ) r,  S ← g[end] S + kᵀ D v − wᵀ D r
Where a step is tied (w = k, and e is k without its weight) M = N, and what is written less what is erased is one thing:
    u = v − r = X v − X (g e S),  result = g q S + (D ∘ q kᵀ) u,  S ← g[end] S + kᵀ D u
A scalar gate may stand on either side of the erasing step: it commutes.

The walk holds the state, and all that follows from it, transposed, over [p, …]: then each product's left operand is the result of the last
one, which tensor units take from registers, and its right operand a tile as it was loaded. Nothing on the way from one chunk's state to the
next passes through shared memory.
"""

from __future__ import annotations

from dataclasses import replace

from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.schedules.family import ELSEWHERE
from contractor.schedules.parts.along import enter_factor, entering, fade_factor, pairs, product, renewed, times, walking, written_factor
from contractor.schedules.parts.beside import weights_of
from contractor.schedules.parts.chunk import Place
from contractor.schedules.parts.ends import leaving
from contractor.schedules.parts.form import Form, Task
from contractor.schedules.parts.pairs import SCALARS, pairs_kernel, passing, side
from contractor.schedules.parts.reverse import backward_kernels
from contractor.schedules.parts.tilings import power, tiling
from contractor.schedules.parts.walk import Layout, Rows, sizes, table
from contractor.tile.build import Builder
from contractor.tile.expression import Tile
from contractor.tile.kernel import Kernel
from contractor.tile.ops import ACC, Expr, cast, cdiv, rename, select, size

SAYS = "result[t, p] = scale · Σ over n of query[t, n] · S[t, n, p], S[t] = a[t] (I − w[t] e[t]ᵀ) S[t−1] + key[t] value[t]ᵀ"


class Delta:
    """Chunks under a rank-one transition beside scalar gates."""

    name = "chunked"
    stepwise = False
    fuses = True

    def refusal(self, form: Form) -> str:
        """One rank-one step, scalar gates by their logs, the state from the past."""
        if not form.matrices:
            return ELSEWHERE
        if not form.directed or form.support is not None or form.tables:
            return form.stateless or "the mask is more than a product of transitions, so no state can be carried across a chunk"
        if len(form.matrices) != 1 or form.matrices[0].kind != "rank_one":
            return "its chunks need products of dense matrices"
        if form.matrices[0].log or any(gate.features for gate in form.gates):
            return "a gate differs between the rows of a state that a matrix mixes"
        if any(gate.by_value for gate in form.gates):
            return "a gate beside a matrix may be negative as long as its log is not given"
        if form.strict or form.future:
            return "a matrix is crossed late, or from the future"
        return ""

    def careful(self, _form: Form) -> bool:
        """What passes through the state is rounded to 16 bits."""
        return False

    def flows(self, form: Form) -> bool:
        """A backward of its own, where what is erased is what is written and nothing else is done on the way."""
        return form.matrices[0].tied and not (form.skip or form.pooled or form.weighing("target"))

    def tilings(self, task: Task, machine: Machine) -> tuple[Tiling, ...]:
        """The columns in one block of 128, whose rows of the state two groups of warps share, or in blocks of 64."""
        if machine.kind == "cpu":
            return (beside(task, tiling(task, machine, 0, 1, 1)),)
        wide = ((128, 8, 3), (128, 8, 2)) if task.dimensions.P > 64 else ()
        pairs = (*wide, (64, 4, 3), (64, 4, 2), (64, 4, 1)) if task.dtype != "float32" else ((64, 8, 1),)
        found = tuple(one for pair in pairs if fits(task, machine, one := beside(task, tiling(task, machine, *pair))))
        piped = tuple(one for one in found if one.stages > 1)  # one stage is for machines on which two find no room
        return piped or found

    def kernels(self, form: Form, layout: Layout) -> tuple[Kernel, ...]:
        """The pairs inside all chunks, then the walk along them; or the backward."""
        return backward_kernels(form, layout) if form.flow == "whole" else (pairs_kernel(form, layout), kernel(form, layout))


def beside(task: Task, one: Tiling) -> Tiling:
    """The tiling with what the kernels that see one chunk want: few warps for its pairs, many for its gradients, of few columns at once."""
    constants = (*one.constants, ("chunk_pairs_warps", min(4, one.warps)))
    if task.form.flow == "whole":
        columns = one["BLOCK_P"] if one.warps == 1 else min(64, one["BLOCK_P"])
        constants += (("COLUMNS", columns), ("delta_rest_warps", max(8, one.warps) if one.warps > 1 else 1))
    return replace(one, constants=constants)


def fits(task: Task, machine: Machine, one: Tiling) -> bool:
    """True if the tiles of all stages and what is stored of them, the result or in a backward the state, find room in shared memory."""
    rows, inner, outer = one["CHUNK"], one["BLOCK_N"], one["BLOCK_P"]
    operands = 2 if task.form.matrices[0].tied else 4
    tiles = rows * (operands * (inner + rows) + outer) * one.stages
    stored = (max(inner, rows) if task.form.flow == "whole" else rows) * outer
    width, widest = (4, 128) if task.dtype == "float32" else (2, 256)
    return power(inner) <= widest and (tiles + stored) * width + BARRIERS <= machine.shared


BARRIERS = 2048  # bytes of a program's shared memory that hold no tile


# ---- the walk along the chunks ----------------------------------------------------------------------------------------------------


def kernel(form: Form, layout: Layout) -> Kernel:
    """The walk along the chunks."""
    k = Builder("delta", SAYS, sizes(layout), scalars=SCALARS)
    c = walking(k, form, layout)
    state = entering(c)
    with k.loop("step", k.let("chunks", cdiv(c.w.length, size("CHUNK")))) as step:
        (tied_chunk if form.matrices[0].tied else untied_chunk)(c, c.rows(step), state)
    leaving(k, form, layout, c.w, c.n, c.p, state)
    return k.done()


def tied_chunk(c: Place, here: Rows, state: Tile) -> None:
    """A chunk's results and the state after it, where what is erased is what is written."""
    k = c.k
    query, key, value = c.tile("query", "t", here), c.tile("key", "s", here), c.tile("value", "s", here)
    solved, weights = pairs(c, "inverse", here), pairs(c, "weights", here)
    enter, written, fade = enter_factor(c, here), written_factor(c, here), fade_factor(c, here)
    before = k.let("before", cast(state, key))
    k.note("what is new: the value, less what the state and the chunk's earlier rows hold under the key")
    fresh = renewed(c, before, key, value, solved, enter)
    k.note("the query reads the carried state and what is new")
    carried = times(product(c, before, query), enter)
    give(c, here, product(c, rename(cast(fresh, key), t="s"), weights, carried), value)
    k.note("carry: fade the state, add what is new")
    k.update(state, product(c, cast(rename(times(fresh, written), t="s"), key), key, times(state, fade)))


def untied_chunk(c: Place, here: Rows, state: Tile) -> None:
    """A chunk's results and the state after it, where what is erased and what is written are apart."""
    k, (step,) = c.k, c.form.matrices
    query, key, value = c.tile("query", "t", here), c.tile("key", "s", here), c.tile("value", "s", here)
    erase, write = side(c, f"{step.name}_erase", "s", here), side(c, f"{step.name}_key", "s", here)
    solved, known, weights, overlaps = (pairs(c, name, here) for name in ("inverse", "known", "weights", "overlaps"))
    enter, written, fade = enter_factor(c, here), written_factor(c, here), fade_factor(c, here)
    before = k.let("before", cast(state, key))
    k.note("what is erased: what the state and the chunk's earlier rows hold under the erase vector")
    held = k.let("held", times(product(c, before, erase), enter, t="s"))
    gone = k.let("gone", 0.0 - product(c, cast(held, key), solved, product(c, value, known)))
    k.note("the query reads the carried state and what is written, and misses what is erased")
    carried = product(c, value, weights, times(product(c, before, query), enter))
    give(c, here, product(c, rename(cast(gone, key), t="s"), overlaps, carried), value)
    k.note("carry: fade the state, add what is written, take away what is erased")
    added = product(c, value if written is None else cast(times(value, written, t="s"), key), key, times(state, fade))
    left = k.load("erased_factor", passing(k, "erased_on"), c.w.batch, c.w.head, here.span("s")) if c.form.gates else None
    k.update(state, product(c, cast(times(rename(gone, t="s"), left), key), write, added))


def give(c: Place, here: Rows, out: Expr, value: Expr) -> None:
    """Stores a chunk's results [p, t], scaled and weighted, with what skips past of the targets' own values [s, p]."""
    k = c.k
    given = out * size("scale", ACC)
    for row in weights_of(k, c.form.weighing("target"), c.w, here, "t"):
        given = given * row
    if c.skip is not None:
        same = cast(select(c.lane.same(rename(c.lane, t="s")), 1.0, 0.0), value)
        given = given + c.skip * product(c, value, k.let("same", same))
    target, head = table(k, c.w, "result", "P", via=c.layout.via)
    k.store(target, c.w.batch, here.span("t"), head, c.p, value=cast(k.let("scaled", given), target.name))
