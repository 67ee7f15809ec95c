"""What stands around a contraction and is done by its kernel on the way: a factor of each source, a scale, a skip past the mixing.

`step * X` as a value is X with a weight for each source: one number a position, which the kernel multiplies into the mask's factors
instead of reading and writing every feature once more. `Y * rsqrt(N)` is the contraction at another scale, and in `Y + D * X[T, P]` the
second term reads the very rows that the kernel holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from contractor.program.core import Core, Factor
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
from contractor.program.masks.mask import Fade, RankOne
from contractor.program.program import Definition, Program
from contractor.program.traits import arguments

Values = Mapping[str, Expression]
SCALES = ("*", "/", "^", "sqrt", "rsqrt")


# ---- weights of sources -----------------------------------------------------------------------------------------------------------


def weighted(core: Core, values: Values) -> Core:
    """The core with what its keys and values are multiplied by at each source, one number a position, apart. values: the
    definitions by name. Only under scalar and rank-one transitions, whose orders know what to do with it."""
    if not plain(core):
        return core
    key, value = ([part for one in side for part in parts(one, values)] for side in (core.key, core.value))
    weight = tuple(one for one in (*key, *value) if one.letters == ("S",))
    if not weight:
        return core
    key, value = (tuple(one for one in side if one.letters != ("S",)) for side in (key, value))
    return replace(core, key=key, value=value, source_weight=weight)


def plain(core: Core) -> bool:
    """True if a core's kernels may multiply rows: real numbers, transitions that are scalars or of rank one."""
    known = all(isinstance(step, RankOne) or (isinstance(step, Fade) and not core.sides(step.value)) for step in core.term.law.steps)
    return known and core.number < Number.COMPLEX and not (core.batch or core.keeps)


def parts(factor: Factor, values: Values) -> Iterator[Factor]:
    """The factors of a product, as far as some of them are one number a position."""
    product = named(factor.value, values)
    if (
        isinstance(product, Apply)
        and product.function == "*"
        and set(product.arguments[0].axes + product.arguments[1].axes) == set(product.axes)
    ):
        letter = dict(zip(product.axes, in_order(factor, product), strict=True))
        sides = [Factor(one, tuple(letter[axis] for axis in one.axes)) for one in product.arguments]
        if any(side.letters == ("S",) for side in sides) and all(side.letters for side in sides):
            for side in sides:
                yield from parts(side, values)
            return
    yield factor


def named(value: Expression, values: Values) -> Expression:
    """What a name stands for."""
    while isinstance(value, Variable) and value.name in values and set(values[value.name].axes) == set(value.axes):
        value = values[value.name]
    return value


def in_order(factor: Factor, product: Expression) -> tuple[str, ...]:
    """The letters of a factor in the order of another expression for its value."""
    letter = dict(zip(factor.value.axes, factor.letters, strict=True))
    return tuple(letter[axis] for axis in product.axes)


# ---- what is done with the result ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Around:
    """What a kernel gives: `expression`, which is scale · target · contraction + skip · row (None: 1 and nothing). target: one number a
    target. row: what must be the value of the contraction, at the target's own place."""

    expression: Expression
    contract: Contract
    scale: Expression | None = None
    target: Expression | None = None
    skip: Expression | None = None
    row: Expression | None = None


def around(program: Program, expressions: tuple[Expression, ...]) -> dict[Contract, Around]:
    """The largest expression around each contraction that its kernel can give, where nothing else reads the contraction.
    expressions: every one of the layer."""
    values = {one.name: one.value for one in program.definitions if isinstance(one, Definition)}
    every = [node for expression in reversed(expressions) for node in inside(expression)]  # what is defined later stands around
    look = Look(program, values, count_of(every))
    found: dict[Contract, Around] = {}
    for node in every:
        one = None if isinstance(node, Variable) else look.found(node)
        if one is not None and one.contract not in found:
            found[one.contract] = replace(one, expression=node)
    return found


