"""The kernels of gates for each channel compiled ahead of time for Hopper, at the tilings that plans choose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contractor.emit.triton import arguments, emit_triton
from contractor.plan.machine import H200
from contractor.plan.plan import Offer
from contractor.schedules.parts.form import Task
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import best, cost_of, routine_of, sizes_of
from tests.emit.test_compiles import imported, types_of
from tests.schedules.compiled import KIND, Facts, compiled
from tests.schedules.forms import task

pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing compiled before is taken for what is compiled now."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    yield


def planned(wanted: Task, folder: Path) -> dict[str, Facts]:
    """The facts of every kernel of a task at the tiling that a plan takes; their claims of shared memory hold and fit the machine."""
    offer = best(SCHEDULES["chunked"], wanted, H200)
    assert isinstance(offer, Offer) and offer.tiling.via == "descriptor"
    sizes = sizes_of(wanted, offer.tiling)
    found: dict[str, Facts] = {}
    for launch in routine_of(SCHEDULES["chunked"], wanted, offer.tiling).launches:
        path = folder / f"{launch.kernel.name}.py"
        path.write_text(emit_triton(launch.kernel), encoding="utf-8")
        constants = {name: sizes[name] for name in arguments(launch.kernel) if name in launch.kernel.constants}
        tiling, claimed = replace(offer.tiling, warps=launch.warps), cost_of(launch.kernel, wanted, offer.tiling).shared
        types = types_of(launch.kernel, sizes, KIND[wanted.dtype])
        one = compiled(getattr(imported(path), launch.kernel.name), types, constants, H200, tiling, claimed)
        assert one.shared <= claimed <= H200.shared and one.mma == 0
        found[launch.kernel.name] = one
    return found


@pytest.mark.parametrize(("width", "weights", "walk"), [(64, 32, 12), (128, 40, 20)])
def test_on_the_side_of_the_key(width: int, weights: int, walk: int, tmp_path: Path) -> None:
    """Nothing spills; the walk has the products of a walk without gates, less the scores."""
    found = planned(task("gate n", (4, 4096, 32, width, width)), tmp_path)
    assert [(name, one.wgmma, one.spills) for name, one in found.items()] == [("chunk_weights", weights, 0), ("walk_faded", walk, 0)]


@pytest.mark.parametrize(("width", "products", "spills"), [(64, 44, 210), (128, 56, 370)])
def test_on_the_side_of_the_value(width: int, products: int, spills: int, tmp_path: Path) -> None:
    """What spills is mostly where products find their operands, read again once a chunk."""
    *_, one = planned(task("gate p", (4, 4096, 32, width, width)), tmp_path).values()
    assert one.wgmma == products and one.spills <= spills
