"""What a program says about the sizes of its axes: which are one size, and which follow from others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from contractor.errors import ArgumentError
from contractor.plan.spread import inside
from contractor.program.expression import (
    POSITIONS,
    Apply,
    Axes,
    Concat,
    Contract,
    Expression,
    Leaf,
    Mask,
    Outer,
    Reduce,
    Relabel,
    children,
)
from contractor.program.masks import MASKS
from contractor.program.program import Definition, Program


@dataclass(frozen=True, slots=True)
class Sum:
    """The size of an axis made by `concat`: that of its parts' own axes, and a number of columns."""

    parts: tuple[Origin, ...]
    columns: int


@dataclass(frozen=True, slots=True)
class Product:
    """The size of an axis made by `outer`."""

    parts: tuple[Origin, ...]


Origin = str | Sum | Product


@dataclass(frozen=True, slots=True)
class Relations:
    """axes: every feature axis in order of first appearance. equal: pairs of one size. made: sizes that follow from others."""

    axes: Axes
    equal: tuple[tuple[str, str], ...]
    made: tuple[tuple[str, Sum | Product], ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """That an axis has a size, and who says so: an operand's name, or nobody in particular."""

    axis: str
    size: int
    source: str = ""

    def __str__(self) -> str:
        return f"{self.source} has {self.axis} = {self.size}" if self.source else f"{self.axis} = {self.size}"


def relations(program: Program) -> Relations:
    """Everything that a program says about its sizes."""
    nodes = [node for root in roots(program) for node in everything(root)]
    named = [axis for operand in program.operands for axis in operand.axes]
    named += [axis for each in program.definitions for axis in (each.axes if isinstance(each, Definition) else each.extra)]
    named += [axis for node in nodes for axis in letters(node)]
    equal = [pair for node in nodes for pair in one_size(node)] + ([("T", "S")] if program.self_mixing else [])
    holders = [each.value for each in program.definitions if isinstance(each, Definition)]
    holders += [value for node in nodes if isinstance(node, Contract) for value in node.operands]
    origins = ((axis, origin(value, axis)) for value in holders for axis in value.axes)
    made = [(axis, found) for axis, found in origins if not isinstance(found, str)]
    axes = dict.fromkeys(axis for axis in named if axis not in POSITIONS)
    return Relations(tuple(axes), tuple(dict.fromkeys(equal)), tuple(dict.fromkeys(made)))


def roots(program: Program) -> Iterator[Expression | Mask]:
    """Every right side of a layer."""
    for definition in program.definitions:
        yield definition.value if isinstance(definition, Definition) else definition.mask
    yield from program.outputs


def everything(value: Expression | Mask) -> Iterator[Expression | Mask]:
    """An expression or mask and all that is inside it, innermost first."""
    for child in inside(value):
        yield from everything(child)
    yield value


def letters(node: Expression | Mask) -> Axes:
    """The axes that a node names."""
    match node:
        case Relabel():
            return node.axes
        case Contract():
            return (*(axis for value in node.operands for axis in value.axes), *node.axes)
        case _:
            return ()


def one_size(node: Expression | Mask) -> Iterator[tuple[str, str]]:
    """Pairs of feature axes to which a node gives one size."""
    match node:
        case Relabel():
            pairs = zip(node.value.axes, node.axes, strict=True)
            yield from (pair for pair in pairs if pair[0] != pair[1] and pair[0] not in POSITIONS)
        case Contract():
            for letter, axes in behind_letters(node).items():
                named = [letter, *axes] if letter in node.axes else axes
                yield from (pair for pair in pairwise(dict.fromkeys(named)))
        case Leaf() if MASKS[node.kind].matrix:
            yield (node.axes[0], node.axes[1])
        case _:
            return


def behind_letters(contract: Contract) -> dict[str, list[str]]:
    """The axes that a contraction's letters stand for, operand by operand, the mask's last. Letters are the contraction's own."""
    found: dict[str, list[str]] = {}
    sides = [(letters, value.axes) for value, letters in zip(contract.operands, contract.letters, strict=True)]
    if contract.mask is not None:
        sides.append((contract.mask_axes, contract.mask.axes))
    for letters, axes in sides:
        for letter, axis in zip(letters, axes, strict=True):
            if letter not in POSITIONS:
                found.setdefault(letter, []).append(axis)
    return found


def origin(value: Expression, axis: str) -> Origin:
    """Where an axis of an expression comes from: within a definition that of `concat` or `outer` may have no name of its own."""
    match value:
        case Concat() if axis == value.axis:
            own = [(part, each) for part in value.parts for each in part.axes if each not in value.axes or each == axis]
            columns = len(value.parts) - len(own)
            return Sum(tuple(origin(part, each) for part, each in own), columns)
        case Outer() if axis == value.axis:
            sides = (value.left, value.right)
            return Product(tuple(origin(side, each) for side in sides for each in side.axes if each not in POSITIONS))
        case Concat() | Outer() | Apply() | Reduce():
            return next((origin(part, axis) for part in children(value) if axis in part.axes), axis)
        case _:
            return axis


def solve(known: Relations, evidence: list[Evidence]) -> dict[str, int]:
    """Every size that the evidence settles. Raises ArgumentError where two pieces of evidence do not go together."""
    group = groups(known.equal)
    held: dict[str, Evidence] = {}

    def settle(each: Evidence) -> None:
        """Take a size in, for all axes that share it."""
        for axis in sorted(group.get(each.axis, {each.axis})):
            before = held.setdefault(axis, each)
            if before.size != each.size:
                raise ArgumentError(conflict(before, each))

    for each in evidence:
        settle(each)
    for axis, made in known.made:
        size = size_of(made, held)
        if size is not None:
            settle(Evidence(axis, size, f"the definition of {axis}"))
    return {axis: each.size for axis, each in held.items()}


def groups(equal: tuple[tuple[str, str], ...]) -> dict[str, set[str]]:
    """For each axis all axes of its size."""
    found: dict[str, set[str]] = {}
    for left, right in equal:
        together = found.get(left, {left}) | found.get(right, {right})
        found |= dict.fromkeys(together, together)
    return found


def size_of(made: Origin, held: Mapping[str, Evidence]) -> int | None:
    """The size of an axis from the sizes of the others, once they are all known."""
    if isinstance(made, str):
        return held[made].size if made in held else None
    sizes = [size_of(part, held) for part in made.parts]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return None
    return sum(known) + made.columns if isinstance(made, Sum) else prod(known)


def conflict(before: Evidence, after: Evidence) -> str:
    """Two sizes that should be one."""
    text = f"{before}, but {after}"
    if before.axis != after.axis:
        text += f": {before.axis} and {after.axis} must be one size in this layer"
    return f"{text}; only batch and heads are shared by a size of 1" if 1 in (before.size, after.size) else text
