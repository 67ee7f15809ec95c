"""From a mixing in letters and a problem with sizes to one contraction in normal form: Core × Problem → Task.

What is decided here is kind and size only; tensors of the same layout are made in `run`. Gates of one crossing are added up: the sum
differs over every feature that any of them differs over and is fixed only if all are. Complex numbers become real ones: a complex
query, key or transition doubles N (real and imaginary parts side by side) and the heads (the result's two parts), a complex value P, a
complex entrywise factor the heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from contractor.plan.problem import Problem
from contractor.program.expression import Axes, Expression, Number, Relabel, Variable, children
from contractor.program.masks.mask import Dense, Fade, Lookup, RankOne, Step
from contractor.program.mixing import Core, Factor
from contractor.program.program import Definition, Program
from contractor.schedules.parts.conditions import arguments, direction
from contractor.schedules.parts.form import ROLES, WEIGHTS, Dimensions, Form, Gate, Matrix, Side, Table, Task
from contractor.schedules.parts.scale import scale_of

REAL = {"complex64": "float32", "complex128": "float64"}
SIDES: dict[str, Side] = {"inner": "n", "outer": "p"}


@dataclass(frozen=True, slots=True)
class Crossing:
    """The scalar and diagonal transitions that are added up to one gate."""

    gate: Gate
    members: tuple[Fade, ...]


def task(core: Core, problem: Problem) -> Task:
    """The contraction of a core at a problem's sizes."""
    directed, strict, support = direction(core.term.law.support)
    steps = tuple(
        step.gate if isinstance(step, Crossing) else matrix(core, problem.program, step, index)
        for index, step in enumerate(crossings(core, problem.program))
    )
    shape = dimensions(core, problem)
    form = Form(
        steps=steps,
        tables=tuple(table(problem.program, weight, index) for index, weight in enumerate(core.lookups)),
        arguments=arguments(support),
        support=support,
        directed=directed or bool(steps),
        future=runs_from_future(core),
        strict=strict or any(step.shift for step in steps),
        grouped=tuple(name for name, _ in shape.heads),
        shifted=support is not None and problem.sizes.S < problem.sizes.T,
        stateless=core.term.carries(),
        packed=problem.packed is not None,
        initial=problem.initial,
        final=problem.final,
        pooled=problem.pooled,
        weights=tuple((WEIGHTS[row], row) for row, own in core.weights if own),
        skip=core.skip is not None,
    )
    return Task(form, shape, REAL.get(problem.dtype, problem.dtype), scale=scale_of(core.scale, problem.sizes))


def crossings(core: Core, program: Program) -> tuple[Crossing | Step, ...]:
    """The steps of a mask in the order written, with neighbouring scalars and diagonals of one shift added up."""
    found: list[Crossing | Step] = []
    groups: list[list[Fade]] = []
    for step in core.term.law.steps:
        if not isinstance(step, Fade) or turns_rows(core, step):
            found.append(step)
            groups.append([])
        elif commuting(found, groups, step):
            index = next(i for i, group in enumerate(groups) if group and group[0].shift == step.shift)
            groups[index].append(step)
        else:
            found.append(Crossing(Gate("gate"), ()))
            groups.append([step])
    names = [index for index, group in enumerate(groups) if group]
    return tuple(
        Crossing(gate(core, program, tuple(group), gate_name(names.index(index))), tuple(group)) if group else step
        for index, (step, group) in enumerate(zip(found, groups, strict=True))
    )


def turns_rows(core: Core, step: Fade) -> bool:
    """True for a complex diagonal beside a matrix: its phases pass no matrix by, so it is one itself."""
    return core.matrix and step.value.number == Number.COMPLEX and bool(core.sides(step.value) & {"inner"})


def commuting(found: list[Crossing | Step], groups: list[list[Fade]], step: Fade) -> bool:
    """True if the step may join a gate that is there: no matrix stands in the mask, and the shifts agree."""
    return all(isinstance(one, Crossing) for one in found) and any(group and group[0].shift == step.shift for group in groups)


def gate_name(index: int) -> str:
    """The buffer of a gate."""
    return ("gate", "late_gate", "outer_gate")[index] if index < 3 else f"gate_{index}"


def gate(core: Core, program: Program, members: tuple[Fade, ...], name: str) -> Gate:
    """The gate that some fades add up to."""
    sides = {side for member in members for side in core.sides(member.value)}
    return Gate(
        name=name,
        fixed=all("S" not in member.value.axes and not per_batch(program, member.value) for member in members),
        features=tuple(SIDES[side] for side in ("inner", "outer") if side in sides),
        shift=members[0].shift,
        resets=any(may_reset(program, member) for member in members),
        by_value=core.matrix and not all(member.log for member in members),
        shared=any(reads(program, member.value, "param") for member in members),
    )


def per_batch(program: Program, value: Expression) -> bool:
    """True if a value may differ between batch elements: it reads an input."""
    return reads(program, value, "input")


def reads(program: Program, value: Expression, role: str) -> bool:
    """True if a value reads an operand of a role."""
    if isinstance(value, Variable):
        for definition in program.definitions:
            if definition.name == value.name and isinstance(definition, Definition):
                return reads(program, definition.value, role)
        return any(operand.name == value.name and operand.role == role for operand in program.operands)
    return any(reads(program, child, role) for child in children(value))


def may_reset(program: Program, fade: Fade) -> bool:
    """False if a promise rules out that the transition is 0 (its log −inf, or too far down to add up)."""
    low, _ = promised(program, fade.value)
    floor = -1e3 if fade.log else 1e-300
    return not low >= floor


