"""The mixings of a layer: its masked contractions, each the sum of contractions in normal form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from contractor.program.around import Around, around, plain, weighted
from contractor.program.core import Core, Factor, core, unused
from contractor.program.expression import POSITIONS, Contract, Expression, Number, Reduce, Variable, children
from contractor.program.laws import terms
from contractor.program.masks.mask import Fade
from contractor.program.program import Definition, Program
from contractor.program.traits import arguments

__all__ = ["Core", "Factor", "Mixing", "contracted", "contractions", "cores", "mixings", "ordinary", "places"]


@dataclass(frozen=True, slots=True)
class Mixing:
    """One masked contraction of a layer: the sum of its cores. `name` is the definition it stands in. whole: the expression of the layer
    that its kernels give, the contraction itself or what stands around it too."""

    name: str
    contract: Contract
    terms: tuple[Core, ...]
    whole: Expression


def mixings(program: Program) -> tuple[Mixing, ...]:
    """Every masked contraction of a layer, in the order in which they are evaluated, each once."""
    found: dict[Contract, str] = {}
    for name, expression in places(program):
        for contract in contractions(expression):
            if contract.mask is not None and not unmasked(contract) and contract not in found:
                found[contract] = unused(name, set(found.values()))
    values = {one.name: one.value for one in program.definitions if isinstance(one, Definition)}
    wholes = around(program, tuple(expression for _, expression in places(program)))
    return tuple(
        mixing(name, wholes.get(contract, Around(contract, contract)), tuple(weighted(one, values) for one in cores(name, contract)))
        for contract, name in found.items()
    )


def mixing(name: str, whole: Around, terms: tuple[Core, ...]) -> Mixing:
    """The mixing whose kernels do what stands around it; rows of targets can be weighted where those of sources can."""
    if whole.skip is not None and not (len(terms) == 1 and skips(terms[0], whole.row)):
        return Mixing(name, whole.contract, terms, whole.contract)
    if whole.target is not None and not all(plain(one) and not one.exchanged for one in terms):
        return Mixing(name, whole.contract, terms, whole.contract)
    rows = () if whole.target is None else (Factor(whole.target, ("T",)),)
    return Mixing(
        name,
        whole.contract,
        tuple(replace(one, scale=whole.scale, skip=whole.skip, target_weight=rows) for one in terms),
        whole.expression,
    )


def skips(core: Core, row: Expression | None) -> bool:
    """True if a row may skip past a core: it is its very value, and no gate differs over the value's channels, as the gradient of such a
    gate is summed from the result, of which it crosses nothing that skips."""
    values = [(one.value, one.letters) for one in core.value]
    gated = any("outer" in core.sides(step.value) for step in core.term.law.steps if isinstance(step, Fade))
    plain_rows = core.number < Number.COMPLEX and not (core.exchanged or core.batch or core.keeps)
    return plain_rows and not gated and values == [(row, ("S", *core.outer))]


def ordinary(program: Program) -> tuple[tuple[str, Contract], ...]:
    """Every contraction without a mask (or under `full()` alone), by the name of the definition it stands in."""
    found = ((name, contract) for name, expression in places(program) for contract in contractions(expression))
    return tuple((name, contract) for name, contract in found if contract.mask is None or unmasked(contract))


def places(program: Program) -> Iterator[tuple[str, Expression]]:
    """Every expression of a layer with the name of what it defines."""
    for definition in program.definitions:
        if isinstance(definition, Definition):
            yield definition.name, definition.value
        else:
            yield from ((definition.name, value) for value in arguments(definition.mask))
    for output in program.outputs:
        yield "output", output


def contractions(expression: Expression) -> Iterator[Contract]:
    """The contractions inside an expression and inside the arguments of its masks, innermost first."""
    for child in children(expression):
        yield from contractions(child)
    mask = expression.mask if isinstance(expression, Contract) else expression.under if isinstance(expression, Reduce) else None
    if mask is not None:
        for value in arguments(mask):
            yield from contractions(value)
    if isinstance(expression, Contract):
        yield expression


def contracted(program: Program) -> tuple[str, ...]:
    """The inputs with feature axes that enter contractions as operands (those that only stand inside masks are not among them); all
    inputs with feature axes, if no contraction reads any."""
    values = {one.name: one.value for one in program.definitions if isinstance(one, Definition)}
    waiting = [operand for value in (*values.values(), *program.outputs) for node in contractions(value) for operand in node.operands]
    read: set[str] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, Variable) and node.name not in read:
            read.add(node.name)
            waiting += [values[node.name]] if node.name in values else []
        waiting += children(node)
    wide = tuple(one.name for one in program.operands if one.role == "input" and set(one.axes) - {*POSITIONS})
    return tuple(name for name in wide if name in read) or wide


def unmasked(contract: Contract) -> bool:
    """True if the mask is 1 everywhere: then the contraction is an ordinary one."""
    if contract.mask is None:
        return True
    parts = terms(contract.mask)
    return len(parts) == 1 and not parts[0].coefficient and len(parts[0].factors) <= 1 and parts[0].law.trivial


def cores(name: str, contract: Contract) -> tuple[Core, ...]:
    """A contraction as it is written, as a sum: it distributes over a sum of masks."""
    assert contract.mask is not None
    parts = terms(contract.mask)
    names = [name] if len(parts) == 1 else [f"{name}.{index + 1}" for index in range(len(parts))]
    return tuple(core(label, contract, term) for label, term in zip(names, parts, strict=True))
