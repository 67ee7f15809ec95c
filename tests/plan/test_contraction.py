"""Pairwise orders: never worse than any other, blind to spelling, and computing the right numbers."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import opt_einsum
import pytest
import torch

from contractor.plan.contraction import MOST, Einsum, cheapest, contract_path, measure, order, price, split_heads, step_flops
from contractor.plan.machine import H200
from contractor.plan.sizes import problem_from_sizes
from contractor.plan.spread import Spread, spreads
from contractor.program.program import Program


def random_einsum(generator: random.Random, operands: int, letters: int, most: int = 64) -> Einsum:
    """Every letter in at least two operands, or in one and the result."""
    names = [f"x{index}" for index in range(letters)]
    held: list[set[str]] = [set() for _ in range(operands)]
    result: set[str] = set()
    for name in names:
        places = generator.sample([*held, result], k=generator.choice((2, 2, 3)) if operands > 1 else 2)
        for place in places:
            place.add(name)
    sizes = tuple((name, generator.randint(2, most)) for name in names)
    return Einsum(tuple(frozenset(each) for each in held), frozenset(result), sizes)


@pytest.mark.parametrize("seed", range(20))
def test_never_worse_than_opt_einsum_and_blind_to_spelling(seed: int) -> None:
    generator = random.Random(seed)
    einsum = random_einsum(generator, generator.randint(3, MOST), generator.randint(3, 7))
    cost = price(einsum, cheapest(einsum, H200, "float32"), H200, "float32")
    for optimize in ("auto", "greedy", "optimal"):
        assert cost <= price(einsum, contract_path(einsum, optimize)[0], H200, "float32") * (1 + 1e-9)
    renamed = dict(zip([name for name, _ in einsum.sizes], generator.sample("abcdefghijk", k=len(einsum.sizes)), strict=True))
    shuffled = generator.sample(einsum.operands, k=len(einsum.operands))
    other = Einsum(
        tuple(frozenset(renamed[letter] for letter in each) for each in shuffled),
        frozenset(renamed[letter] for letter in einsum.result),
        tuple(sorted((renamed[letter], size) for letter, size in einsum.sizes)),
    )
    assert price(other, cheapest(other, H200, "float32"), H200, "float32") == pytest.approx(cost, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_path_computes_the_contraction(seed: int) -> None:
    generator = random.Random(seed)
    einsum = random_einsum(generator, 5, 5, most=3)
    symbols = {name: opt_einsum.get_symbol(index) for index, (name, _) in enumerate(einsum.sizes)}
    terms = ["".join(symbols[letter] for letter in sorted(each)) for each in (*einsum.operands, einsum.result)]
    shapes = [[dict(einsum.sizes)[letter] for letter in sorted(each)] for each in einsum.operands]
    torch.manual_seed(seed)
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    text = f"{','.join(terms[:-1])}->{terms[-1]}"
    path = cheapest(einsum, H200, "float64")
    torch.testing.assert_close(opt_einsum.contract(text, *tensors, optimize=path), torch.einsum(text, *tensors))


def test_equal_indices_first() -> None:
    """opt_einsum issue 254: for bgk,bkd,bk->bgd the automatic order makes a [b, k, d] product; the small one comes first here."""
    sizes = (("b", 64), ("d", 512), ("g", 16), ("k", 4096))
    einsum = Einsum((frozenset("bgk"), frozenset("bkd"), frozenset("bk")), frozenset("bgd"), sizes)
    assert cheapest(einsum, H200, "bfloat16")[0] == (0, 2)


def test_more_operands_and_letters_than_the_alphabet() -> None:
    names = [f"x{index}" for index in range(61)]
    operands = tuple(frozenset(pair) for pair in pairwise(names))
    einsum = Einsum(operands, frozenset((names[0], names[-1])), tuple((name, 2) for name in names))
    path = cheapest(einsum, H200, "float32")
    assert len(path) == 59
    assert measure(einsum, path)[1] == 4


def test_flops_count_multiplications_and_additions() -> None:
    matrices = Einsum((frozenset("ab"), frozenset("bc")), frozenset("ac"), (("a", 2), ("b", 3), ("c", 5)))
    assert step_flops(matrices, matrices.operands, matrices.result) == 60
    assert step_flops(replace(matrices, result=frozenset("abc")), matrices.operands, frozenset("abc")) == 30


def test_linear_attention_is_reordered_where_that_pays(scores: Program) -> None:
    """(Q Kᵀ) V for short sequences, Q (Kᵀ V) for long ones; the heads of K count once each."""
    for length, first in ((16, (0, 1)), (4096, (1, 2))):
        problem = problem_from_sizes(scores, B=2, T=length, H=8, N=64, P=64)
        found = order("Y", scores.outputs[0], problem, H200, spreads(problem))  # type: ignore[arg-type]
        assert (found.path[0], found.equation) == (first, "TN, SN, SP -> TP")
    assert found.flops == 2 * 2 * 2 * 8 * 4096 * 64 * 64


def test_grouped_heads_are_nested_letters() -> None:
    assert split_heads([8, 2, 1], 8) == {8: {"head2": 2, "head8": 4}, 2: {"head2": 2}, 1: {}}
    assert split_heads([3, 2], 6) == {3: {"head2": 2, "head6": 3}, 2: {"head2": 2}}


def test_grouped_heads_save_work(scores: Program) -> None:
    """K and V of two heads meet before Q of eight: their product is made twice, not eight times."""
    problem = problem_from_sizes(scores, T=4096, H=8, N=64, P=64, heads={"K": 2, "V": 2})
    known = spreads(problem)
    assert known == {"Q": Spread(1, 8), "K": Spread(1, 2), "V": Spread(1, 2)}
    found = order("Y", scores.outputs[0], problem, H200, known)  # type: ignore[arg-type]
    assert found.flops == 2 * 4096 * 64 * 64 * (2 + 8)
