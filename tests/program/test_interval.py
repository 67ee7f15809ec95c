"""Supports over blocks: never and always are never wrong, and the lag's bounds hold; what each kind says of plain blocks."""

from __future__ import annotations

import random

import pytest

from contractor.program.expression import Constant, Expression, Leaf, Number, Variable
from contractor.program.interval import Cover, cover, lag_range
from contractor.program.laws import BOTH, FUTURE, Frame, moved
from contractor.program.masks import MASKS
from contractor.program.place import LAG, LENGTH, Given, Place, S, T, Whole, behind, evaluate

ARGUMENT = Variable("w", (), Number.INT)
IDS = Variable("ids", ("S",), Number.INT)
LEAVES = {
    "full": (),
    "causal": (),
    "decay": (("gamma", Constant(0.5)),),
    "window": (("w", ARGUMENT),),
    "dilated": (("d", ARGUMENT),),
    "blocks": (("b", ARGUMENT),),
    "prefix": (("n", ARGUMENT),),
    "documents": (("ids", IDS),),
}
LENGTH_OF_CASES = 7


def support(kind: str) -> Place | None:
    return MASKS[kind].law(Leaf(kind, LEAVES[kind], ())).support


def holds(place: Place, t: int, s: int, argument: int, ids: list[int]) -> bool:
    def held(_value: Expression, at: int) -> int:
        return ids[at]

    def given(value: Expression) -> int:
        return argument if value is ARGUMENT else int(value.value)  # type: ignore[union-attr]

    return bool(evaluate(place, t, s, LENGTH_OF_CASES, given, held, lambda a, b: a == b))


def random_support(rng: random.Random, depth: int) -> Place:
    """A support of a register's kind, moved, joined with others; or arithmetic that no kind has."""
    if depth and rng.random() < 0.6:
        left, right = random_support(rng, depth - 1), random_support(rng, depth - 1)
        return left & right if rng.random() < 0.5 else left | right
    if rng.random() < 0.25:
        number = Whole(rng.randint(1, 4))
        some = rng.choice((LAG * number, T * S, LAG // number, (T + S) % number, LENGTH - T, (S * -1) // number))
        return some >= rng.randint(-4, 6) if rng.random() < 0.7 else some.same(rng.randint(0, 3))
    place = support(rng.choice([kind for kind in LEAVES if kind != "full"]))
    assert place is not None
    return moved(place, rng.choice((Frame(), FUTURE, BOTH, Frame(mirrored=True))))


@pytest.mark.parametrize("seed", range(150))
def test_cover_and_bounds_are_never_wrong(seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    place = random_support(rng, 2)
    argument, ids = rng.randint(1, 5), [rng.randint(0, 2) for _ in range(LENGTH_OF_CASES)]
    t, s = (tuple(sorted(rng.choices(range(LENGTH_OF_CASES), k=2))) for _ in range(2))
    found = [holds(place, at, by, argument, ids) for at in range(t[0], t[1] + 1) for by in range(s[0], s[1] + 1)]
    exact = {True: Cover.FULL, False: Cover.EMPTY}

    def known(value: Expression) -> int:
        return argument if value is ARGUMENT else int(value.value)  # type: ignore[union-attr]

    for length, given in ((LENGTH_OF_CASES, known), (None, lambda _value: None)):
        answer = cover(place, t, s, length, given)
        assert answer is Cover.PARTIAL or all(exact[one] is answer for one in found)
    low, high = (None if bound is None else int(evaluate(bound, 0, 0, LENGTH_OF_CASES, known, None, None)) for bound in lag_range(place))  # type: ignore[arg-type]
    for at in range(LENGTH_OF_CASES):
        for by in range(LENGTH_OF_CASES):
            if holds(place, at, by, argument, ids):
                assert (low is None or at - by >= low) and (high is None or at - by <= high)


def three(_value: Expression) -> int:
    return 3


@pytest.mark.parametrize(
    ("kind", "t", "s", "answer"),
    (
        ("full", (0, 3), (4, 7), Cover.FULL),
        ("causal", (4, 7), (0, 3), Cover.FULL),
        ("causal", (4, 7), (4, 7), Cover.PARTIAL),
        ("causal", (0, 3), (4, 7), Cover.EMPTY),
        ("window", (4, 7), (0, 1), Cover.EMPTY),
        ("window", (5, 6), (3, 4), Cover.PARTIAL),
        ("window", (5, 5), (3, 5), Cover.FULL),
        ("blocks", (3, 5), (3, 5), Cover.FULL),
        ("blocks", (3, 5), (0, 2), Cover.EMPTY),
        ("prefix", (0, 1), (0, 2), Cover.FULL),
        ("prefix", (0, 1), (3, 4), Cover.EMPTY),
        ("dilated", (6, 6), (3, 3), Cover.FULL),
        ("dilated", (6, 6), (4, 5), Cover.EMPTY),
        ("documents", (0, 1), (0, 1), Cover.PARTIAL),
        ("causal", (1, 0), (0, 3), Cover.EMPTY),
    ),
)
def test_blocks_of_each_kind(kind: str, t: tuple[int, int], s: tuple[int, int], answer: Cover) -> None:
    assert cover(support(kind), t, s, 8, three) is answer


def test_an_unknown_argument_still_skips_what_is_ahead() -> None:
    assert cover(support("window"), (0, 3), (4, 7)) is Cover.EMPTY
    assert cover(support("window"), (4, 7), (0, 3)) is Cover.PARTIAL
    written = MASKS["window"].law(Leaf("window", (("w", Constant(2)),), ())).support
    assert cover(written, (4, 7), (0, 2)) is Cover.EMPTY


def test_bounds_of_the_lag() -> None:
    width = Given(ARGUMENT)
    assert lag_range(None) == (None, None)
    assert lag_range(support("causal")) == (Whole(0), None)
    assert lag_range(support("window")) == (Whole(0), width - 1)
    assert lag_range(support("blocks")) == (Whole(1) - width, width - 1)
    assert lag_range(support("prefix")) == (None, None)
    assert lag_range(behind(1) & behind(3)) == (Whole(3), None)
    assert lag_range(behind(1) | behind(3)) == (Whole(1), None)
    reverse = moved(support("window"), FUTURE)  # type: ignore[arg-type]
    assert lag_range(reverse) == (Whole(0) - (width - 1), Whole(0))
    assert lag_range(LAG.same(2)) == (Whole(2), Whole(2))
