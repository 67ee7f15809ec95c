"""The pairwise order of ordinary contractions, and what opt_einsum makes of a mixing when it takes the mask as a dense tensor.

A path is found from sizes alone. opt_einsum counts operations only, and its automatic choice can be worse than the greedy one; here
every path is priced by the bytes and operations of its steps, all pairwise orders of up to six operands are compared, and the
cheapest wins. That price does not depend on the order or the spelling of the operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise
from math import prod
from typing import Any, Literal

import opt_einsum

from contractor.plan.machine import Machine
from contractor.plan.plan import Pairwise
from contractor.plan.problem import BYTES, Problem
from contractor.plan.spread import Spread, spread
from contractor.program.expression import Contract

Path = tuple[tuple[int, ...], ...]
MOST = 6  # operands of which every pairwise order is tried


@dataclass(frozen=True, slots=True)
class Einsum:
    """A contraction as sets of letters, batch and heads among them. sizes: of every letter."""

    operands: tuple[frozenset[str], ...]
    result: frozenset[str]
    sizes: tuple[tuple[str, int], ...]

    def size(self, letters: Iterable[str]) -> int:
        """How many elements a tensor with these letters has."""
        sizes = dict(self.sizes)
        return prod(sizes[letter] for letter in letters)


def order(name: str, contract: Contract, problem: Problem, machine: Machine, known: Mapping[str, Spread]) -> Pairwise:
    """The cheapest pairwise order of an ordinary contraction; known: `spreads(problem)`."""
    einsum = einsum_of(replace(contract, mask=None, mask_axes=()), problem, known)
    path = cheapest(einsum, machine, problem.dtype)
    flops, largest = measure(einsum, path)
    return Pairwise(name, equation(contract), path, flops, largest, 1e3 * price(einsum, path, machine, problem.dtype))


def dense_view(name: str, contract: Contract, problem: Problem, machine: Machine, known: Mapping[str, Spread]) -> Pairwise:
    """What opt_einsum picks by itself when the mask is one more operand [T, S, …], and what that would cost."""
    einsum = einsum_of(contract, problem, known)
    path, info = contract_path(einsum, "auto")
    largest = max(int(info.largest_intermediate), *(einsum.size(letters) for letters in einsum.operands))
    milliseconds = 1e3 * price(einsum, path, machine, problem.dtype)
    return Pairwise(name, equation(contract), path, int(info.opt_cost), largest, milliseconds)


def equation(contract: Contract) -> str:
    """The contraction's letters as written, the mask's last."""
    operands = ["".join(letters) for letters in contract.letters]
    if contract.mask is not None:
        operands.append("".join(("T", "S", *contract.mask_axes)))
    return f"{', '.join(operands)} -> {''.join(contract.axes)}"


def einsum_of(contract: Contract, problem: Problem, known: Mapping[str, Spread]) -> Einsum:
    """The contraction with batch and heads spelled out; the mask, if there is one, as a last, dense operand."""
    operands: list[tuple[frozenset[str], Spread]] = []
    sizes = problem.sizes.mapping
    found = {"T": sizes["T"], "S": sizes["S"]}
    for value, letters in zip(contract.operands, contract.letters, strict=True):
        operands.append((frozenset(letters), spread(value, known)))
        found |= {letter: sizes[axis] for letter, axis in zip(letters, value.axes, strict=True)}
    if contract.mask is not None:
        operands.append((frozenset(("T", "S", *contract.mask_axes)), spread(contract.mask, known)))
        found |= {letter: sizes[axis] for letter, axis in zip(contract.mask_axes, contract.mask.axes, strict=True)}
    head_letters = split_heads([each.heads for _, each in operands], sizes["H"])
    full = [letters | batch_letter(each) | frozenset(head_letters[each.heads]) for letters, each in operands]
    found |= {"batch": sizes["B"]} | {letter: size for letters in head_letters.values() for letter, size in letters.items()}
    implicit = frozenset().union(*full) - frozenset().union(*(letters for letters, _ in operands))
    used = frozenset().union(*full)
    return Einsum(tuple(full), frozenset(contract.axes) | implicit, tuple((name, found[name]) for name in sorted(used)))


def batch_letter(each: Spread) -> frozenset[str]:
    """The batch's letter, where a value differs over it."""
    return frozenset(("batch",) if each.batch > 1 else ())


