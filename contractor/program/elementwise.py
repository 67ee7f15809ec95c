"""What is read once and written once, whatever there is in between: chains of elementwise functions of one tensor, as `elu(Q) + 1`, and
norms over features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from contractor.program.around import inside
from contractor.program.expression import POSITIONS, Apply, Constant, Expression, Number, Reduce, Relabel, Size, Variable, children
from contractor.program.functions import MAPS
from contractor.program.mixing import contractions, places
from contractor.program.program import Definition, Program
from contractor.program.traits import arguments

X = Variable("x", (), Number.REAL)  # the argument of a map


@dataclass(frozen=True, slots=True)
class Chain:
    """An expression of the layer, what it is a function of, and that function of `X`, its sizes still by name."""

    expression: Apply
    base: Expression
    map: Expression


def chains(program: Program) -> Iterator[Chain]:
    """The largest chains of two functions or more over features of positions."""
    names = {one.name: one.value for one in program.definitions if isinstance(one, Definition)}
    for _, expression in places(program):
        yield from within(expression, names)
    for _, expression in places(program):
        for contract in contractions(expression):
            for value in () if contract.mask is None else arguments(contract.mask):
                yield from within(value, names)


def norms(program: Program) -> Iterator[Reduce]:
    """Every norm over the last of a value's features."""
    for _, expression in places(program):
        for node in inside(expression):
            if isinstance(node, Reduce) and node.function in ("l2norm", "rmsnorm") and node.over == node.value.axes[-1:]:
                yield node


def within(expression: Expression, names: Mapping[str, Expression]) -> Iterator[Chain]:
    """The chains in an expression."""
    found = chain(expression, names) if isinstance(expression, Apply) else None
    if found is not None:
        yield found
        return
    for child in children(expression):
        yield from within(child, names)


def chain(expression: Apply, names: Mapping[str, Expression]) -> Chain | None:
    """An expression as a chain, if it is one."""
    wide = set(expression.axes) & set(POSITIONS) and set(expression.axes) - set(POSITIONS)
    bases: list[Expression] = []
    made = mapping(expression, expression.axes, names, bases) if wide else None
    if made is None or len(set(bases)) != 1 or length(made) < 2:
        return None
    return Chain(expression, bases[0], made)


def length(map_: Expression) -> int:
    """How many functions a map has."""
    return isinstance(map_, Apply) + sum(length(one) for one in children(map_))


def mapping(value: Expression, axes: tuple[str, ...], names: Mapping[str, Expression], bases: list[Expression]) -> Expression | None:
    """An expression as one of numbers and `X`; what `X` stands for is added to `bases`. A name without axes is followed."""
    match value:
        case Constant():
            return Constant(float(value.value))
        case Size():
            return None if value.axis in POSITIONS else value
        case Variable(axes=()) if value.name in names:
            return mapping(names[value.name], axes, names, bases)
        case Apply(number=Number.REAL) if value.function in MAPS:
            made = [mapping(one, axes, names, bases) for one in value.arguments]
            known = tuple(one for one in made if one is not None)
            return Apply(value.function, known, (), Number.REAL) if len(known) == len(made) else None
        case Variable() | Relabel() if value.axes == axes and value.number is Number.REAL:
            bases.append(value)
            return X
        case _:
            return None
