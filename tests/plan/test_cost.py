"""Seconds from counts: what bounds a kernel, what waits for what, and the times that were measured on an H200."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import median

import pytest

from contractor.pipeline import Options, operator, program_of
from contractor.plan.cost import Cost, resident, seconds, waves_of
from contractor.plan.machine import CPU, H200
from contractor.plan.plan import Offer, Refusal
from contractor.schedules.parts.tilings import tiling
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import best, kernels_of, priced
from tests.schedules.forms import task

COPY = Cost(flops=0, tensor_flops=0, bytes=537_000_000, launches=1, steps=1, programs=4096, threads=1024)
Shape = tuple[int, int, int, int, int]


def test_what_bounds_it() -> None:
    """The measured copy of the four tensors of a layer takes 0.126 ms on an H200; more of anything else takes over."""
    spent, bound = seconds(COPY, H200, "bfloat16")
    assert bound == "bytes"
    assert spent == pytest.approx(0.126e-3 + H200.launch, rel=0.01)
    for more, expected in (
        ({"trips": 100.0}, "steps"),
        ({"exchanges": 1000.0}, "steps"),
        ({"products": 1000.0}, "steps"),
        ({"launches": 4096}, "launches"),
        ({"flops": 10**12, "tensor_flops": 10**12}, "tensor"),
        ({"flops": 10**12}, "arithmetic"),
        ({"exponentials": 10**12}, "arithmetic"),
    ):
        assert seconds(replace(COPY, **more), H200, "bfloat16")[1] == expected


def test_few_programs_reach_a_share_of_the_arithmetic() -> None:
    busy = replace(COPY, bytes=0, flops=10**12, tensor_flops=10**12)
    full, few = (seconds(replace(busy, programs=count), H200, "bfloat16")[0] - H200.launch for count in (132, 33))
    assert few == pytest.approx(4 * full, rel=1e-3)
    assert seconds(replace(busy, programs=1), CPU, "float32") == seconds(busy, CPU, "float32")


def test_waits_overlap_and_work_does_not() -> None:
    """Two programs on a multiprocessor wait together, but compute one after the other."""
    waiting = replace(COPY, bytes=0, programs=132, trips=100.0, fresh=0.0)
    assert seconds(replace(waiting, programs=264), H200, "bfloat16") == pytest.approx(seconds(waiting, H200, "bfloat16"))
    working = replace(waiting, trips=0.0, steps=0, flops=10**12)
    twice = replace(working, programs=264, flops=2 * 10**12)
    one, two = (seconds(each, H200, "bfloat16")[0] - H200.launch for each in (working, twice))
    assert two == pytest.approx(2 * one)


def test_waves() -> None:
    """Two programs a multiprocessor: 264 run at once, 265 need a second wave; where some end early, the mean counts."""
    chain = replace(COPY, steps=64, programs=264)
    assert resident(chain, H200) == 2
    assert [waves_of(replace(chain, programs=count), H200) for count in (1, 264, 265)] == [1, 1, 2]
    assert waves_of(replace(chain, programs=2640, all_steps=2640 * 32), H200) == 10
    assert waves_of(replace(chain, programs=8, all_steps=8 * 32), H200) == 2


def test_room_on_a_multiprocessor() -> None:
    """Shared memory, registers and threads each bound how many programs fit."""
    assert resident(replace(COPY, threads=128, shared=100 << 10), H200) == 2
    assert resident(replace(COPY, threads=128, shared=100 << 10, registers=40_000), H200) == 1
    assert resident(replace(COPY, threads=128), H200) == 16
    assert resident(replace(COPY, shared=10**9), H200) == 1


def test_nothing_costs_a_launch() -> None:
    assert seconds(Cost(0, 0, 0, 1, 0, 0), H200, "float32") == (H200.launch, "launches")


# ---- measured ---------------------------------------------------------------------------------------------------------------

BIG, SMALL, WIDE, LONG = (4, 4096, 32, 128, 128), (8, 2048, 32, 64, 64), (4, 4096, 64, 128, 64), (1, 32768, 16, 128, 128)
T256, T1024 = (4, 256, 32, 128, 128), (4, 1024, 32, 128, 128)
DEFAULTS = {"chunked": ((64, 4, 3), (64, 4, 2), (64, 4, 1)), "quadratic": ((128, 4, 2), (64, 4, 2), (64, 4, 1)), "recurrent": ((32, 4, 1),)}
# bfloat16, H200, milliseconds from replays of CUDA graphs, one for each tiling of DEFAULTS; at P = 64 quadratic has no first one
MEASURED: tuple[tuple[str, str, Shape, tuple[float, ...]], ...] = (
    ("chunked", "causal", BIG, (0.1627, 0.1742, 0.2804)),
    ("chunked", "causal", SMALL, (0.067, 0.0814, 0.1273)),
    ("chunked", "causal", WIDE, (0.1878, 0.2017, 0.3206)),
    ("chunked", "causal", LONG, (0.551, 1.0231, 1.8172)),
    ("chunked", "causal", T256, (0.0121, 0.011, 0.0127)),
    ("chunked", "causal", T1024, (0.0435, 0.047, 0.0723)),
    ("quadratic", "causal", SMALL, (0.3052, 0.411)),
    ("quadratic", "causal", T256, (0.0157, 0.0178, 0.0161)),
    ("quadratic", "causal", T1024, (0.1323, 0.1574, 0.1619)),
    ("quadratic", "causal", BIG, (1.4289, 1.7879, 1.8614)),
    ("recurrent", "causal", SMALL, (4.1277,)),
    ("recurrent", "causal", T256, (0.1594,)),
    ("recurrent", "causal", T1024, (0.8342,)),
    ("chunked", "fixed", BIG, (0.1791, 0.1998, 0.2916)),
    ("chunked", "fixed", SMALL, (0.0678, 0.0874, 0.1323)),
    ("chunked", "fixed", WIDE, (0.195, 0.2207, 0.327)),
    ("chunked", "fixed", LONG, (0.6803, 1.0441, 1.8585)),
    ("chunked", "fixed", T256, (0.0136, 0.0123, 0.0139)),
    ("chunked", "fixed", T1024, (0.0475, 0.0538, 0.0754)),
    ("quadratic", "fixed", SMALL, (0.3675, 0.4309)),
    ("quadratic", "fixed", T256, (0.015, 0.0174, 0.0173)),
    ("quadratic", "fixed", T1024, (0.116, 0.1466, 0.1568)),
    ("quadratic", "fixed", BIG, (1.4022, 1.9234, 2.0011)),
    ("recurrent", "fixed", SMALL, (4.1885,)),
    ("recurrent", "fixed", T256, (0.1759,)),
    ("recurrent", "fixed", T1024, (0.9401,)),
    ("chunked", "gate", BIG, (0.2688, 0.2288, 0.3563)),
    ("chunked", "gate", SMALL, (0.0765, 0.0983, 0.1607)),
    ("chunked", "gate", WIDE, (0.2839, 0.2607, 0.4147)),
    ("chunked", "gate", LONG, (0.9977, 1.4054, 2.3257)),
    ("chunked", "gate", T256, (0.0201, 0.0149, 0.0203)),
    ("chunked", "gate", T1024, (0.0711, 0.0626, 0.0938)),
    ("quadratic", "gate", SMALL, (0.4877, 0.5758)),
    ("quadratic", "gate", T256, (0.0183, 0.021, 0.0223)),
    ("quadratic", "gate", T1024, (0.1482, 0.1827, 0.1921)),
    ("quadratic", "gate", BIG, (1.7897, 2.4097, 2.5468)),
    ("recurrent", "gate", SMALL, (4.2196,)),
    ("recurrent", "gate", T256, (0.2046,)),
    ("recurrent", "gate", T1024, (1.0367,)),
)
ONE_BLOCK = {BIG: 0.1267, LONG: 0.7469, T256: 0.0083, T1024: 0.0348}  # chunked, causal: all 128 columns in one program


def timed() -> Iterator[tuple[str, str, Shape, tuple[int, int, int], float]]:
    """Every measurement."""
    for schedule, mask, shape, times in MEASURED:
        tilings = DEFAULTS[schedule][-len(times) :]
        yield from ((schedule, mask, shape, one, spent) for one, spent in zip(tilings, times, strict=True))
    yield from (("chunked", "causal", shape, (128, 4, 3), spent) for shape, spent in ONE_BLOCK.items())


def offered(schedule: str, mask: str, shape: Shape, blocks: tuple[int, int, int]) -> Offer:
    """The price at a tiling."""
    wanted = task(mask, shape)
    found = tiling(wanted, H200, *blocks, smallest=1 if schedule == "recurrent" else 64)
    return priced(SCHEDULES[schedule], wanted, H200, replace(found, via="pointer") if schedule == "recurrent" else found)


def test_prices_are_near_what_was_measured() -> None:
    """All within a factor of 1.5, half of them within 1.15. Left out: recurrent at N = P = 64, whose steps were seen to take 2 µs, more
    than twice as long as at 128, for no reason that its counts tell."""
    ratios = {one[:4]: offered(*one[:4]).milliseconds / one[4] for one in timed() if one[0] != "recurrent" or one[2] != SMALL}
    assert not {one: ratio for one, ratio in ratios.items() if not 1 / 1.5 < ratio < 1.5}
    assert median(max(ratio, 1 / ratio) for ratio in ratios.values()) < 1.15


@pytest.mark.parametrize("mask", ["causal", "fixed", "gate"])
@pytest.mark.parametrize("shape", [SMALL, T256, T1024], ids=str)
def test_the_order_that_was_fastest_is_cheapest(mask: str, shape: Shape) -> None:
    """The three orders are priced in the order of their measured times."""
    fastest = {schedule: min(one[4] for one in timed() if one[:3] == (schedule, mask, shape)) for schedule in DEFAULTS}
    offers = [answer for name in fastest if not isinstance(answer := best(SCHEDULES[name], task(mask, shape), H200), Refusal)]
    assert [one.schedule for one in sorted(offers, key=lambda one: one.milliseconds)] == sorted(fastest, key=fastest.__getitem__)


DIAGONAL: tuple[tuple[Shape, float, float], ...] = (
    ((4, 2048, 4, 256, 512), 5.773, 2.758),
    ((1, 2048, 16, 128, 128), 1.250, 2.095),
    ((4, 2048, 32, 64, 64), 4.776, 4.624),
    ((4, 512, 32, 128, 128), 0.769, 0.614),
)  # a gate for each channel, quadratic and recurrent in milliseconds: measured after the constants were set


@pytest.mark.parametrize(("shape", "quadratic", "recurrent"), DIAGONAL, ids=str)
def test_the_choice_holds_where_nothing_was_fitted(shape: Shape, quadratic: float, recurrent: float) -> None:
    """The fastest is the cheapest, though recurrent is priced at two fifths of its time at worst."""
    prices: list[float] = []
    for name, measured in (("quadratic", quadratic), ("recurrent", recurrent)):
        answer = best(SCHEDULES[name], task("gate n", shape), H200)
        assert isinstance(answer, Offer) and 0.38 < answer.milliseconds / measured < 1.2
        prices.append(answer.milliseconds)
    assert (prices[0] < prices[1]) == (quadratic < recurrent)


def test_the_tiling_that_is_chosen_is_a_fast_one() -> None:
    """At most a quarter slower than the fastest that was measured, of the tilings without segments or sums made before."""
    for (schedule, mask, shape), group in groupby(sorted(timed(), key=lambda one: one[:3]), key=lambda one: one[:3]):
        times = {offered(schedule, mask, shape, one[3]).tiling: one[4] for one in group}
        offers = [offered(schedule, mask, shape, blocks) for blocks in tried(schedule, mask, shape)]
        cheapest = min(offers, key=lambda one: one.milliseconds)
        assert times[cheapest.tiling] <= 1.25 * min(times.values()), (schedule, mask, shape)


def tried(schedule: str, mask: str, shape: Shape) -> list[tuple[int, int, int]]:
    """The tilings that were measured."""
    return [one[3] for one in timed() if one[:3] == (schedule, mask, shape)]


CHOSEN: tuple[tuple[str, Shape, float], ...] = (
    ("causal", LONG, 0.191),
    ("fixed", LONG, 0.258),
    ("gate", LONG, 0.325),
    ("gate", BIG, 0.200),
)  # chunked, as planned: segments where heads are few, running sums made before


@pytest.mark.parametrize(("mask", "shape", "measured"), CHOSEN, ids=str)
def test_segments_and_sums_are_chosen_and_priced(mask: str, shape: Shape, measured: float) -> None:
    answer = best(SCHEDULES["chunked"], task(mask, shape), H200)
    assert isinstance(answer, Offer)
    assert ("SEGMENTS" in dict(answer.tiling.constants)) == (shape == LONG) and answer.tiling.summed == (mask == "gate")
    assert 1 / 1.5 < answer.milliseconds / measured < 1.5


# ---- planning is quick ------------------------------------------------------------------------------------------------------

SPECS = sorted((Path(__file__).parents[1] / "specs").glob("*.ctr"))


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_planning_takes_less_than_80_ms(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At sizes that were not planned before, kernels built anew, on a machine that is not here: the quickest of five, as other work may
    share the processor."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    planned = operator(program_of(path), Options())
    axes = {"N": 64, "P": 64, "F": 64, "M": 64, "R": 64}
    needed = {axis: size for axis, size in axes.items() if any(axis in one.axes for one in planned.program.operands)}
    spent: list[float] = []
    for fresh in range(5):
        best.cache_clear()
        kernels_of.cache_clear()
        begin = time.process_time()
        plan = planned.plan(machine="h200", B=2, T=2048 + 64 * fresh, H=16, **needed)
        spent.append(time.process_time() - begin)
        assert plan.choices or plan.contractions
    assert min(spent) < 0.08, spent
