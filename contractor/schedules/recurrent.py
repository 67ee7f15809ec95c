"""Recurrent: position by position, with the state in registers. Legal for every mask that carries a state.

state ← transition · state + key value, result = query · state. No tensor units, T dependent steps: the order of decoding, of very
short sequences, and of transitions that no other order knows. States may take turns (dilated masks) and begin anew (blocks).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.schedules.parts.beside import skip_of
from contractor.schedules.parts.ends import entering, leaving
from contractor.schedules.parts.factors import LOG2E
from contractor.schedules.parts.form import WEIGHTS, Form, Gate, Matrix, Task
from contractor.schedules.parts.tilings import power, tiling
from contractor.schedules.parts.turns import STATES, Turn, Turns, turn, turns
from contractor.schedules.parts.walk import Layout, Walk, head_of, inner, outer, sizes, table, walk
from contractor.tile.build import Builder
from contractor.tile.expression import Tile
from contractor.tile.kernel import Kernel, Span
from contractor.tile.ops import ACC, I64, Expr, cast, exp2, iota, number, rename, size, total

SAYS = "state ← transition · state + key[t, n] · value[t, p]; result[t, p] = scale · Σ over n of query[t, n] · state[n, p]"


class Recurrent:
    """Position by position, the state in registers."""

    name = "recurrent"
    stepwise = True
    fuses = True

    def refusal(self, form: Form) -> str:
        """The mask's entries must be products of transitions, on a support that states can follow by turns and by blocks."""
        own = turns(form)
        if not form.directed or own is None or form.tables:
            return form.stateless or "the mask is more than a product of transitions, so no state can be carried"
        if own != Turns() and (form.initial or form.final):
            return "the state of a mask by turns or by blocks is not handed from one call to the next yet"
        return ""

    def careful(self, _form: Form) -> bool:
        """A careful task on 16-bit operands is one for its kernels too."""
        return True

    def flows(self, _form: Form) -> bool:
        """Gradients of gates are made outside."""
        return False

    def tilings(self, task: Task, machine: Machine) -> tuple[Tiling, ...]:
        """Few columns a program: the state must stay in registers, and programs must fill the machine."""
        states = (turns(task.form) or Turns()).states
        columns = 8 if states > 1 or any(step.kind == "dense" for step in task.form.matrices) else 32
        one = tiling(task, machine, columns, 4, 1, smallest=1)
        if machine.kind == "gpu" and power(states) * one["BLOCK_N"] * one["BLOCK_P"] > machine.registers:
            return ()
        if states > 1:
            one = replace(one, constants=(*one.constants, (STATES, states if machine.kind == "cpu" else power(states))))
        return (replace(one, via="pointer"),)

    def kernels(self, form: Form, layout: Layout) -> tuple[Kernel, ...]:
        """The recurrent kernel."""
        return (kernel(form, layout),)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of the walk: the program, its columns (m: those of matrices, None without any), the position."""

    k: Builder
    w: Walk
    n: Span
    p: Span
    m: Span | None
    position: Expr


def kernel(form: Form, layout: Layout) -> Kernel:
    """The recurrent kernel of a form."""
    axes = {axis: name for axis, name in sizes(layout).items() if axis in "np"}
    k = Builder("recurrent", SAYS, axes, scalars=("scale", "T", "B", "SEQUENCES"))
    w = walk(k, form, layout)
    n, p, m = inner(k, layout), outer(k, layout, w), columns(k, form, layout)
    share = skip_of(k, w) if form.skip else None
    state = states(k, form) if turns(form) not in (None, Turns()) else entering(k, form, layout, w, n, p)
    with k.loop("step", w.length) as step:
        along = w.length - 1 - step if form.future else step
        place = cast(along, I64) if w.begin is None else k.let("place", cast(along, I64))
        position = k.let("position", place if w.begin is None else w.begin + place)
        here = Step(k, w, n, p, m, position)
        query, key, value = vector(here, "query", n), vector(here, "key", n), vector(here, "value", p)
        update = k.let("update", weighted(here, form.weighing("source"), key * value))
        now = turn(k, form, position if w.begin is None else place)
        kept = now.begun(state)
        past = None if form.future else entered(here, form, kept)
        before = now.mine(kept if past is None else past)
        current = before if form.strict else k.let("current", before + update)
        result = k.let("out", total(query * current, "n"))
        given = weighted(here, form.weighing("target"), result * size("scale", ACC))
        target, head = table(k, w, "result", "P")
        k.store(target, w.batch, position, head, p, value=cast(given if share is None else given + share * value, target.name))
        k.update(
            state, left(here, form, kept, now.spread(update)) if past is None else passed(here, form, kept, past, current, now, update)
        )
    leaving(k, form, layout, w, n, p, state)
    return k.done()


def states(k: Builder, form: Form) -> Tile:
    """The state, or the states that take turns."""
    if (turns(form) or Turns()).states == 1:
        return k.full("state", "n", "p")
    k.axis("r", STATES)
    return k.full("state", "r", "n", "p")


def columns(k: Builder, form: Form, layout: Layout) -> Span | None:
    """The columns of matrices, under an axis of their own."""
    if not any(step.kind == "dense" for step in form.matrices):
        return None
    k.axis("m", sizes(layout)["n"])
    index = k.let("m", iota("m"))
    return Span("m", number(0), index, index < size("N") if layout.padded_n else None)


def parted(form: Form) -> tuple[list[Gate | Matrix], list[Gate | Matrix], bool]:
    """The early steps and the late ones, in the order in which they are applied; True if the two may not be crossed one after the other,
    as matrices stand among them."""
    early = [step for step in reversed(form.steps) if not step.shift]
    late = [step for step in reversed(form.steps) if step.shift]
    return early, late, bool(early and late and form.matrices)


def entered(here: Step, form: Form, state: Expr) -> Expr:
    """What the target reads: the state after the early steps."""
    early, _, mixed = parted(form)
    return crossed(here, early, state, "entering_" if mixed else "")


def passed(here: Step, form: Form, state: Expr, read: Expr, current: Expr, now: Turn, update: Expr) -> Expr:
    """The state behind the position, to the next one."""
    _, late, mixed = parted(form)
    if mixed:
        return crossed(here, list(reversed(form.steps)), state) + now.spread(update)
    return crossed(here, late, read) + now.spread(update) if late or form.strict or now.own is not None else current


def left(here: Step, form: Form, state: Expr, update: Expr) -> Expr:
    """The state before the position, to the one before, where steps run from the future: what is written here crosses early steps only."""
    early, late, mixed = parted(form)
    if mixed:
        return crossed(here, list(reversed(form.steps)), state) + crossed(here, early, update, "entering_")
    return crossed(here, early, crossed(here, late, state) + update)


def vector(here: Step, name: str, span: Span, prefix: str = "") -> Expr:
    """One position of an operand, in the accumulators' precision."""
    source, head = table(here.k, here.w, name, span.axis.upper())
    return cast(here.k.load(f"{prefix}{name}_row", source, here.w.batch, here.position, head, span), ACC)


