"""Tuning: what a call asks for, which tilings are candidates, which are out and why, what becomes of the choice. No GPU: clocks, kernels
that are wrong and processes that die are given."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import contractor
from contractor.cli import main
from contractor.plan.machine import MACHINES
from contractor.plan.plan import Offer
from contractor.run import apart, build, choices, examine, timing, tune
from contractor.run.draw import STRENGTHS, USUAL, Strength, drawn
from contractor.run.examine import Finding, Job
from contractor.run.execute import Execution, Ready, at_tiling, ready, tiling_of
from contractor.run.tune import Asked, Noting
from contractor.run.tuned import Candidate, Report
from contractor.schedules.parts.form import Task
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import best, routine_of, sizes_of
from tests.run.offered import offer_more
from tests.schedules.forms import task

torch.set_num_threads(1)
H200, CPU = MACHINES["h200"], MACHINES["cpu"]
GATED = """layer gated
input Q [T, N]
input K [S, N]
input V [S, P]
input G [S]
output contract(TN, SN, SP, TS -> TP)(Q, K, V, semiseparable(log = G))
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A folder of its own, more tilings than two, and clocks that do not take long."""
    monkeypatch.setenv(build.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(timing, "CPU_SECONDS", 0.0)
    offer_more(monkeypatch, "chunked")
    forget()
    yield
    forget()


def forget() -> None:
    build.folder.cache_clear()
    choices.known.cache_clear()
    ready.cache_clear()
    best.cache_clear()
    examine.question.cache_clear()


def operands(length: int = 70, batch: int = 1, gradients: bool = True) -> dict[str, Tensor]:
    made = torch.Generator().manual_seed(0)
    found = {name: torch.randn(batch, length, 2, 8, generator=made) for name in "QKV"}
    found["G"] = -torch.rand(batch, length, 2, generator=made)
    return {name: one.requires_grad_(gradients) for name, one in found.items()}


# ---- a call ---------------------------------------------------------------------------------------------------------------------


def test_the_tasks_of_a_call_and_of_its_backward() -> None:
    op = contractor.compile(GATED, schedule="chunked")
    report = op.tune(**operands())
    assert [one.says.split("  ")[0] for one in report.tasks] == [
        "output forward",
        "output backward, the target's pass",
        "output backward, the source's pass from the future",
        "output backward from the future",
    ]
    for one in report.tasks:
        (candidate,) = one.candidates
        assert candidate.reason == "" and candidate.milliseconds is not None and one.chosen == 0 and one.ratio == 1.0
    assert not choices.known(), "where there is nothing to choose nothing is kept"


@pytest.mark.parametrize("kind", ["no gradients wanted", "none followed"])
def test_a_call_without_a_backward(kind: str) -> None:
    with torch.set_grad_enabled(kind == "no gradients wanted"):
        report = contractor.compile(GATED, schedule="chunked").tune(**operands(gradients=kind == "none followed"))
    assert [one.says.split("  ")[0] for one in report.tasks] == ["output forward"]


def test_states_and_packed_sequences() -> None:
    op = contractor.compile(GATED, schedule="chunked")
    bounds = torch.tensor([0, 30, 30, 70])
    before = torch.randn(3, 2, 8, 8, requires_grad=True)
    report = op.tune(**operands(), cu_seqlens=bounds, initial_state=before, return_state=True)
    assert len(report.tasks) == 4 and all("3 packed sequences" in one.says and one.chosen == 0 for one in report.tasks)


def test_tuning_is_a_call() -> None:
    """It leaves gradients and the operator alone, and refuses what a call refuses."""
    op, given = contractor.compile(GATED, schedule="chunked"), operands()
    op.tune(**given)
    assert all(one.grad is None for one in given.values()) and not op.known
    with pytest.raises(contractor.ArgumentError, match="needs G too"):
        op.tune(given["Q"], given["K"], given["V"])
    assert op.tune(*given.values()).tasks


@pytest.mark.parametrize("mask", ["gate", "window", "toeplitz", "gated rank one", "dense", "gate n p"])
def test_a_noting_execution_gives_the_same(mask: str) -> None:
    wanted = task(mask, (1, 5, 2, 4, 4), "float32")
    schedule = next(name for name in SCHEDULES if not SCHEDULES[name].refusal(wanted.form))
    tensors, noted = inputs(schedule, wanted), list[Asked]()
    one, other = Execution(schedule, CPU, "torch"), Noting(schedule, CPU, "torch", "Y", noted)
    assert torch.equal(one.kernel(wanted, tensors, torch.float32)["result"], other.kernel(wanted, tensors, torch.float32)["result"])
    assert noted == [Asked("Y", schedule, CPU, "torch", wanted, torch.float32)]


def test_tasks_are_noted_as_they_are_run() -> None:
    """Nothing, wider operands, half of n."""
    quadratic = Noting("quadratic", H200, "triton", "Y", [])
    assert list(tune.own_tasks(quadratic, task("gate", (1, 0, 2, 4, 4)))) == []
    careful = replace(task("gate", (1, 100, 2, 64, 64)), careful=True)
    assert [one.dtype for one in tune.own_tasks(quadratic, careful)] == ["float32"]
    chunked = Noting("chunked", H200, "triton", "Y", [])
    assert [one.dtype for one in tune.own_tasks(chunked, careful)] == ["float32"]
    flowing = replace(careful, form=replace(careful.form, flow="target"))  # with its state in two parts
    assert [one.dtype for one in tune.own_tasks(chunked, flowing)] == ["bfloat16"]
    wide = task("gate", (1, 100, 2, 2048, 64))
    assert not SCHEDULES["chunked"].tilings(wide, H200)
    halves = list(tune.own_tasks(chunked, wide))
    assert len(halves) == 1 and SCHEDULES["chunked"].tilings(halves[0], H200) and halves[0].dimensions.N < 2048


# ---- candidates and choices -----------------------------------------------------------------------------------------------------


def asked(length: int = 8192, schedule: str = "chunked", mask: str = "gate") -> Asked:
    return Asked("Y", schedule, H200, "triton", task(mask, (1, length, 4, 128, 128)), torch.bfloat16)


def by_times(times: Sequence[float | str], seen: list[Job] | None = None) -> tune.Examine:
    """Findings that are given: milliseconds, or reasons."""

    def found(jobs: Sequence[Job], device: str) -> list[Finding]:
        assert device == "cuda:0"
        (seen if seen is not None else []).extend(jobs)
        return [Finding(one) if isinstance(one, str) else Finding("", one) for _, one in zip(jobs, [*times] + [9.0] * 9, strict=False)]

    return found


def tuned(times: Sequence[float | str], *tasks: Asked) -> Report:
    return tune.tuned(tasks or (asked(),), "cuda:0", by_times(times))


@pytest.mark.parametrize("schedule", ["chunked", "quadratic", "recurrent"])
def test_candidates_are_few_cheap_and_differ_in_what_is_kept(schedule: str) -> None:
    wanted = asked(schedule=schedule)
    found = tune.candidates(wanted)
    planned = best(SCHEDULES[schedule], wanted.task, H200)
    assert isinstance(planned, Offer) and found[0].tiling == planned.tiling
    assert len(found) <= 6 and [one.milliseconds for one in found] == sorted(one.milliseconds for one in found)
    assert len({choices.stored_part(one.tiling) for one in found}) == len(found)
    assert {one.tiling for one in found} <= set(SCHEDULES[schedule].tilings(wanted.task, H200))


def test_the_fastest_whose_numbers_hold_is_chosen_and_used_at_once() -> None:
    wanted = asked()
    (report,) = tuned([5.0, "result is off by 1.0e+00 (at most 5e-03)", 2.0]).tasks
    assert report.chosen == 2 and report.ratio == 2.5
    for length in (8192, 1000):
        taken = tiling_of("chunked", asked(length).task, H200)
        assert choices.stored_part(taken) == choices.stored_part(report.candidates[2].tiling)
    forget()
    assert tiling_of("chunked", wanted.task, H200) == report.candidates[2].tiling


def test_what_was_ready_is_made_ready_anew() -> None:
    before = ready("chunked", H200, "triton", asked().task)
    tuned([5.0, 2.0])
    after = ready("chunked", H200, "triton", asked().task)
    assert before is not None and after is not None and before.launches != after.launches


@pytest.mark.parametrize(
    ("times", "chosen"),
    [((5.0, 4.99), 0), ((5.0, 4.0), 1), (("off", 7.0), 1), (("off", "off"), None), ((5.0, "off"), 0), ((), None)],
)
def test_the_planners_choice_stays_where_none_is_clearly_faster(times: tuple[float | str, ...], chosen: int | None) -> None:
    tiling = SCHEDULES["chunked"].tilings(asked().task, H200)[0]
    found = [Candidate(tiling, 1.0, one) if isinstance(one, str) else Candidate(tiling, 1.0, "", one) for one in times]
    assert tune.best_of(found) == chosen


def test_where_nothing_may_be_trusted_nothing_is_kept() -> None:
    (report,) = tuned(["off"] * 6).tasks
    assert report.chosen is None and report.ratio is None and not choices.known()
    assert "no tiling may be trusted" in str(tuned(["off"] * 6))


def test_tasks_of_one_kind_are_tuned_once() -> None:
    seen: list[Job] = []
    tasks = (asked(), asked(4096), asked(mask="causal"), asked())
    report = tune.tuned(tasks, "cuda:0", by_times([5.0, 2.0], seen))
    assert [one.says for one in report.tasks] == [str(tasks[0]), str(tasks[2])]
    assert len(seen) == sum(len(one.candidates) for one in report.tasks) and {one.task for one in seen} == {tasks[0].task, tasks[2].task}


def test_the_report_prints() -> None:
    report = tuned([5.0, "raised RuntimeError: no", 2.0])
    lines = str(report).splitlines()
    assert lines[0].startswith("tuned on gpu none, torch") and "Y forward  B=1 T=8192 H=4 N=128 P=128 bfloat16  chunked" in lines
    rows = [line for line in lines if "CHUNK=64" in line]
    assert rows[0].lstrip().startswith("p ") and rows[0].endswith("5 ms  numbers hold")
    assert rows[1].endswith("OUT: raised RuntimeError: no") and rows[2].lstrip().startswith("* ")
    assert lines[-1] == "  chosen: not the planner's choice; planner / best = 2.50"
    found = json.loads(json.dumps(report.as_json()))
    assert found["tasks"][0]["chosen"] == 2 and found["tasks"][0]["candidates"][0]["milliseconds"] == 5.0
    assert found["tasks"][0]["candidates"][0]["tiling"]["constants"]["CHUNK"] == 64


def test_a_choice_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.VARIABLE, os.devnull)
    forget()
    (report,) = tuned([5.0, 2.0]).tasks
    assert report.chosen == 1 and "kept while this process runs" in report.kept
    assert tiling_of("chunked", asked().task, H200) == report.candidates[1].tiling


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "gated.ctr"
    path.write_text(GATED)
    sizes = [str(path), "T=70", "H=2", "N=8", "P=8", "--schedule", "chunked"]
    assert main(["tune", *sizes, "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert "output backward, the target's pass" in text and text.count("there is one candidate: nothing to choose") == 4
    assert main(["tune", *sizes, "--device", "cpu", "--forward", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["tasks"]
    assert found["task"].startswith("output forward") and found["chosen"] == 0


# ---- numbers --------------------------------------------------------------------------------------------------------------------


def inputs(schedule: str, wanted: Task, strength: Strength = USUAL, seed: int = 0) -> dict[str, Tensor]:
    tiling = SCHEDULES[schedule].tilings(wanted, CPU)[0]
    routine = routine_of(SCHEDULES[schedule], wanted, tiling)
    return drawn(wanted, routine, sizes_of(wanted, tiling), strength, torch.Generator().manual_seed(seed))


def job(dtype: str = "float32", mask: str = "gate", schedule: str = "chunked", length: int = 70) -> Job:
    wanted = task(mask, (1, length, 2, 8, 16), dtype)
    return Job(schedule, wanted, SCHEDULES[schedule].tilings(wanted, CPU)[0], dtype, "torch")


@dataclass(frozen=True)
class Wrong:
    """A kernel's function with a fault behind it: what it does to (result, gate)."""

    function: Callable[..., None]
    names: tuple[str, ...]
    fault: Callable[[Tensor, Tensor], None]

    def __call__(self, *arguments: Any) -> None:
        named = dict(zip(self.names, arguments, strict=True))
        self.function(*arguments)
        self.fault(named["result"], named["gate"])


