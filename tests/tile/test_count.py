"""Counts of small kernels against counts by hand."""

from __future__ import annotations

import pytest

from contractor.errors import TileError
from contractor.tile.build import Builder
from contractor.tile.count import count
from contractor.tile.ops import Span, iota, number, size
from tests.tile.kernels import one_pass, packed, small_dot, transition, window


def test_one_product() -> None:
    found = count(small_dot(), {"B": 2, "T": 4, "N": 8, "P": 16})
    assert found.flops == found.tensor_flops == 2 * (2 * 4 * 8 * 16)
    assert (found.bytes_read, found.bytes_written) == (2 * (4 * 8 + 8 * 16) * 2, 2 * 4 * 16 * 4)
    assert (found.programs, found.steps, found.all_steps, found.exponentials) == (2, 0, 0, 0)


@pytest.mark.parametrize("gated", [False, True])
def test_one_pass(gated: bool) -> None:
    sizes = {"B": 3, "T": 40, "H": 2, "N": 8, "P": 12, "CHUNK": 16, "BLOCK_P": 4}
    found = count(one_pass(gated=gated), sizes, {"q": 4, "k": 4, "v": 4, "y": 4})
    programs, chunks, c, n, p = 3 * 2 * 3, 3, 16, 8, 4
    products = 2 * c * c * n + 2 * c * n * p + 2 * c * c * p + 2 * n * c * p
    plain = c * p
    if gated:  # base 2 twice, running and whole sum, differences, weights, enter, exponent of leave, leaving, fade
        plain += 2 * c + 2 * c + c * c + c * c + c * p + c + c * p + n * p
    assert (found.programs, found.steps, found.all_steps) == (programs, chunks, programs * chunks)
    assert found.tensor_flops == programs * chunks * products
    assert found.flops - found.tensor_flops == programs * chunks * plain
    assert found.exponentials == (programs * chunks * (c * c + c + c + 1) if gated else 0)
    gates = 3 * 40 * 2 * 4 if gated else 0
    assert found.bytes_read == 3 * 40 * 2 * (8 + 8 + 12) * 4 + gates, "each tensor once"
    assert found.bytes_written == 3 * 40 * 2 * 12 * 4
    assert found.issued_read == programs * chunks * (c * (8 + 8 + 4) + (c if gated else 0)) * 4
    assert found.issued_written == programs * chunks * c * 4 * 4


@pytest.mark.parametrize("length", [1, 64, 100, 4096])
def test_counts_that_differ_between_programs(length: int) -> None:
    sizes = {"T": length, "CHUNK": 16, "W": 37}
    blocks = -(-length // 16)
    steps = [1 + min(block, block - max(0, block * 16 - 36) // 16) for block in range(blocks)]
    found = count(window(), sizes)
    assert (found.programs, found.steps, found.all_steps) == (blocks, max(steps), sum(steps))
    assert found.issued_read == sum(steps) * 16 * 4
    assert found.bytes_read == min(length, sum(steps) * 16) * 4


def test_many_programs_are_sampled_evenly() -> None:
    """Row blocks are the fastest part of the program's number: a sample at even distances would see few of them."""
    k = Builder("triangle", "", {"t": "CHUNK"}, scalars=("T",))
    block = k.program(size("R") * size("B")) % size("R")
    out = k.full("out", "t")
    x = k.buffer("x", "T", dtype="acc")
    with k.loop("step", block) as step:
        place = step * size("CHUNK") + iota("t")
        k.update(out, out + k.load("x_tile", x, Span("t", step * size("CHUNK"), place, place < size("T"))))
    k.store(k.buffer("y", "R", "CHUNK", dtype="acc"), block, Span("t", number(0), iota("t")), value=out)
    found = count(k.done(), {"R": 64, "B": 1024, "T": 512, "CHUNK": 8})
    assert found.steps == 63
    assert found.all_steps == pytest.approx(1024 * 63 * 64 / 2, rel=0.01)


def test_counts_that_depend_on_data() -> None:
    sizes = {"S": 4, "T": 100, "N": 8, "CHUNK": 16}
    with pytest.raises(TileError, match="depends on data"):
        count(packed(), sizes)
    assert count(packed(), sizes, assumed={"start": 0, "stop": 25}).steps == 2
    unbounded = count(window(), {"T": 64, "CHUNK": 16, "W": 64})
    assert unbounded.all_steps == 1 + 2 + 3 + 4


def test_three_axes() -> None:
    found = count(transition(), {"B": 1, "T": 5, "N": 3, "P": 2})
    assert found.tensor_flops == 0 and found.flops == 5 * (3 * 3 * 2 + 3 * 3 * 2 + 3 * 2)
    assert found.steps == 5


def test_shared_memory_of_a_measured_kernel() -> None:
    """196,632 bytes were measured for it on sm_90, and 139,312 at 64 columns a block."""
    sizes = {"B": 4, "T": 4096, "H": 32, "N": 128, "P": 128, "CHUNK": 64, "BLOCK_P": 128}
    assert 196_632 <= count(one_pass("descriptor"), sizes, stages=3).shared <= 196_632 * 1.01
    assert 139_312 <= count(one_pass("descriptor"), {**sizes, "BLOCK_P": 64}, stages=3).shared <= 139_312 * 1.08


def test_missing_size() -> None:
    with pytest.raises(TileError, match="the size B is not given"):
        count(small_dot(), {"T": 4, "N": 8, "P": 16})