def weighted(here: Step, names: tuple[str, ...], row: Expr, prefix: str = "") -> Expr:
    """A row, or what it writes, times the position's numbers in some buffers."""
    for name in names:
        source, head = table(here.k, here.w, name, dtype=ACC)
        row = row * here.k.load(f"{prefix}{name}_row", source, here.w.batch, here.position, head)
    return row


def crossed(here: Step, steps: list[Gate | Matrix], state: Expr, prefix: str = "") -> Expr:
    """The state after crossing the position under the given steps, first to last."""
    for step in steps:
        if isinstance(step, Gate):
            state = state * faded(here, step, prefix)
        elif step.kind == "dense":
            state = multiplied(here, step, state, prefix)
        else:
            state = erased(here, step, state, prefix)
    return state


def faded(here: Step, gate: Gate, prefix: str) -> Expr:
    """The factor of a scalar or diagonal gate."""
    k, w = here.k, here.w
    dims = tuple(side.upper() for side in gate.features)
    spans = tuple(here.n if side == "n" else here.p for side in gate.features)
    count, head = head_of(w, gate.name)
    name = f"{prefix}{gate.name}" + ("" if gate.by_value else "_natural")
    if gate.fixed:
        found = k.load(f"{name}_row", k.buffer(gate.name, count, *dims, dtype=ACC), head, *spans)
    else:
        found = k.load(f"{name}_row", k.buffer(gate.name, "B", "T", count, *dims, dtype=ACC), w.batch, here.position, head, *spans)
    return found if gate.by_value else k.let(f"{prefix}{gate.name}_factor", exp2(found * LOG2E))


def multiplied(here: Step, step: Matrix, state: Expr, prefix: str) -> Expr:
    """matrix [n, m] · state [m, p]."""
    k, w = here.k, here.w
    assert here.m is not None
    count, head = head_of(w, step.name)
    where = () if step.fixed else (w.batch, here.position)
    dims = () if step.fixed else ("B", "T")
    matrix = k.load(f"{prefix}{step.name}_tile", k.buffer(step.name, *dims, count, "N", "N", dtype=ACC), *where, head, here.n, here.m)
    before = k.let(f"{prefix}{step.name}_before", state)
    return k.let(f"{prefix}{step.name}_state", total(matrix * rename(before, n="m"), "m"))


def erased(here: Step, step: Matrix, state: Expr, prefix: str) -> Expr:
    """diag(exp log) · state − key (eraseᵀ state)."""
    k, name = here.k, f"{prefix}{step.name}"
    write, erase = sides(here, step, prefix)
    before = k.let(f"{name}_before", state)
    kept = before
    if step.log:
        kept = before * k.let(f"{name}_factor", exp2(vector(here, f"{step.name}_log", here.n, prefix) * LOG2E))
    return k.let(f"{name}_state", kept - write * k.let(f"{name}_erased", total(erase * before, "n")))


def sides(here: Step, step: Matrix, prefix: str) -> tuple[Expr, Expr]:
    """The key that a rank-one step erases at, its strength in it, and what it reads the state by."""
    if step.tied:
        own = vector(here, "key", here.n, f"{prefix}{step.name}_")
        return weighted(here, (WEIGHTS["source"],), own, f"{prefix}{step.name}_"), own
    return vector(here, f"{step.name}_key", here.n, prefix), vector(here, f"{step.name}_erase", here.n, prefix)
