"""What a kernel prints is what is read back."""

from __future__ import annotations

import pytest

from contractor.errors import TileError
from contractor.tile.build import Builder
from contractor.tile.ops import ACC, absolute, cast, iota, least, log2, number, peak, rsqrt, select, size, sqrt
from contractor.tile.show import read, show
from tests.tile.kernels import KERNELS, one_pass


@pytest.mark.parametrize("name", KERNELS)
def test_round_trip(name: str) -> None:
    text = show(KERNELS[name]())
    assert show(read(text)) == text


def test_every_word() -> None:
    k = Builder("words", 'a "quoted" line', {"t": "CHUNK", "s": "CHUNK"}, scalars=("scale",))
    k.program(size("B"))
    x = k.full("x", "t", value=float("-inf"))
    k.note("it's a note")
    k.let("a", log2(sqrt(absolute(rsqrt(x)))) / 3.0 - (-1.5))
    k.let("b", (iota("t") << 2) ^ 1)
    k.let("c", (iota("t") > 1) | (iota("t") <= 0) & (iota("t").same(2)))
    k.let("d", select(iota("t") < 1, least(x, -2.0), -float("inf")) + peak(x, "t") * size("scale", ACC))
    k.let("e", number(3) - cast(iota("t"), ACC))
    text = show(k.done())
    assert show(read(text)) == text


def test_other_precision_is_another_kernel() -> None:
    assert show(one_pass(precision="tf32x3")) != show(one_pass()) == show(one_pass())
    assert show(read(show(one_pass(precision="tf32x3")))) == show(one_pass(precision="tf32x3"))


@pytest.mark.parametrize("line", ["x = open('file')", "import os", "x = [1]", "while True: pass", "x = (1", "x = a.b", "x = 'a'"])
def test_other_text_is_refused(line: str) -> None:
    with pytest.raises(TileError):
        read(show(one_pass()) + line + "\n")
