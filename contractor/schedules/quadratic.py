"""Quadratic: scores first, tile by tile, skipping the tiles that the mask leaves empty. Legal for every mask whose entries are numbers.

One program owns a block of targets and a block of the result's columns, and walks the blocks of sources that its targets can see. Under
gates it starts at its own block and walks away from it: the decay between the two blocks is a running sum, so no exponent is positive
and none is the difference of long sums. (Attention's order of evaluation; the quadratic form of Mamba-2, Dao and Gu, 2024, section 5.)
"""

from __future__ import annotations

from dataclasses import dataclass

from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.schedules.parts.beside import skip_of, weights_of
from contractor.schedules.parts.factors import NEVER, Spans, exponents, gate_points, rates
from contractor.schedules.parts.form import Form, Task
from contractor.schedules.parts.support import bounds, directed, supported, visible
from contractor.schedules.parts.tables import looked_up
from contractor.schedules.parts.tilings import ROWS, fitting, tiling
from contractor.schedules.parts.walk import Layout, Rows, Walk, inner, outer, rows, sizes, table, walk
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel
from contractor.tile.ops import ACC, Expr, cast, cdiv, dot, exp2, iota, rename, select, size, total

SAYS = "result[t, p] = scale · Σ over s and n of L[t, s] · query[t, n] · key[s, n] · value[s, p], scores first"


class Quadratic:
    """Scores first, tile by tile."""

    name = "quadratic"
    stepwise = False
    fuses = True

    def refusal(self, form: Form) -> str:
        """Entries must be numbers for each query channel or each value channel."""
        if form.matrices:
            return "each of the T² entries is a matrix: there are no scores to form"
        if any(len(gate.features) > 1 for gate in form.gates):
            return "a gate differs for every entry of the state, so every pair of positions would need N · P scores"
        if {"n", "p"} <= {side for gate in form.gates for side in gate.features}:
            return (
                "one gate differs over the query's channels and another over the value's: every pair of positions would need N · P scores"
            )
        return form.walked

    def careful(self, _form: Form) -> bool:
        """A careful task wants wider operands."""
        return False

    def flows(self, _form: Form) -> bool:
        """Gradients of gates are made outside."""
        return False

    def tilings(self, task: Task, machine: Machine) -> tuple[Tiling, ...]:
        """Under a gate for each channel the own block is a tile of three axes, so its rows are few."""
        rows = ROWS if task.form.scalar else 16
        if machine.kind == "cpu":
            return (tiling(task, machine, 0, 1, 1, rows),)
        blocks = ((64, 8, 1),) if task.dtype == "float32" else ((128, 4, 2), (64, 4, 2), (64, 4, 1))
        candidates = tuple(tiling(task, machine, *block, rows) for block in blocks)
        return fitting(task, machine, candidates)

    def kernels(self, form: Form, layout: Layout) -> tuple[Kernel, ...]:
        """The quadratic kernel."""
        return (kernel(form, layout),)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What the walk over the source blocks holds: the program's place, its targets and their query, the columns, the result so far."""

    k: Builder
    form: Form
    layout: Layout
    w: Walk
    lane: Expr
    targets: Rows
    query: Expr
    spans: Spans
    out: Expr
    known: dict[str, Expr]
    fixed: dict[str, Expr]


def kernel(form: Form, layout: Layout) -> Kernel:
    """The quadratic kernel of a form."""
    k = Builder("quadratic", SAYS, sizes(layout), scalars=("scale", "T", "B", "offset"))
    w = walk(k, form, layout, split_rows=True)
    assert w.row_block is not None
    spans: Spans = {"n": inner(k, layout), "p": outer(k, layout, w)}
    lane = k.let("lane", iota("t"))
    targets = rows(k, w, lane, w.row_block)
    source, head = table(k, w, "query", "N", via=layout.via)
    query = k.load("query_tile", source, w.batch, targets.span("t"), head, spans["n"])
    block = Block(k, form, layout, w, lane, targets, query, spans, k.full("out", "t", "p"), bounds(k, form, w), rates(k, form, w, spans))
    if form.gates:
        gated(block)
    else:
        plain(block)
    given = block.out * size("scale", ACC)
    for row in weights_of(k, form.weighing("target"), w, targets, "t"):
        given = given * row
    if form.skip:
        source, head = table(k, w, "value", "P", via=layout.via)
        own_value = k.load("skip_tile", source, w.batch, targets.span("t"), head, spans["p"])
        given = given + skip_of(k, w) * cast(own_value, ACC)
    target, head = table(k, w, "result", "P", via=layout.via)
    k.store(target, w.batch, targets.span("t"), head, spans["p"], value=cast(k.let("scaled", given), target.name))
    return k.done()


# ---- without gates ----------------------------------------------------------------------------------------------------------


def plain(b: Block) -> None:
    """Every visible block of sources; under a mask that only has a direction, its own block alone needs a comparison."""
    form = b.form
    blocks = b.k.let("blocks", cdiv(size("T"), size("CHUNK")))
    simple = form.directed and form.support is None
    seen = visible(b.k, form, b.w, b.known, blocks, own=not simple)
    with b.k.loop("step", seen.count) as step:
        source = rows(b.k, b.w, b.lane, seen.first + step, "source_")
        key, value = tiles(b, source, "")
        scores = b.k.let("scores", dot(b.query, key, precision=b.layout.precision))
        accumulate(b, weighted(b, scores, source, not simple, ""), value)
    if simple:
        b.k.note("the targets' own block: sources are compared")
        key, value = tiles(b, b.targets, "own_")
        scores = b.k.let("own_scores", dot(b.query, key, precision=b.layout.precision))
        accumulate(b, weighted(b, scores, b.targets, True, "own_"), value)