def split_heads(counts: list[int], heads: int) -> dict[int, dict[str, int]]:
    """The letters of each head count and their sizes. Counts that divide one another are nested letters: 2 of 8 heads are one
    letter of size 2, 8 heads that letter and one of size 4. A count outside the chain is taken as all heads."""
    chain = [1]
    for count in sorted({*counts, heads}):
        if count % chain[-1] == 0 and heads % count == 0 and count > chain[-1]:
            chain.append(count)
    steps = {f"head{count}": count // before for before, count in pairwise(chain)}
    nested = {count: {letter: size for letter, size in steps.items() if int(letter[4:]) <= count} for count in chain}
    return {count: nested.get(count, steps) for count in counts}


# ---- paths ----------------------------------------------------------------------------------------------------------------


def cheapest(einsum: Einsum, machine: Machine, dtype: str) -> Path:
    """The cheapest path by bytes and operations among every pairwise order (few operands) and opt_einsum's own."""
    count = len(einsum.operands)
    if count <= 2:
        return (tuple(range(count)),)
    candidates = [contract_path(einsum, "greedy")[0]]
    if count <= MOST:
        candidates = [exhaustive(einsum, machine, dtype), contract_path(einsum, "optimal")[0], *candidates]
    else:
        candidates = [*candidates, contract_path(einsum, "auto")[0]]
    return min(candidates, key=lambda path: price(einsum, path, machine, dtype))


def contract_path(einsum: Einsum, optimize: Literal["auto", "greedy", "optimal"]) -> tuple[Path, Any]:
    """opt_einsum's path and its account of it."""
    sizes = dict(einsum.sizes)
    symbols = {letter: opt_einsum.get_symbol(index) for index, letter in enumerate(sizes)}
    operands = [sorted(letters) for letters in (*einsum.operands, einsum.result)]
    terms = ["".join(symbols[letter] for letter in letters) for letters in operands]
    shapes = [tuple(sizes[letter] for letter in letters) for letters in operands[:-1]]
    path, info = opt_einsum.contract_path(f"{','.join(terms[:-1])}->{terms[-1]}", *shapes, shapes=True, optimize=optimize)
    return tuple(tuple(step) for step in path), info


def exhaustive(einsum: Einsum, machine: Machine, dtype: str) -> Path:
    """The cheapest of all pairwise orders, subset by subset."""
    everything = frozenset(range(len(einsum.operands)))

    @cache
    def letters(subset: frozenset[int]) -> frozenset[str]:
        """The letters of a subset's product that are still needed outside it."""
        if len(subset) == 1:
            return einsum.operands[min(subset)]
        outside = einsum.result.union(*(einsum.operands[index] for index in everything - subset))
        return outside & frozenset().union(*(einsum.operands[index] for index in subset))

    @cache
    def best(subset: frozenset[int]) -> tuple[float, tuple[tuple[frozenset[int], frozenset[int]], ...]]:
        """The cost of the best order of a subset, and its steps."""
        if len(subset) == 1:
            return 0.0, ()
        found: list[tuple[float, tuple[tuple[frozenset[int], frozenset[int]], ...]]] = []
        for left, right in splits(subset):
            (left_cost, left_steps), (right_cost, right_steps) = best(left), best(right)
            cost = left_cost + right_cost + step_price(einsum, (letters(left), letters(right)), letters(subset), machine, dtype)
            found.append((cost, (*left_steps, *right_steps, (left, right))))
        return min(found, key=lambda pair: pair[0])

    return linear(best(everything)[1], len(everything))


def splits(subset: frozenset[int]) -> list[tuple[frozenset[int], frozenset[int]]]:
    """Every way to cut a subset in two, each once."""
    first, *others = sorted(subset)
    lefts = (frozenset((first, *chosen)) for size in range(len(others)) for chosen in combinations(others, size))
    return [(left, subset - left) for left in lefts]


def linear(steps: tuple[tuple[frozenset[int], frozenset[int]], ...], count: int) -> Path:
    """Steps between subsets as a path between positions: what is contracted leaves the list, the result goes to its end."""
    held = [frozenset((index,)) for index in range(count)]
    path: list[tuple[int, ...]] = []
    for left, right in steps:
        path.append(tuple(sorted((held.index(left), held.index(right)))))
        held = [subset for subset in held if subset not in (left, right)] + [left | right]
    return tuple(path)


# ---- prices ---------------------------------------------------------------------------------------------------------------


def walk(einsum: Einsum, path: Path) -> list[tuple[tuple[frozenset[str], ...], frozenset[str]]]:
    """Each step of a path: the letters of what goes in and of what comes out."""
    held = list(einsum.operands)
    steps: list[tuple[tuple[frozenset[str], ...], frozenset[str]]] = []
    for positions in path:
        taken = tuple(held[position] for position in positions)
        held = [letters for position, letters in enumerate(held) if position not in positions]
        made = frozenset().union(*taken) & einsum.result.union(*held)
        held.append(made)
        steps.append((taken, made))
    return steps


def step_flops(einsum: Einsum, taken: tuple[frozenset[str], ...], made: frozenset[str]) -> int:
    """A multiplication for each further operand, and an addition where a letter is summed."""
    together = frozenset().union(*taken)
    return einsum.size(together) * (len(taken) - 1 + (together != made))


def step_price(einsum: Einsum, taken: tuple[frozenset[str], ...], made: frozenset[str], machine: Machine, dtype: str) -> float:
    """Seconds of one step: one kernel, bound by its bytes or by its operations."""
    together = frozenset().union(*taken)
    matrix = together != made and all(letters & made - other for letters in taken for other in taken if other is not letters)
    rate = machine.tensor_rate(dtype) if matrix else machine.scalar_rate(dtype)
    moved = BYTES[dtype] * sum(einsum.size(letters) for letters in (*taken, made))
    return max(moved / machine.bandwidth, step_flops(einsum, taken, made) / rate) + machine.launch


def price(einsum: Einsum, path: Path, machine: Machine, dtype: str) -> float:
    """Seconds of a whole path."""
    return sum(step_price(einsum, taken, made, machine, dtype) for taken, made in walk(einsum, path))


def measure(einsum: Einsum, path: Path) -> tuple[int, int]:
    """Operations of a path, and elements of the largest tensor it makes."""
    steps = walk(einsum, path)
    return sum(step_flops(einsum, *step) for step in steps), max(einsum.size(made) for _, made in steps)