def count_of(nodes: list[Expression]) -> dict[Expression | str, int]:
    """How often each name is read, and each contraction written."""
    found: dict[Expression | str, int] = {}
    for node in nodes:
        key = node.name if isinstance(node, Variable) else node if isinstance(node, Contract) else None
        if key is not None:
            found[key] = found.get(key, 0) + 1
    return found


def inside(expression: Expression) -> Iterator[Expression]:
    """An expression and everything in it, outermost first, the arguments of its masks among them."""
    yield expression
    mask = expression.mask if isinstance(expression, Contract) else expression.under if isinstance(expression, Reduce) else None
    for child in (*children(expression), *(() if mask is None else arguments(mask))):
        yield from inside(child)


@dataclass(frozen=True, slots=True)
class Look:
    """What a search for contractions knows: the layer, its definitions, and how often each name is read."""

    program: Program
    values: Values
    uses: dict[Expression | str, int]

    def found(self, node: Expression) -> Around | None:
        """The contraction in a node, if there is nothing around it but what a kernel does."""
        match node:
            case Contract() if node.mask is not None and self.uses[node] == 1:
                return Around(node, node)
            case Variable() if self.uses[node.name] == 1 and node.name in self.values and self.values[node.name].axes == node.axes:
                return self.found(self.values[node.name])
            case Apply(function="*" | "/", number=Number.REAL):
                return self.scaled(node)
            case Apply(function="+", number=Number.REAL):
                left, right = node.arguments
                return self.skipping(left, right) or self.skipping(right, left)
            case _:
                return None

    def scaled(self, node: Apply) -> Around | None:
        """A contraction times a number that is not 0, or one number a target; or divided by it."""
        left, right = node.arguments
        inner, factor = self.found(left), right
        if node.function == "*" and inner is None:
            inner, factor = self.found(right), left
        if inner is None or inner.skip is not None:
            return None
        number = self.number(factor)
        if number is not None:
            before = inner.scale or Constant(1.0)
            return replace(inner, scale=Apply(node.function, (before, number), (), Number.REAL))
        if factor.axes != ("T",) or factor.number is Number.COMPLEX or inner.contract.axes[:1] != ("T",):
            return None
        before = inner.target
        if inner.target is None:
            own = factor if node.function == "*" else Apply("reciprocal", (factor,), ("T",), Number.REAL)
            return replace(inner, target=own)
        assert before is not None
        return replace(inner, target=Apply(node.function, (before, factor), ("T",), Number.REAL))

    def number(self, value: Expression) -> Expression | None:
        """An expression of numbers other than 0 and of sizes of features."""
        value = named(value, self.values)
        match value:
            case Constant():
                return value if value.value else None
            case Size():
                return None if value.axis in POSITIONS else value
            case Apply() if value.function in SCALES:
                found = [self.number(one) for one in value.arguments]
                known = tuple(one for one in found if one is not None)
                return replace(value, arguments=known) if len(known) == len(found) else None
            case _:
                return None

    def skipping(self, mixed: Expression, past: Expression) -> Around | None:
        """A contraction and its value's own row, times what no position and no feature has."""
        inner = self.found(mixed)
        if inner is None or inner.skip is not None:
            return None
        pairs = [(past, Constant(1.0))]
        if isinstance(past, Apply) and past.function == "*":
            pairs += [past.arguments, past.arguments[::-1]]
        for row, factor in pairs:
            own = row.value if isinstance(row, Relabel) else row
            plain = not factor.axes and factor.number < Number.COMPLEX and self.fixed(factor)
            if plain and isinstance(own, Variable) and row.axes == inner.contract.axes and row.axes[:1] == ("T",):
                return replace(inner, skip=factor, row=own)
        return None

    def fixed(self, value: Expression) -> bool:
        """True for what is the same for all of a batch and reads no contraction."""
        if isinstance(value, Contract):
            return False
        if isinstance(value, Variable):
            own = self.values.get(value.name)
            return self.program.operand(value.name).role == "param" if own is None else self.fixed(own)
        return all(self.fixed(child) for child in children(value))