def weighted(b: Block, scores: Expr, source: Rows, compared: bool, prefix: str) -> Expr:
    """The scores under the mask's support and entrywise factors."""
    scores = entrywise(b, scores, source, prefix)
    condition = pairs(b, source, prefix) if compared else None
    return b.k.let(f"{prefix}weights", scores if condition is None else select(condition, scores, 0.0))


def pairs(b: Block, source: Rows, prefix: str) -> Expr | None:
    """Which pairs are seen: the direction and the support; None where all are."""
    form = b.form
    direction = directed(form, b.targets.place, rename(source.place, t="s")) if form.directed else None
    support = None if form.support is None else supported(b.k, form, b.w, b.known, b.targets, source, prefix)
    both = direction if support is None else support if direction is None else direction & support
    return None if both is None else b.k.let(f"{prefix}seen", both)


# ---- under gates ------------------------------------------------------------------------------------------------------------


def gated(b: Block) -> None:
    """The own block first, then away from it, with the decay so far in `passed`."""
    form, k = b.form, b.k
    seen = pairs(b, b.targets, "own_")
    assert seen is not None and b.w.row_block is not None
    logs = exponents(gate_points(k, form, b.layout, b.w, b.fixed, b.targets, b.lane, b.spans, "own_"), form.future)
    within = k.let("within", exp2(select(seen, logs.within, NEVER)))
    key, value = tiles(b, b.targets, "own_")
    own(b, within, key, value)
    enter = k.let("enter", logs.enter)
    passed = k.full("passed", *(axis for axis in enter.axes if axis != "t"))
    blocks = k.let("blocks", cdiv(size("T"), size("CHUNK")))
    seen_blocks = visible(k, form, b.w, b.known, blocks, own=False)
    with k.loop("step", seen_blocks.count) as step:
        block = b.w.row_block + 1 + step if form.future else b.w.row_block - 1 - step
        source = rows(k, b.w, b.lane, block, "source_")
        logs = exponents(gate_points(k, form, b.layout, b.w, b.fixed, source, b.lane, b.spans), form.future)
        apart(b, k.let("since", exp2(enter + passed)), k.let("leave", exp2(logs.leave)), source)
        k.update(passed, passed + logs.fade)


def own(b: Block, within: Expr, key: Expr, value: Expr) -> None:
    """The own block, where every pair has a decay of its own: over (t, s), or over (t, s, feature) where it differs by feature."""
    k = b.k
    if "n" in within.axes:
        products = cast(b.query, ACC) * within * cast(key, ACC)
        accumulate(b, k.let("own_weights", entrywise(b, total(products, "n"), b.targets, "own_")), value)
        return
    scores = entrywise(b, k.let("own_scores", dot(b.query, key, precision=b.layout.precision)), b.targets, "own_")
    if "p" in within.axes:
        products = scores * within * cast(value, ACC)
        k.update(b.out, b.out + total(products, "s"))
        return
    accumulate(b, k.let("own_weights", scores * within), value)


def entrywise(b: Block, scores: Expr, source: Rows, prefix: str) -> Expr:
    """The scores times the entrywise factors and the sources' weights."""
    for table_form in b.form.tables:
        scores = scores * looked_up(b.k, b.form, b.w, table_form, b.targets, source, prefix)
    for row in weights_of(b.k, b.form.weighing("source"), b.w, source, "s", prefix):
        scores = scores * row
    return scores


def apart(b: Block, since: Expr, leave: Expr, source: Rows) -> None:
    """A block away from the targets': its decay is a factor of each target times a factor of each source."""
    k, form = b.k, b.form
    key, value = tiles(b, source, "")
    query = b.query
    if "n" in since.axes:
        query = k.let("query_since", cast(cast(query, ACC) * since, query))
        key = k.let("key_leave", cast(cast(key, ACC) * leave, key))
    else:
        value = k.let("value_leave", cast(cast(value, ACC) * leave, value))
    scores = entrywise(b, k.let("scores", dot(query, key, precision=b.layout.precision)), source, "")
    if form.support is not None:
        scores = select(supported(k, form, b.w, b.known, b.targets, source, ""), scores, 0.0)
    part = dot(cast(k.let("weights", scores), value), value, precision=b.layout.precision)
    k.update(b.out, b.out + (part if "n" in since.axes else part * since))


# ---- both -------------------------------------------------------------------------------------------------------------------


def tiles(b: Block, source: Rows, prefix: str) -> tuple[Expr, Expr]:
    """A source block's key over (s, n) and value over (s, p)."""
    key_buffer, key_head = table(b.k, b.w, "key", "N", via=b.layout.via)
    value_buffer, value_head = table(b.k, b.w, "value", "P", via=b.layout.via)
    key = b.k.load(f"{prefix}key_tile", key_buffer, b.w.batch, source.span("s"), key_head, b.spans["n"])
    return key, b.k.load(f"{prefix}value_tile", value_buffer, b.w.batch, source.span("s"), value_head, b.spans["p"])


def accumulate(b: Block, weights: Expr, value: Expr) -> None:
    """out ← out + weights · value."""
    b.k.update(b.out, dot(cast(weights, value), value, into=b.out, precision=b.layout.precision))