def raising(*_: Tensor) -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")


def running_out(*_: Tensor) -> None:
    raise torch.OutOfMemoryError("no")


FAULTS: dict[str, tuple[Callable[[Tensor, Tensor], Any], str]] = {
    "one row": (lambda result, _: result[:, -1].add_(1.0), "result is off by"),
    "scaled": (lambda result, _: result.mul_(1.0001), "result is off by"),
    "not written": (lambda result, _: result[:, 3].fill_(torch.nan), "result is not finite"),
    "infinite": (lambda result, _: result[0, 0, 0, 0].fill_(torch.inf), "result is not finite"),
    "zero": (lambda result, _: result.zero_(), "result is off by"),
    "restless": (lambda result, _: result.mul_(1 + 1e-6 * random.random()), "not the same bit for bit"),
    "at resets": (lambda result, gate: result.add_(gate.isinf().any().float()), "result is off by"),
    "where gates are strong": (lambda result, gate: result.add_((gate < -3).any().float()), "result is off by"),
    "raising": (raising, "raised RuntimeError: CUDA error: an illegal memory access was encountered"),
    "no memory": (running_out, "out of memory"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_kernel_is_out_and_not_timed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, reason = FAULTS[name]

    def wrong(schedule: str, wanted: Task, *rest: Any) -> Ready:
        found = at_tiling(schedule, wanted, *rest)
        if wanted.dtype == "float64":
            return found
        launches = tuple(replace(one, function=Wrong(one.function, one.names, fault)) for one in found.launches)
        return replace(found, launches=launches)

    monkeypatch.setattr(examine, "at_tiling", wrong)
    found = examine.examined(job(), "cpu", 0, pytest.fail)
    assert found.milliseconds is None and reason in found.reason, found


def test_a_row_that_is_never_written_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is full of NaN beforehand, so what was there cannot stand in for it."""
    monkeypatch.setattr(examine, "at_tiling", lambda *given: short(at_tiling(*given)) if given[1].dtype == "float32" else at_tiling(*given))
    assert examine.examined(job(), "cpu", 0, pytest.fail).reason == "result is not finite"


def short(found: Ready) -> Ready:
    """A routine that stops one position early."""
    return replace(found, sizes={**found.sizes, "T": found.sizes["T"] - 1})


def seven(call: Callable[[], object], device: str) -> float:
    """A clock."""
    assert call() is not None and device == "cpu"
    return 7.0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("mask", ["causal", "fixed", "gate", "promised gate", "gate shift"])
def test_a_right_kernel_passes_and_is_timed(mask: str, dtype: str) -> None:
    assert examine.examined(job(dtype, mask), "cpu", 1, seven) == Finding("", 7.0)


@pytest.mark.parametrize("mask", ["gate n", "gate p", "window", "documents", "toeplitz", "matrix", "gated window", "rank one", "dense"])
def test_other_orders_pass(mask: str) -> None:
    schedule = "recurrent" if mask in ("rank one", "dense") else "quadratic"
    assert examine.examined(job("float32", mask, schedule, 20), "cpu", 2, seven) == Finding("", 7.0)


def test_poison_is_taken_back() -> None:
    before = torch.are_deterministic_algorithms_enabled()
    with examine.poisoned():
        assert torch.empty(4).isnan().all()
    assert torch.are_deterministic_algorithms_enabled() is before


@pytest.mark.parametrize("length", [1, 513, 2048, 4096, 5000, 32768])
@pytest.mark.parametrize("entries", [1 << 10, 1 << 26])
def test_numbers_are_compared_on_a_shorter_sequence_of_the_same_kind(length: int, entries: int) -> None:
    wanted = asked(length).task
    for tiling in SCHEDULES["chunked"].tilings(wanted, H200):
        found = examine.shortened(wanted, tiling, entries).dimensions.T
        segments = dict(tiling.constants).get("SEGMENTS", 1)
        assert min(length, 512) <= found <= length and (found == length or found % 512 == length % 512)
        assert entries < 1 << 26 or found > min(length, 64 * segments) - 1
        assert found <= max(2048, 128 * segments)


def test_what_is_drawn() -> None:
    for strength in (*STRENGTHS, USUAL):
        gate = inputs("chunked", task("gate", (2, 300, 2, 8, 8)), strength)["gate"]
        assert (gate <= 0).all() and gate.isinf().any() == (strength.closed > 0)
        promised = inputs("chunked", task("promised gate", (2, 300, 2, 8, 8)), strength)["gate"]
        assert promised.isfinite().all() and (promised <= 0).all()
    first, again, other = (inputs("chunked", task("gate", (1, 9, 2, 8, 8)), seed=seed)["query"] for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other) and first.dtype == torch.bfloat16


def test_packed_sequences_are_drawn_from_the_first_row_to_the_last() -> None:
    plain = task("gate", (1, 100, 2, 8, 8))
    wanted = replace(plain, form=replace(plain.form, packed=True), dimensions=replace(plain.dimensions, sequences=7))
    for seed in range(20):
        starts = inputs("chunked", wanted, STRENGTHS[0], seed)["starts"]
        assert starts[0] == 0 and starts[-1] == 100 and (starts.diff() >= 0).all() and len(starts) == 8
    assert set(inputs("chunked", wanted)["starts"].diff().tolist()) == {14, 15}


# ---- other processes ------------------------------------------------------------------------------------------------------------

JOBS = [job(length=length) for length in (1, 2, 3, 4)]
SAY = "import json, os, pickle, sys, time\nsay = lambda one: print(json.dumps(one), flush=True)\n"


def children(*programs: str, patience: float = 20.0) -> Iterator[Finding]:
    """Findings of processes that run these programs, one after the other."""
    each = iter(programs)
    return apart.apart(JOBS, "cpu", lambda jobs, device: apart.child(jobs, device, SAY + next(each), patience))


def reasons(found: Iterator[Finding]) -> list[str]:
    return [one.reason or str(one.milliseconds) for one in found]


ANSWERS = "say('ready')\nfor number in range({}): say(['', number + 0.5])\n"


def test_a_child_that_dies_takes_one_candidate_along() -> None:
    first = ANSWERS.format(1) + "print('Segmentation fault', file=sys.stderr)\nos.kill(os.getpid(), 11)"
    second = ANSWERS.format(1) + "os._exit(3)"
    assert reasons(children(first, second)) == [
        "0.5",
        "its process ended with signal 11: Segmentation fault",
        "0.5",
        "its process ended with status 3",
    ]


def test_a_child_that_has_lost_its_gpu_ends_of_itself() -> None:
    first = "say('ready')\nsay(['raised RuntimeError: no', None])\nsay(None)"
    assert reasons(children(first, ANSWERS.format(3))) == ["raised RuntimeError: no", "0.5", "1.5", "2.5"]


def test_a_child_that_hangs_is_stopped() -> None:
    found = reasons(children("say('ready')\ntime.sleep(99)", ANSWERS.format(3), patience=1.5))
    assert found == ["took longer than 2 s", "0.5", "1.5", "2.5"]


def test_a_child_that_never_begins_is_not_started_again() -> None:
    found = reasons(children("raise SystemExit('no module named torch')"))
    assert found == ["its process ended with status 1: no module named torch"] * 4
    assert reasons(children("say('hello')")) == ["the process that examines said something else than that it is ready"] * 4


@pytest.mark.parametrize("said", ["7", "[1, 2, 3]", "['', 'x']", "'x'", "{}"])
def test_a_child_that_says_something_else(said: str) -> None:
    assert reasons(children(f"say('ready')\nsay({said})", ANSWERS.format(3)))[1:] == ["0.5", "1.5", "2.5"]


def test_a_real_child_finds_what_is_found_here() -> None:
    jobs = [job("bfloat16"), replace(job(), schedule="nothing"), job()]
    right, unknown, other = apart.apart(jobs, "cpu")
    assert (right.reason, other.reason) == ("", "") and right.milliseconds and other.milliseconds
    assert unknown == Finding("raised KeyError: 'nothing'")


def test_triton_text_is_examined_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Sequence[Job]] = []

    def noted(jobs: Sequence[Job], device: str) -> Iterator[Finding]:
        assert device == "cuda:0"
        given.append(jobs)
        return iter([Finding("", 1.0)] * len(jobs))

    monkeypatch.setattr(tune, "apart", noted)
    assert tune.tuned([asked()], "cuda:0").tasks[0].chosen == 0
    assert len(given) == 1 and {one.backend for one in given[0]} == {"triton"}
    assert tune.tuned([replace(asked(70), machine=CPU, backend="torch", dtype=torch.float32)], "cpu").tasks[0].chosen == 0
    assert len(given) == 1