def promised(program: Program, value: Expression) -> tuple[float, float]:
    """The range that the spec promises for an operand; unknown is everything."""
    if isinstance(value, Variable):
        for operand in program.operands:
            if operand.name == value.name:
                return operand.low, operand.high
    return -math.inf, math.inf


def matrix(core: Core, program: Program, step: Step, index: int) -> Matrix:
    """The form of a matrix transition. Beside complex numbers it acts on real and imaginary parts together, so it is dense."""
    name = "transition" if index == 0 else f"transition_{index + 1}"
    inner, _ = complex_sides(core)
    match step:
        case Dense() | Fade():
            return Matrix(name, "dense", "S" not in step.value.axes and not per_batch(program, step.value), shift=step.shift)
        case RankOne() if inner:
            return Matrix(name, "dense", shift=step.shift)
        case RankOne():
            return Matrix(name, "rank_one", log=step.log is not None, shift=step.shift, tied=tied(core, step))


def tied(core: Core, step: RankOne) -> bool:
    """True if a rank-one step erases at the key that the contraction writes at, by the strength that its weight is."""
    keys = {unlabelled(value) for value in (*(factor.value for factor in core.key), step.key, step.erase)}
    return len(core.key) == len(keys) == 1 and [factor.value for factor in core.source_weight] == [step.beta]


def unlabelled(value: Expression) -> Expression:
    """A tensor by its own axes."""
    return value.value if isinstance(value, Relabel) else value


def lookups(core: Core) -> tuple[Lookup, ...]:
    """The entrywise factors that are read from tensors."""
    return core.lookups


def runs_from_future(core: Core) -> bool:
    """True if the contraction is read with t and s exchanged: its mask runs from the future, or its result has S in T's place."""
    return core.term.exchanged != core.exchanged


def table(program: Program, weight: Lookup, index: int) -> Table:
    """The form of an entrywise factor."""
    return Table("table" if index == 0 else f"table_{index + 1}", weight.index, per_batch(program, weight.value))


def dimensions(core: Core, problem: Problem) -> Dimensions:
    """The sizes of a core, batch letters folded into the heads."""
    inner, outer = complex_sides(core)
    heads = problem.sizes.H * extent(core, problem, core.batch) * 2 ** (inner + len(turning_tables(core)))
    return Dimensions(
        B=problem.sizes.B,
        T=max(problem.sizes.T, problem.sizes.S),
        H=heads,
        N=extent(core, problem, core.column or core.inner) * (2 if inner else 1),
        P=extent(core, problem, core.outer) * (2 if outer else 1),
        heads=tuple(grouped(core, problem, heads)),
        offset=max(0, problem.sizes.T - problem.sizes.S),
        sequences=problem.packed.sequences if problem.packed else 0,
    )


def extent(core: Core, problem: Problem, letters: Axes) -> int:
    """How many values some letters have together."""
    axis_of = dict(core.axis_of)
    return math.prod(problem.sizes[axis_of[letter]] for letter in letters)


def complex_sides(core: Core) -> tuple[bool, bool]:
    """(query, key or transition complex, value complex)."""
    turning = [value for step in core.term.law.steps for value in parts(step) if value.number == Number.COMPLEX]
    on_value = ["outer" in core.sides(value) for value in turning]
    inner = [factor.value.number for factor in (*core.query, *core.key)]
    outer = [factor.value.number for factor in core.value]
    return Number.COMPLEX in inner or not all(on_value), Number.COMPLEX in outer or any(on_value)


def parts(step: Step) -> tuple[Expression, ...]:
    """The expressions of a transition."""
    if isinstance(step, RankOne):
        return (step.beta, step.key, step.erase, *(() if step.log is None else (step.log,)))
    return (step.value,)


def turning_tables(core: Core) -> tuple[int, ...]:
    """The numbers of the entrywise factors that are complex: the real and the imaginary part of each take heads of their own."""
    return tuple(index for index, table in enumerate(core.tables) if table.value.number == Number.COMPLEX)


def grouped(core: Core, problem: Problem, heads: int) -> Iterator[tuple[str, int]]:
    """Buffers with fewer heads than the contraction; batch letters make every buffer carry all of them."""
    if core.batch:
        return
    doubled = heads // problem.sizes.H
    for role in ROLES:
        count = heads_of(tuple(factor.value for factor in getattr(core, role)), problem)
        count = count * doubled if role == "query" else count
        if count != heads:
            yield role, count
    beside = {WEIGHTS[row]: tuple(factor.value for factor in own) for row, own in core.weights}
    beside["skip"] = () if core.skip is None else (core.skip,)
    for name, values in beside.items():
        if values and (count := heads_of(values, problem)) != heads:
            yield name, count
    for step in crossings(core, problem.program):
        if isinstance(step, Crossing):
            count = heads_of(tuple(member.value for member in step.members), problem)
            if count != heads:
                yield step.gate.name, count


def heads_of(values: tuple[Expression, ...], problem: Problem) -> int:
    """The head count of a product of expressions: the largest of its operands' where all divide it, else H."""
    counts = {count for value in values for count in operand_heads(value, problem)} or {1}
    most = max(counts)
    return most if all(most % count == 0 for count in counts) else problem.sizes.H


def operand_heads(value: Expression, problem: Problem) -> Iterator[int]:
    """The head counts of the operands that an expression reads."""
    if isinstance(value, Variable):
        definition = next((one for one in problem.program.definitions if one.name == value.name), None)
        if isinstance(definition, Definition):
            yield from operand_heads(definition.value, problem)
        else:
            yield problem.heads_of(value.name)
    for child in children(value):
        yield from operand_heads(child, problem)


def letters_of(factors: tuple[Factor, ...]) -> Axes:
    """All feature letters of some factors, each once."""
    return tuple(dict.fromkeys(letter for factor in factors for letter in factor.features))
