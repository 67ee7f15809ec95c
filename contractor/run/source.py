"""A plan → a file that runs alone: the kernels chosen for it, a function for each mixing, and a head that says what they compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from contractor.emit.launcher import Backend, Entry, emit_file
from contractor.emit.triton import function as text_of
from contractor.plan.choose import chosen
from contractor.plan.plan import Choice, Offer, Plan
from contractor.plan.problem import Problem
from contractor.plan.show import amount, duration
from contractor.program.expression import Expression, Number
from contractor.program.masks.mask import Dense, Fade, Lookup, RankOne, Step
from contractor.program.mixing import Core, Factor, Mixing, mixings
from contractor.program.program import Definition, Operand, Program
from contractor.program.show import axes_text, expression_text, law_lines, mask_text
from contractor.schedules.parts.form import WEIGHTS, Form
from contractor.schedules.parts.task import Crossing, complex_sides, crossings, lookups, promised, task
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import routine_of
from contractor.tile.kernel import Kernel
from contractor.tile.routine import Routine

Arguments = Iterator[tuple[str, str]]


def backend_for(found: Plan) -> Backend:
    """Triton text for a GPU, torch text for a CPU."""
    return "triton" if found.machine.kind == "gpu" else "torch"


def file_text(found: Plan) -> str:
    """The plan's kernels as a file that imports torch (and triton) alone. Raises RefusedError if a mixing has no order of evaluation."""
    return emit_file(entries(found), backend_for(found), tuple(title(found)))


def kernels(found: Plan) -> tuple[Kernel, ...]:
    """The kernels of every core, in order."""
    return tuple(launch.kernel for choice, core in cores(found) for launch in routine(choice, core, found).launches)


def cores(found: Plan) -> Iterator[tuple[Choice, Core]]:
    """Each core of the layer with what was chosen for it."""
    known = {core.name: core for mixing in mixings(found.problem.program) for core in mixing.terms}
    for choice in found.choices:
        yield choice, known[choice.name]


def routine(choice: Choice, core: Core, found: Plan) -> Routine:
    """The launches of a core."""
    offer = chosen(choice)
    return routine_of(SCHEDULES[offer.schedule], task(core, found.problem), offer.tiling)


# ---- functions ------------------------------------------------------------------------------------------------------------------


def entries(found: Plan) -> tuple[Entry, ...]:
    """A function for each core; kernels of one name and different text are told apart by the mixing's name."""
    made = list(cores(found))
    names = {id(one): one for one in kernels(found)}
    texts: dict[str, set[str]] = {}
    for one in names.values():
        texts.setdefault(one.name, set()).add(text_of(one))
    clash = {name for name, several in texts.items() if len(several) > 1}
    return tuple(entry(choice, core, found, clash, alone=len(made) == 1) for choice, core in made)


def entry(choice: Choice, core: Core, found: Plan, clash: set[str], alone: bool) -> Entry:
    """The function of one core."""
    program, name = found.problem.program, core.name.replace(".", "_")
    own = routine(choice, core, found)
    launches = tuple(
        replace(one, kernel=replace(one.kernel, name=f"{one.kernel.name}_{name}")) if one.kernel.name in clash else one
        for one in own.launches
    )
    mixing = next(one for one in mixings(program) if core in one.terms)
    wanted = task(core, found.problem)
    fuses = SCHEDULES[chosen(choice).schedule].fuses
    if not fuses:  # its kernels take the products
        core = replace(core, value=(*core.source_weight, *core.value), source_weight=(), target_weight=())
    told = (*arguments(core, program, wanted.form), *BESIDE)
    prefix = "" if alone else f"{name.upper()}_"
    return Entry(
        f"{program.name}_{name}",
        Routine(launches, own.scratch),
        tuple(says(mixing, core, found.problem, fuses)),
        told,
        prefix,
        wide=wanted.dimensions.P == 1,
        scale=wanted.scale,
    )


BESIDE = (
    ("starts", "where each packed sequence begins, and the end of the last"),
    ("initial", "the state before the first position"),
    ("slots", "where in the pool each sequence's state is; below 0: nowhere"),
    ("pool", "states, updated in place"),
    ("result", "what is returned"),
    ("final", "the state after the last position"),
    ("scale", "a factor of the result"),
)


def says(mixing: Mixing, core: Core, problem: Problem, fuses: bool) -> Iterator[str]:
    """What a function returns, in the layer's own words."""
    part = "" if len(mixing.terms) == 1 else f", the part {core.name} of it"
    yield f"{mixing.name} = {expression_text(mixing.contract)}{part}."
    if mixing.whole is not mixing.contract and (fuses or (core.skip is None and not core.target_weight)):
        yield f"Returned: {expression_text(mixing.whole)}."
    if core.term.coefficient:
        yield f"To be multiplied by {' · '.join(expression_text(one) for one in core.term.coefficient)}."
    if core.term.mirrored:
        yield "Tensors and result run from the last position to the first."
    if problem.sizes.T != problem.sizes.S:
        yield "T stands for the longer of T and S; tensors of the shorter are filled with zeros in front."
    if any(signed(crossing, problem.program) for crossing in crossings(core, problem.program)):
        yield "Signs and phases of the decay are multiplied into query and key, as prefix products."


