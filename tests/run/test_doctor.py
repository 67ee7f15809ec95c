"""Which hazards are told for which versions."""

from __future__ import annotations

import pytest

from contractor.run.doctor import Facts, findings, hazards, parsed


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Facts(), []),
        (Facts(triton=(3, 9, 0)), ["interpreter"]),
        (Facts(triton=(3, 7, 0)), ["transpose of a product", "interpreter"]),
        (Facts(triton=(3, 9, 0), ptxas=(13, 0, 88)), ["ptxas", "interpreter"]),
        (Facts(triton=(3, 9, 0), capability=(8, 0)), ["warps", "interpreter"]),
        (Facts(triton=(3, 9, 0), capability=(9, 0)), ["16 or 32", "warps", "interpreter"]),
        (
            Facts(triton=(3, 6, 0), ptxas=(12, 8, 93), numpy=(2, 4, 0), capability=(9, 0)),
            [
                "transpose of a product",
                "ptxas",
                "16 or 32",
                "warps",
                "pipelined",
                "own transpose",
                "warp_specialize",
                "numpy 2.4",
                "bfloat16",
            ],
        ),
    ],
)
def test_hazards_follow_the_versions(facts: Facts, words: list[str]) -> None:
    found = list(hazards(facts))
    assert len(found) == len(words)
    assert all(word in hazard for word, hazard in zip(words, found, strict=True))


def test_versions_are_numbers() -> None:
    assert parsed("3.9.0+git12") == (3, 9, 0) and parsed(None) == ()
    names = [name for name, _ in findings()]
    assert names[:4] == ["contractor", "python", "torch", "triton"]
