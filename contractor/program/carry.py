"""What a layer can do beside one whole sequence: carry a state from call to call, and take sequences that lie end to end."""

from __future__ import annotations

from collections.abc import Iterator

from contractor.program.expression import (
    POSITIONS,
    Apply,
    Constant,
    Contract,
    Expression,
    Number,
    Reduce,
    Relabel,
    Size,
    Variable,
    children,
)
from contractor.program.masks.mask import Fade
from contractor.program.mixing import Core, mixings, ordinary, places
from contractor.program.program import Definition, Program

POSITIVE = frozenset(("exp", "sigmoid", "softplus", "abs", "square", "sqrt", "rsqrt", "relu", "zoh"))  # of real numbers, none below 0
ORDERLY = frozenset(("+", "*", "/", "min"))  # not below 0 where no argument is


def stateless(program: Program) -> str:
    """Why a layer has no state that could be handed from one call to the next, in the user's words; "" if it has one."""
    reasons = (*across(program), *(reason for core in cores(program) for reason in uncarried(core, program)))
    return next(iter(reasons), "")


def unpackable(program: Program) -> str:
    """Why a layer takes no packed sequences, in the user's words; "" if it does."""
    mirrored = [core.name for core in cores(program) if core.term.mirrored]
    flipped = (f"{name} runs on the flipped sequence, and would flip the order of packed ones" for name in mirrored)
    return next(iter((*across(program), *flipped)), "")


def cores(program: Program) -> tuple[Core, ...]:
    """Every contraction in normal form."""
    return tuple(core for mixing in mixings(program) for core in mixing.terms)


def across(program: Program) -> Iterator[str]:
    """What reads a sequence as a whole, outside of the masks."""
    for name, expression in places(program):
        for node in nodes(expression):
            match node:
                case Size(axis="T" | "S"):
                    yield f"{name} reads the size {node.axis}"
                case Reduce() if node.under is not None or set(node.over) & set(POSITIONS):
                    yield f"{name} has a {node.function} over {', '.join(node.over)}"
                case _:
                    pass
    for name, contract in ordinary(program):
        if summed(contract) & set(POSITIONS):
            yield f"{name} sums over a position outside of any mask"
    for mixing in mixings(program):
        if not set(mixing.contract.axes) & set(POSITIONS):
            yield f"{mixing.name} sums over every target"
    for operand in program.operands:
        if set(POSITIONS) <= set(operand.axes):
            yield f"{operand.name} has an entry for every pair of positions"


def nodes(expression: Expression) -> Iterator[Expression]:
    """An expression and everything inside it."""
    yield expression
    for child in children(expression):
        yield from nodes(child)


def summed(contract: Contract) -> set[str]:
    """The letters that go."""
    return {letter for letters in contract.letters for letter in letters} - set(contract.axes)


def uncarried(core: Core, program: Program) -> Iterator[str]:
    """Why a contraction hands out no state."""
    if core.term.mirrored or core.term.exchanged or core.exchanged:
        yield f"the mask of {core.name} runs from the future"
    if reason := core.term.carries():
        yield f"{core.name}: {reason}"
    if core.term.law.support is None and not core.term.law.steps:
        yield f"every target of {core.name} reads every source, those after it too"
    if core.keeps:
        yield f"{core.name} keeps both positions"
    fades = [step for step in core.term.law.steps if isinstance(step, Fade)]
    values = [fade.value for fade in fades]
    given = [fade.value for fade in fades if not fade.log and fade.value.number < Number.COMPLEX]
    if not core.matrix and any(lowest(value, program) < 0 for value in given):
        yield f"a transition of {core.name} may be negative; give its log, or promise that it is not: in [0, 1]"
    if any(value.number is Number.COMPLEX for value in (*core.expressions, *values)):
        yield f"{core.name} has complex numbers, whose state is not handed from one call to the next yet"


def lowest(value: Expression, program: Program) -> float:
    """A bound below a real value, as far as the spec tells: by numbers, promises, and functions that give nothing negative."""
    match value:
        case Constant():
            return value.value
        case Relabel():
            return lowest(value.value, program)
        case Variable():
            promised = (operand.low for operand in program.operands if operand.name == value.name)
            defined = (lowest(one.value, program) for one in program.definitions if isinstance(one, Definition) and one.name == value.name)
            return next(iter((*promised, *defined)))
        case Apply(function="max"):
            return max(lowest(one, program) for one in value.arguments)
        case Apply(function="clamp"):
            return lowest(value.arguments[1], program)
        case Apply():
            within = value.function in ORDERLY and all(lowest(one, program) >= 0 for one in value.arguments)
            return 0.0 if within or value.function in POSITIVE else float("-inf")
        case _:
            return float("-inf")
