"""Recurrent: position by position, with the state in registers. Legal for every mask that carries a state.

state ← transition · state + key value, result = query · state. No tensor units, T dependent steps: the order of decoding, of very
short sequences, and of transitions that no other order knows.
"""

from __future__ import annotations

from dataclasses import replace

from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.schedules.parts.factors import LOG2E
from contractor.schedules.parts.form import Form, Gate, Matrix, Task
from contractor.schedules.parts.tilings import tiling
from contractor.schedules.parts.walk import Layout, Walk, head_of, inner, outer, sizes, table, walk
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel, Span
from contractor.tile.ops import ACC, I64, Expr, cast, exp2, iota, rename, size, total

SAYS = "state ← transition · state + key[t, n] · value[t, p]; result[t, p] = scale · Σ over n of query[t, n] · state[n, p]"


class Recurrent:
    """Position by position, the state in registers."""

    name = "recurrent"

    def refusal(self, form: Form) -> str:
        """The mask's entries must be products of transitions and nothing else."""
        if not form.directed or form.support is not None or form.tables:
            return form.stateless or "the mask is more than a product of transitions, so no state can be carried"
        return ""

    def tilings(self, task: Task, machine: Machine) -> tuple[Tiling, ...]:
        """Few columns a program: the state must stay in registers, and programs must fill the machine."""
        if machine.kind == "cpu":
            return (tiling(task, machine, 0, 1, 1),)
        columns = 8 if any(step.kind == "dense" for step in task.form.matrices) else 32
        return (replace(tiling(task, machine, columns, 4, 1, smallest=1), via="pointer"),)

    def kernel(self, form: Form, layout: Layout) -> Kernel:
        """The recurrent kernel."""
        return kernel(form, layout)


def kernel(form: Form, layout: Layout) -> Kernel:
    """The recurrent kernel of a form.

    A step that is late (shift 1) is crossed after the target has read the state, an early one (shift 0) before; in the future
    direction the two exchange their places with the write.
    """
    k = Builder("recurrent", SAYS, {axis: name for axis, name in sizes(layout).items() if axis in "np"}, scalars=("scale", "T", "B"))
    w = walk(k, form, layout)
    n, p = inner(k, layout), outer(k, layout, w)
    if any(step.kind == "dense" for step in form.matrices):
        k.axis("m", sizes(layout)["n"])
    state = k.full("state", "n", "p")
    with k.loop("step", size("T")) as step:
        position = k.let("position", cast(size("T") - 1 - step if form.future else step, I64))
        query = vector(k, form, w, "query", position, n)
        update = k.let("update", vector(k, form, w, "key", position, n) * vector(k, form, w, "value", position, p))
        early = [step for step in reversed(form.steps) if not step.shift]
        late = [step for step in reversed(form.steps) if step.shift]
        entered = state if form.future else crossed(k, form, w, early, state, position, n, p)
        current = entered if form.strict else k.let("current", entered + update)
        result = k.let("out", total(query * current, "n"))
        target, head = table(k, w, "result", "P")
        k.store(target, w.batch, position, head, p, value=cast(result * size("scale", ACC), target.name))
        if form.future:
            k.update(state, crossed(k, form, w, early, crossed(k, form, w, late, state, position, n, p) + update, position, n, p))
        elif late or form.strict:
            k.update(state, crossed(k, form, w, late, entered, position, n, p) + update)
        else:
            k.update(state, current)
    return k.done()


def vector(k: Builder, form: Form, w: Walk, name: str, position: Expr, span: Span) -> Expr:
    """One position of an operand, in the accumulators' precision."""
    source, head = table(k, w, name, span.axis.upper())
    return cast(k.load(f"{name}_row", source, w.batch, position, head, span), ACC)


def crossed(k: Builder, form: Form, w: Walk, steps: list[Gate | Matrix], state: Expr, position: Expr, n: Span, p: Span) -> Expr:
    """The state after crossing the position under the given steps, first to last."""
    for step in steps:
        if isinstance(step, Gate):
            state = state * faded(k, form, w, step, position, n, p)
        elif step.kind == "dense":
            state = multiplied(k, form, w, step, state, position, n)
        else:
            state = erased(k, form, w, step, state, position, n)
    return state


def faded(k: Builder, form: Form, w: Walk, gate: Gate, position: Expr, n: Span, p: Span) -> Expr:
    """The factor of a scalar or diagonal gate."""
    dims = tuple(side.upper() for side in gate.features)
    spans = tuple(n if side == "n" else p for side in gate.features)
    count, head = head_of(w, gate.name)
    if gate.fixed:
        natural = k.load(f"{gate.name}_natural", k.buffer(gate.name, count, *dims, dtype=ACC), head, *spans)
    else:
        natural = k.load(f"{gate.name}_natural", k.buffer(gate.name, "B", "T", count, *dims, dtype=ACC), w.batch, position, head, *spans)
    return k.let(f"{gate.name}_factor", exp2(natural * LOG2E))


def multiplied(k: Builder, form: Form, w: Walk, step: Matrix, state: Expr, position: Expr, n: Span) -> Expr:
    """matrix [n, m] · state [m, p]."""
    count, head = head_of(w, step.name)
    m = Span("m", n.first, k.let("m", iota("m")), None if n.inside is None else rename(n.inside, n="m"))
    where = () if step.fixed else (w.batch, position)
    dims = () if step.fixed else ("B", "T")
    matrix = k.load(f"{step.name}_tile", k.buffer(step.name, *dims, count, "N", "N", dtype=ACC), *where, head, n, m)
    return k.let(f"{step.name}_state", total(matrix * rename(k.let("before", state), n="m"), "m"))


def erased(k: Builder, form: Form, w: Walk, step: Matrix, state: Expr, position: Expr, n: Span) -> Expr:
    """diag(exp log) · state − key (eraseᵀ state)."""
    write = vector(k, form, w, f"{step.name}_key", position, n)
    erase = vector(k, form, w, f"{step.name}_erase", position, n)
    before = k.let(f"{step.name}_before", state)
    kept = before
    if step.log:
        kept = before * k.let(f"{step.name}_factor", exp2(vector(k, form, w, f"{step.name}_log", position, n) * LOG2E))
    return k.let(f"{step.name}_state", kept - write * k.let(f"{step.name}_erased", total(erase * before, "n")))
