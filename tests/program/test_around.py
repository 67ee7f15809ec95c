"""What a kernel does beside its contraction, and what it leaves to the layer."""

from __future__ import annotations

import pytest

from contractor.pipeline import program_of
from contractor.program.expression import Contract
from contractor.program.mixing import Core, Mixing, mixings
from contractor.program.show import expression_text

LAYER = """layer around
input Q [T, N]
input K [S, N]
input V [S, P]
input w [S]
input r [T]
input G [S, N]
param D []
param E [P]
{}
"""


def posed(*lines: str) -> Mixing:
    """The one mixing of a layer."""
    (found,) = mixings(program_of(LAYER.format("\n".join(lines))))
    return found


def core(*lines: str) -> Core:
    """Its one contraction."""
    (found,) = posed(*lines).terms
    return found


def said(*lines: str) -> tuple[str, str, str, str]:
    """Scale, weights of targets, of sources, and skip of a layer's contraction as text."""
    found = core(*lines)
    rows = [" * ".join(expression_text(one.value) for one in side) for side in (found.target_weight, found.source_weight)]
    scale, skip = ("" if one is None else expression_text(one) for one in (found.scale, found.skip))
    return scale, rows[0], rows[1], skip


MIX = "Y [T, P] = contract(TN, SN, SP, TS -> TP)(Q, K, V, causal())"
WEIGHTED = "Y [T, P] = contract(TN, SN, SP, TS -> TP)(Q, {}, {}, causal())"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((MIX, "output Y * rsqrt(N)"), ("1.0 * rsqrt(N)", "", "", "")),
        ((MIX, "c [] = 1 / sqrt(N)", "output 2 * (Y * c)"), ("1.0 * (1 / sqrt(N)) * 2", "", "", "")),
        ((MIX, "output Y * 3 + D * V[T, P]"), ("1.0 * 3", "", "", "D")),
        ((MIX, "output V[T, P] * exp(D) + Y"), ("", "", "", "exp(D)")),
        ((MIX, "output Y + V[T, P]"), ("", "", "", "1.0")),
        ((MIX, "output Y * r"), ("", "r", "", "")),
        ((MIX, "output (Y / r) * rsqrt(N) + D * V[T, P]"), ("1.0 * rsqrt(N)", "reciprocal(r)", "", "D")),
        ((WEIGHTED.format("K", "w * V"), "output Y"), ("", "", "w", "")),
        ((WEIGHTED.format("K * w", "exp(w) * V"), "output Y + D * V[T, P]"), ("", "", "w * exp(w)", "D")),
        (("x [S, P] = (V * w) * 2", WEIGHTED.format("K", "x"), "output Y"), ("", "", "", "")),
        (("x [S, P] = V * w", WEIGHTED.format("K", "x"), "output Y"), ("", "", "w", "")),
    ],
    ids=str,
)
def test_what_a_kernel_does(lines: tuple[str, ...], found: tuple[str, str, str, str]) -> None:
    assert said(*lines) == found


@pytest.mark.parametrize(
    "lines",
    [
        (MIX, "output Y * 0"),
        (MIX, "output Y * T"),
        (MIX, "output Y * 2, Y"),
        (MIX, "output Y * sum(Y over P)"),
        (MIX, "output Y + E * V[T, P]"),
        (MIX, "output Y + D * V[T, P] * r"),
        (MIX, "output Y + D * Q"),
        (MIX, "output D * Y"),
        (MIX, "output silu(Y)"),
    ],
    ids=str,
)
def test_what_is_left_to_the_layer(lines: tuple[str, ...]) -> None:
    """Numbers that are 0 or lengths, results that are read twice, rows that are not the value, what differs by channel or head."""
    try:
        found = posed(*lines)
    except Exception as mistake:  # a layer that the checker refuses tests nothing
        raise AssertionError(lines) from mistake
    assert said(*lines) == ("", "", "", "") and isinstance(found.whole, Contract)


def test_rows_are_weighted_under_scalar_transitions_alone() -> None:
    text = "Y [T, P] = contract(TN, SN, SP, TSN -> TP)(Q, w * K, V, L)"
    assert said("L [T, S, N] = semiseparable(log = G)", text, "output Y * rsqrt(N)") == ("1.0 * rsqrt(N)", "", "", "")


def test_a_sum_of_masks_is_scaled_term_by_term_and_has_no_skip() -> None:
    terms = posed("Y [T, P] = contract(TN, SN, SP, TS -> TP)(Q, K, V, causal() + window(4))", "output 2 * Y").terms
    assert len(terms) == 2 and all(one.scale is not None for one in terms)
    found = posed("Y [T, P] = contract(TN, SN, SP, TS -> TP)(Q, K, V, causal() + window(4))", "output 2 * Y + V[T, P]")
    assert all(one.skip is None for one in found.terms) and isinstance(found.whole, Contract)
