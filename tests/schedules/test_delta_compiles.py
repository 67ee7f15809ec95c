"""The kernels of the delta rule compiled ahead of time for Hopper, at the tilings that plans choose: tensor units, registers, shared
memory. All of what walks along a sequence stays in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contractor.emit.triton import arguments, emit_triton
from contractor.plan.machine import H200
from contractor.plan.plan import Offer, Refusal
from contractor.schedules.parts.form import Form, Gate, Matrix, Task
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import best, cost_of, routine_of, sizes_of
from tests.emit.test_compiles import imported, types_of
from tests.schedules.compiled import KIND, Facts, compiled
from tests.schedules.forms import task

pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
SMALL, BIG = (4, 4096, 32, 64, 64), (4, 4096, 32, 128, 128)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing compiled before is taken for what is compiled now."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    yield


def planned(wanted: Task, folder: Path) -> dict[str, Facts]:
    """The facts of every kernel of a task at the tiling that a plan takes; their claims of shared memory hold and fit the machine."""
    offer = best(SCHEDULES["chunked"], wanted, H200)
    assert isinstance(offer, Offer)
    found: dict[str, Facts] = {}
    for launch in routine_of(SCHEDULES["chunked"], wanted, offer.tiling).launches:
        kernel, sizes = launch.kernel, sizes_of(wanted, offer.tiling)
        path = folder / f"{kernel.name}.py"
        path.write_text(emit_triton(kernel), encoding="utf-8")
        constants = {name: sizes[name] for name in arguments(kernel) if name in kernel.constants}
        tiling, claimed = replace(offer.tiling, warps=launch.warps), cost_of(kernel, wanted, offer.tiling).shared
        types = types_of(kernel, sizes, KIND[wanted.dtype])
        found[kernel.name] = compiled(getattr(imported(path), kernel.name), types, constants, H200, tiling, claimed)
        assert found[kernel.name].shared <= H200.shared and found[kernel.name].mma == 0
    return found


def whole(wanted: Task) -> Task:
    """The backward of a task."""
    return replace(wanted, form=replace(wanted.form, flow="whole"))


@pytest.mark.parametrize(("shape", "inverse", "walk"), [(SMALL, 24, 24), (BIG, 32, 32)], ids=["64", "128"])
def test_forward(shape: tuple[int, int, int, int, int], inverse: int, walk: int, tmp_path: Path) -> None:
    """Nothing spills."""
    found = planned(task("delta rule", shape), tmp_path)
    assert [(name, one.wgmma, one.spills) for name, one in found.items()] == [("chunk_pairs", inverse, 0), ("delta", walk, 0)]


@pytest.mark.parametrize("shape", [SMALL, BIG], ids=["64", "128"])
def test_backward(shape: tuple[int, int, int, int, int], tmp_path: Path) -> None:
    """Nothing spills here either."""
    found = planned(whole(task("delta rule", shape)), tmp_path)
    assert list(found) == ["chunk_pairs", "delta_states", "delta_back", "delta_rest"]
    assert all(one.wgmma and not one.spills for one in found.values()), found


def test_what_is_erased_apart(tmp_path: Path) -> None:
    """The general form has twice as many products, and no more older ones."""
    found = planned(task("gated rank one", SMALL), tmp_path)
    assert found["delta"].wgmma > 24 and found["delta"].spills == 0


@pytest.mark.parametrize(("width", "dtype"), [(512, "bfloat16"), (256, "float32")])
def test_a_state_that_is_too_wide_is_refused(width: int, dtype: str) -> None:
    answer = best(SCHEDULES["chunked"], task("delta rule", (2, 256, 4, width, 64), dtype), H200)
    assert isinstance(answer, Refusal) and f"{width} wide" in answer.reason


REFUSED = {
    "its chunks need products": (Matrix("a", "dense"),),
    "differs between the rows": (Gate("gate", features=("n",)), Matrix("a", "rank_one")),
    "may be negative": (Gate("gate", by_value=True), Matrix("a", "rank_one")),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refusals_name_the_reason(reason: str) -> None:
    assert reason in SCHEDULES["chunked"].refusal(Form(REFUSED[reason]))