def signed(crossing: Crossing | Step, program: Program) -> bool:
    """True if a decay may be negative or complex, so that its log is of its magnitude alone."""
    if not isinstance(crossing, Crossing):
        return False
    members = crossing.members
    return any(one.value.number is Number.COMPLEX or not (one.log or promised(program, one.value)[0] >= 0) for one in members)


def arguments(core: Core, program: Program, form: Form) -> Arguments:
    """Each tensor of a core and what the layer calls it."""
    inner, outer = complex_sides(core)
    parts = " (real and imaginary parts side by side)"
    yield "query", product(core.query) + parts * inner
    yield "key", product(core.key) + parts * inner
    yield "value", product(core.value) + parts * outer
    yield from ((WEIGHTS[row], product(own)) for row, own in core.weights)
    yield "skip", "" if core.skip is None else f"of the target's own value: {expression_text(core.skip)}"
    for number, step in enumerate(crossings(core, program)):
        name = form.steps[number].name
        match step:
            case Crossing():
                yield name, gate_text(step)
            case Dense() | Fade():
                yield name, expression_text(step.value)
            case RankOne() if form.matrices and any(one.name == name and one.tied for one in form.matrices):
                pass
            case RankOne():
                yield f"{name}_key", f"{expression_text(step.beta)} * {expression_text(step.key)}"
                yield f"{name}_erase", expression_text(step.erase)
                yield f"{name}_log", "" if step.log is None else f"natural log: {expression_text(step.log)}"
    yield from (table_text(table.name, weight) for table, weight in zip(form.tables, lookups(core), strict=True))
    yield from ((one.name, expression_text(one.value)) for one in form.arguments)


def table_text(name: str, weight: Lookup) -> tuple[str, str]:
    """A table of the mask's entries."""
    return name, f"the mask's {expression_text(weight.value)}"


def product(factors: tuple[Factor, ...]) -> str:
    """The operands of one side."""
    return " * ".join(expression_text(factor.value) for factor in factors) or "ones"


def gate_text(crossing: Crossing) -> str:
    """Of what a gate is the natural log."""
    logs = [expression_text(one.value) if one.log else f"log({expression_text(one.value)})" for one in crossing.members]
    if crossing.gate.by_value:
        values = [f"exp({expression_text(one.value)})" if one.log else expression_text(one.value) for one in crossing.members]
        return f"the decay: {' * '.join(values)}"
    return f"natural log of the decay: {' + '.join(logs)}"


# ---- head -----------------------------------------------------------------------------------------------------------------------


def title(found: Plan) -> Iterator[str]:
    """The spec, the plan and the masks' formulas."""
    problem = found.problem
    yield from spec_lines(problem.program)
    yield ""
    sizes = " ".join(f"{axis}={size}" for axis, size in problem.sizes.mapping.items())
    heads = "".join(f", {count} heads of {name}" for name, count in problem.heads)
    yield f"Planned for {sizes} {problem.dtype}{heads} on {found.machine.name}:"
    for choice in found.choices:
        yield f"  {choice.name}: {plan_line(choice)}"
    for mixing in mixings(problem.program):
        assert mixing.contract.mask is not None
        yield f"The mask of {mixing.name}, with lag = (t + S - T) - s:"
        yield from (f"  {line}" for line in law_lines(mixing.contract.mask))
    yield "Forward only. The functions below are the masked contractions; everything around them stands in the layer above."


def plan_line(choice: Choice) -> str:
    """What was chosen and what the others would take."""
    offer = chosen(choice)
    cost = f"{amount(offer.cost.flops, 'FLOP')}, {amount(offer.cost.bytes, 'B')}, bound by {offer.bound}"
    others = "".join(f"; {one.schedule} {duration(one.milliseconds) if isinstance(one, Offer) else 'refused'}" for one in choice.others)
    return f"{offer.schedule}, {duration(offer.milliseconds)} ({cost}){others}"


def spec_lines(program: Program) -> Iterator[str]:
    """The layer as the language writes it."""
    yield f"layer {program.name}"
    yield ""
    yield from (operand_line(operand) for operand in program.operands)
    yield ""
    for one in program.definitions:
        if isinstance(one, Definition):
            yield f"{one.name} {axes_text(one.axes)} = {expression_text(one.value)}"
        else:
            yield f"{one.name} {axes_text(('T', 'S', *one.extra))} = {mask_text(one.mask)}"
    yield ""
    yield f"output {', '.join(map(output_text, program.outputs))}"


def output_text(output: Expression) -> str:
    """One output."""
    return expression_text(output)


def operand_line(operand: Operand) -> str:
    """The declaration of an operand."""
    number = "" if operand.number is Number.REAL else f" : {operand.number.name.lower()}"
    promise = "" if (operand.low, operand.high) == (-inf, inf) else f" in [{operand.low:g}, {operand.high:g}]"
    return f"{operand.role} {operand.name} {axes_text(operand.axes)}{number}{promise}"
