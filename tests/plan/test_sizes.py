"""Problems from sizes by letter and from shapes, and the messages when they do not fit."""

from __future__ import annotations

import re

import pytest

from contractor.errors import ArgumentError
from contractor.plan.problem import Packed
from contractor.plan.sizes import problem_from_shapes, problem_from_sizes
from contractor.program.program import Program

FIT = {"Q": (2, 5, 8, 4), "K": (2, 7, 2, 4), "V": (1, 7, 8, 3)}


def test_sizes_by_letter(scores: Program) -> None:
    problem = problem_from_sizes(scores, B=2, T=5, S=7, H=8, N=4, P=3, dtype="float32", heads={"K": 2, "V": 8})
    assert problem.sizes.mapping == {"B": 2, "T": 5, "S": 7, "H": 8, "N": 4, "P": 3}
    assert (problem.dtype, problem.heads, problem.heads_of("K"), problem.heads_of("Q")) == ("float32", (("K", 2),), 2, 8)


def test_what_need_not_be_said(scores: Program, taylor: Program, attention: Program) -> None:
    assert problem_from_sizes(scores, T=5, N=4, P=3).sizes.mapping == {"B": 1, "T": 5, "S": 5, "H": 1, "N": 4, "P": 3}
    assert problem_from_sizes(scores, S=0, N=4, P=3).sizes.T == 0
    assert problem_from_sizes(attention, T=9, N=4, P=3, packed=3).packed == Packed(3)
    assert problem_from_sizes(taylor, S=6, N=4, P=3).sizes.T == 6


def test_sizes_that_follow(taylor: Program) -> None:
    """F is 1 + N + N², G is 1 + P², M is N."""
    sizes = problem_from_sizes(taylor, T=6, M=4, P=3).sizes
    assert sizes.features == (("N", 4), ("P", 3), ("F", 21), ("G", 10), ("M", 4))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"T": 5, "N": 4}, "no size for P; this layer has B, T, S, H, N, P"),
        ({"N": 4}, "no size for T, P; this layer has"),
        ({"T": 5, "N": 4, "P": 3, "X": 1}, "unknown size X; this layer has B, T, S, H, N, P"),
        ({"T": -1, "N": 4, "P": 3}, "T = -1: a size is an integer of at least 0"),
        ({"T": 5, "N": 4.0, "P": 3}, "N = 4.0: a size is an integer of at least 0"),
        ({"T": 5, "N": 4, "P": 3, "H": 0}, "H = 0: a size is an integer of at least 1"),
        ({"T": 5, "N": 4, "P": 3, "dtype": "int8"}, "unknown dtype 'int8'; there are bfloat16"),
        ({"T": 5, "N": 4, "P": 3, "H": 8, "heads": {"K": 3}}, "K has 3 heads, H is 8: a head count must be 8, 1 or a divisor of 8"),
        ({"T": 5, "N": 4, "P": 3, "heads": {"W": 1}}, "heads of W: there is no such operand; this layer takes Q, K, V"),
        ({"T": 5, "N": 4, "P": 3, "B": 2, "packed": 2}, "packed sequences lie end to end in a batch of 1; B is 2"),
    ],
)
def test_sizes_that_do_not_fit(scores: Program, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        problem_from_sizes(scores, **sizes)


def test_sizes_that_contradict(taylor: Program) -> None:
    with pytest.raises(ArgumentError, match="N = 4, but M = 5: N and M must be one size in this layer"):
        problem_from_sizes(taylor, T=6, N=4, M=5, P=3)
    with pytest.raises(ArgumentError, match="F = 20, but the definition of F has F = 21"):
        problem_from_sizes(taylor, T=6, N=4, F=20, P=3)
    with pytest.raises(ArgumentError, match="T = 6, but S = 7: T and S must be one size"):
        problem_from_sizes(taylor, T=6, S=7, N=4, P=3)


def test_shapes(scores: Program, taylor: Program) -> None:
    problem = problem_from_shapes(scores, FIT, "float32")
    assert problem.sizes.mapping == {"B": 2, "T": 5, "S": 7, "H": 8, "N": 4, "P": 3}
    assert problem.heads == (("K", 2),)
    assert problem_from_shapes(scores, {"Q": (0, 5, 8, 4), "K": (0, 7, 8, 4), "V": (1, 7, 8, 3)}).sizes.B == 0
    shared = problem_from_shapes(taylor, {"Q": (2, 6, 8, 4), "D": (3,), "one": ()})
    assert shared.heads == (("D", 1), ("one", 1))
    assert shared.heads == problem_from_shapes(taylor, {"Q": (2, 6, 8, 4), "D": (1, 3), "one": (1,)}).heads
    assert problem_from_shapes(taylor, {"Q": (2, 6, 8, 4), "D": (8, 3), "one": (8,)}).heads == ()


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"K": (2, 7, 2, 5)}, "Q has N = 4, but K has N = 5"),
        ({"K": (2, 7, 2, 1)}, "Q has N = 4, but K has N = 1; only batch and heads are shared by a size of 1"),
        ({"V": (2, 6, 8, 3)}, "K has S = 7, but V has S = 6"),
        ({"K": (2, 7, 3, 4)}, "K has 3 heads, H is 8 (Q's): a head count must be 8, 1 or a divisor of 8"),
        ({"K": (3, 7, 2, 4)}, "Q has batch 2, but K has batch 3: it must be 2 or 1"),
        ({"K": (7, 2, 4)}, "K has 3 dimensions (7, 2, 4); expected 4: [batch, S, head, N]"),
        ({"W": (1,)}, "unknown operand W; this layer takes Q, K, V"),
    ],
)
def test_shapes_that_do_not_fit(scores: Program, shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        problem_from_shapes(scores, FIT | shapes)


def test_a_missing_operand(scores: Program) -> None:
    with pytest.raises(ArgumentError, match="no tensor for K, V; this layer takes Q, K, V"):
        problem_from_shapes(scores, {"Q": (2, 5, 8, 4)})
