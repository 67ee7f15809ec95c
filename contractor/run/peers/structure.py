"""A layer as peers see it: one masked contraction of a query, a key and a value, the law of its mask, and what is done with the result.

All of it is read from the program; the layer's name and its operands' names mean nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from contractor.plan.problem import Problem
from contractor.program.expression import Apply, Axes, Constant, Contract, Expression, Number, Relabel, Size, Variable, children
from contractor.program.functions import ELEMENTWISE
from contractor.program.masks.mask import Fade, Law
from contractor.program.mixing import Core, Factor, Mixing, cores, mixings
from contractor.program.place import behind
from contractor.program.program import Definition, Program


@dataclass(frozen=True, slots=True)
class Structure:
    """A layer around one contraction. query, key, value: which of its operands they are; inner, outer: the sizes of their features."""

    problem: Problem
    main: Mixing
    query: int
    key: int
    value: int
    inner: int
    outer: int

    @property
    def program(self) -> Program:
        """The layer."""
        return self.problem.program

    @property
    def contract(self) -> Contract:
        """The contraction."""
        return self.main.contract

    @property
    def output(self) -> Expression:
        """What the layer returns."""
        return self.program.outputs[0]

    def resolved(self, expression: Expression) -> Expression:
        """The value of a name, and of the name that this may be in turn."""
        values = {one.name: one.value for one in self.program.definitions if isinstance(one, Definition)}
        while isinstance(expression, Variable) and expression.name in values:
            expression = values[expression.name]
        return expression

    def is_main(self, expression: Expression) -> bool:
        """True for the contraction, or a name of it."""
        return self.resolved(expression) == self.contract

    def factors(self, expression: Expression, function: str) -> tuple[Expression, Expression] | None:
        """The two sides of a sign, under whatever name."""
        found = self.resolved(expression)
        return (found.arguments[0], found.arguments[1]) if isinstance(found, Apply) and found.function == function else None


def structure(problem: Problem) -> Structure | str:
    """The layer's one contraction, or why it has none that a peer could know."""
    program = problem.program
    if len(program.outputs) != 1:
        return f"the layer has {len(program.outputs)} outputs"
    if problem.packed is not None or problem.sizes.T != problem.sizes.S:
        return "T and S are not one length"
    found = [mixing for mixing in mixings(program) if mixing.terms[0].outer]
    if len(found) != 1:
        return f"the layer has {len(found)} masked contractions of a query, a key and a value, not one"
    return of_mixing(problem, found[0])


def of_mixing(problem: Problem, main: Mixing) -> Structure | str:
    """The contraction's operands by their roles."""
    if len(main.terms) != 1:
        return f"its mask is a sum of {len(main.terms)} products"
    (core,) = cores(main.name, main.contract)  # as it is written, without what our kernels do beside it
    if core.number is not Number.REAL:
        return "its numbers are complex"
    if core.exchanged or core.batch or core.column or core.tables or core.keeps or not (len(core.inner) == len(core.outer) == 1):
        return "it is no contraction of a query [T, N], a key [S, N] and a value [S, P]"
    sides = [number(main.contract, core.query, ("T", *core.inner)), number(main.contract, core.key, ("S", *core.inner))]
    sides.append(number(main.contract, core.value, ("S", *core.outer)))
    query, key, value = sides
    if query is None or key is None or value is None:
        return "its query, key and value are not one operand each"
    inner, outer = (size(problem, core, letters) for letters in (core.inner, core.outer))
    return Structure(problem, main, query, key, value, inner, outer)


def number(contract: Contract, side: tuple[Factor, ...], letters: Axes) -> int | None:
    """Which operand a side is, if it is one with these letters."""
    pairs = list(zip(contract.operands, contract.letters, strict=True))
    if len(side) != 1 or side[0].letters != letters or (side[0].value, letters) not in pairs:
        return None
    return pairs.index((side[0].value, letters))


def size(problem: Problem, core: Core, letters: Axes) -> int:
    """The size of letters."""
    axes = dict(core.axis_of)
    return prod(problem.sizes[axes[letter]] for letter in letters)


def gates(found: Structure) -> tuple[Fade, ...] | str:
    """The scalar gates of a causal mask (none: it is causal alone), or what else the mask is."""
    term = found.main.terms[0].term
    if term.direction != "past" or term.coefficient:
        return "its mask is turned or scaled"
    return scalar_gates(term.law)


def scalar_gates(law: Law) -> tuple[Fade, ...] | str:
    """The transitions of a law that has nothing else."""
    if law.support != behind(0) or law.weights or law.write or law.ranks or law.stateless:
        return "its mask is not causal with scalar gates alone"
    steps = [step for step in law.steps if isinstance(step, Fade)]
    if len(steps) != len(law.steps):
        return "its mask has matrix transitions"
    if any(set(step.value.axes) - {"S"} for step in steps):
        return "its gates differ between channels"
    if any(step.shift for step in steps):
        return "its gates are shifted"
    if any(step.value.number is Number.COMPLEX for step in steps):
        return "its gates are complex"
    return tuple(steps)


def scale(found: Structure, expression: Expression) -> float | None:
    """c, if the expression is c times the contraction."""
    if found.is_main(expression):
        return 1.0
    for function in ("*", "/"):
        if (sides := found.factors(expression, function)) is None:
            continue
        left, right = sides
        if (held := scale(found, left)) is not None and (times := plain(found, right)) is not None:
            return held * times if function == "*" else held / times
        if function == "*" and (held := scale(found, right)) is not None and (times := plain(found, left)) is not None:
            return held * times
    return None


def plain(found: Structure, expression: Expression) -> float | None:
    """The value of an expression of numbers and sizes."""
    resolved = found.resolved(expression)
    if isinstance(resolved, Constant):
        return float(resolved.value)
    if isinstance(resolved, Size):
        return float(found.problem.sizes[resolved.axis])
    values = [plain(found, child) for child in children(resolved)] if isinstance(resolved, Apply) else []
    known = [value for value in values if value is not None]
    if not isinstance(resolved, Apply) or len(known) != len(values):
        return None
    return float(ELEMENTWISE[resolved.function].apply(*(torch.tensor(value, dtype=torch.float64) for value in known)))


def normalised(found: Structure) -> bool:
    """True if the layer is the contraction divided by the same without its value."""
    sides = found.factors(found.output, "/")
    if sides is None or not found.is_main(sides[0]):
        return False
    below = found.resolved(sides[1])
    if not isinstance(below, Contract) or below.mask != found.contract.mask or below.axes != ("T",):
        return False
    kept = [(found.contract.operands[one], found.contract.letters[one]) for one in sorted((found.query, found.key))]
    return sorted(map(repr, zip(below.operands, below.letters, strict=True))) == sorted(map(repr, kept))


def same(found: Structure, left: Expression, right: Expression) -> bool:
    """True for one value under two names, or under other letters."""
    one, other = (found.resolved(side.value if isinstance(side, Relabel) else side) for side in (left, right))
    return one == other
