"""The schedules' kernels compiled ahead of time, at the tilings that plans choose: tensor units, registers, shared memory, a twin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contractor.plan.machine import A100, H200, RTX4090, Machine
from contractor.plan.plan import Offer, Tiling
from contractor.schedules.parts.form import DKEY, DQUERY, DVALUE, Task, permuted
from contractor.schedules.parts.tilings import layout_of
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import best, kernels_of, sizes_of
from tests.emit.test_compiles import TWIN, imported, types_of
from tests.schedules.compiled import Facts, compiled, facts
from tests.schedules.forms import task

pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
SMALL, BIG = (4, 4096, 32, 64, 64), (4, 4096, 32, 128, 128)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing compiled before is taken for what is compiled now."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    yield


def planned(schedule: str, wanted: Task, machine: Machine) -> tuple[Facts, Tiling]:
    """The facts at the tiling that a plan takes, whose claim of shared memory holds and fits the machine."""
    offer = best(SCHEDULES[schedule], wanted, machine)
    assert isinstance(offer, Offer)
    found = facts(schedule, wanted, machine, offer.tiling)
    assert found.claimed == offer.cost.shared
    assert found.shared <= offer.cost.shared <= machine.shared
    return found, offer.tiling


@pytest.mark.parametrize("mask", ["causal", "fixed", "gate"])
def test_forward_at_64(mask: str) -> None:
    """Four products of 64 × 64 × 64 an iteration, each four instructions; nothing spills."""
    found, _ = planned("chunked", task(mask, SMALL), H200)
    assert (found.wgmma, found.mma, found.spills) == (16, 0, 0)


@pytest.mark.parametrize("roles", [DQUERY, DKEY, DVALUE], ids=["dquery", "dkey", "dvalue"])
def test_backward_at_64(roles: dict[str, str]) -> None:
    found, _ = planned("chunked", permuted(task("gate", SMALL), roles), H200)
    assert (found.wgmma, found.mma, found.spills) == (16, 0, 0)


def test_as_good_as_by_hand() -> None:
    """The causal forward at 128: the tensor instructions and the shared memory of the twin that a person wrote, no more spills."""
    wanted = task("causal", BIG)
    found, tiling = planned("chunked", wanted, H200)
    assert (tiling["BLOCK_P"], tiling.stages, tiling.via) == (128, 3, "descriptor")
    (kernel,), sizes = kernels_of(SCHEDULES["chunked"], wanted.form, layout_of(wanted, tiling)), sizes_of(wanted, tiling)
    kinds = types_of(kernel, sizes, "bf16")
    names = {"q": "query", "k": "key", "v": "value", "y": "result", "scale": "scale", "T": "T"}
    constants = {name: sizes[name] for name in ("H", "N", "P", "CHUNK", "BLOCK_P")}
    by_hand = compiled(imported(TWIN).one_pass, {name: kinds[own] for name, own in names.items()}, constants, H200, tiling, found.claimed)
    assert (found.wgmma, found.mma, found.shared) == (by_hand.wgmma, by_hand.mma, by_hand.shared)
    assert found.wgmma == 28 and found.spills <= by_hand.spills < 20


TO_128 = [("chunked", "gate", 28), ("quadratic", "causal", 24), ("quadratic", "gate", 24)]


@pytest.mark.parametrize(("schedule", "mask", "products"), TO_128)
def test_128_on_hopper(schedule: str, mask: str, products: int) -> None:
    found, _ = planned(schedule, task(mask, BIG), H200)
    assert (found.wgmma, found.mma, found.spills) == (products, 0, 0)


def test_two_programs_of_a_gated_forward_fit_at_once() -> None:
    """What the price of the gated forward at 128 builds on."""
    found, tiling = planned("chunked", task("gate", BIG), H200)
    assert tiling["BLOCK_P"] == 64 and 2 * (found.shared + 1024) <= H200.shared + 1024


def test_recurrent_needs_no_tensor_units() -> None:
    """The state stays in registers; only sums between threads pass through shared memory."""
    offer = best(SCHEDULES["recurrent"], task("gate", BIG), H200)
    assert isinstance(offer, Offer)
    found = facts("recurrent", task("gate", BIG), H200, offer.tiling)
    assert (found.wgmma, found.mma, found.spills) == (0, 0, 0) and found.shared <= 1024


@pytest.mark.parametrize("shape", [SMALL, BIG], ids=["64", "128"])
def test_float32(shape: tuple[int, int, int, int, int]) -> None:
    """Each product is three of TF32: at 64 that is twice as many instructions for half as many elements each, three times."""
    found, _ = planned("chunked", task("causal", shape, "float32"), H200)
    assert found.wgmma > 3 * 16 and found.mma == 0


@pytest.mark.parametrize(("schedule", "mask"), [("chunked", "causal"), ("chunked", "gate"), ("quadratic", "causal")])
def test_64_on_ampere(schedule: str, mask: str) -> None:
    """Older tensor units, loads through pointers; nothing spills."""
    found, tiling = planned(schedule, task(mask, SMALL), A100)
    assert found.mma > 0 and found.wgmma == found.spills == 0 and tiling.via == "pointer"


def test_loads_are_pipelined_on_ampere() -> None:
    """Every stage beyond the first holds tiles of its own."""
    found, tiling = planned("chunked", task("causal", SMALL), A100)
    single = facts("chunked", task("causal", SMALL), A100, replace(tiling, stages=1))
    assert tiling.stages > 1 and found.shared > single.shared


@pytest.mark.parametrize("machine", [A100, RTX4090], ids=lambda one: one.name)
@pytest.mark.parametrize("mask", ["causal", "gate"])
def test_128_on_older_gpus(machine: Machine, mask: str) -> None:
    found, _ = planned("chunked", task(mask, BIG), machine)
    assert found.mma > 0 and found.wgmma == 0


@pytest.mark.parametrize("machine", [H200, A100, RTX4090], ids=lambda one: one.name)
def test_every_tiling_that_is_offered_fits(machine: Machine) -> None:
    """By the claim, for all masks, widths and dtypes; where nothing fits, a refusal says so."""
    for schedule in SCHEDULES.values():
        for mask in ("causal", "fixed", "gate"):
            for dtype in ("bfloat16", "float32"):
                for width in (16, 64, 100, 128, 256):
                    wanted = task(mask, (2, 256, 4, width, width), dtype)
                    offer = None if schedule.refusal(wanted.form) else best(schedule, wanted, machine)
                    assert not isinstance(offer, Offer) or offer.cost.shared <= machine.shared, (schedule.name, mask, dtype, width)
                    assert width > 128 or dtype == "float32" or offer is None or isinstance(offer, Offer), (schedule.name, mask, width)
