"""On a GPU: what the planner chooses beside the best of all tilings, over many problems.

    python tests/gpu/planner_gpu.py [--only TEXT]… [--list] [--seconds 140] [--most 9] [--wider] [--workers 16] [--all] [--json FILE]
    python tests/gpu/planner_gpu.py --compile 90

Every tiling that an order offers for a problem is examined as `tune` examines it: its numbers first, then its time. Kernels are compiled
beforehand by processes that see no GPU and only fill Triton's cache. What a fault takes along is one candidate. Exits 1 if a candidate's
numbers do not hold or a problem could not be measured.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from contractor.pipeline import program_of
from contractor.plan.machine import MACHINES, Machine
from contractor.plan.plan import Offer, Tiling
from contractor.plan.show import duration, tiling_text
from contractor.plan.sizes import problem_from_sizes
from contractor.program.mixing import mixings
from contractor.run.apart import apart, child
from contractor.run.examine import Finding, Job, shortened
from contractor.run.execute import Ready, at_tiling, dtype_of, launch_all
from contractor.run.here import machine_here
from contractor.schedules.parts.form import Task
from contractor.schedules.parts.task import task as lowered
from contractor.schedules.parts.tilings import fitting, segmented, summed, tiling
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import priced, routine_of, sizes_of

PLAIN = "layer planned\ninput Q [T, N]\ninput K [S, N]\ninput V [S, P]\n"
CAUSAL = PLAIN + "output contract(TN, SN, SP, TS -> TP)(Q, K, V, causal())\n"
FIXED = PLAIN + "param g [] in [0.5, 1]\noutput contract(TN, SN, SP, TS -> TP)(Q, K, V, decay(g))\n"
GATED = PLAIN + "input G [S]\noutput contract(TN, SN, SP, TS -> TP)(Q, K, V, semiseparable(log = G))\n"
MASKS = {"causal": CAUSAL, "fixed": FIXED, "gated": GATED}
SHORT = 2048  # positions up to which the quadratic order is measured too
PATIENCE = 40.0  # seconds for a candidate
ENTRIES = 1 << 18  # of operands that kernels are compiled on


@dataclass(frozen=True)
class Case:
    """One problem. heads: of operands that have fewer than H; packed: sequences."""

    mask: str
    shape: tuple[int, int, int, int, int]
    dtype: str = "bfloat16"
    heads: tuple[tuple[str, int], ...] = ()
    packed: int | None = None

    def __str__(self) -> str:
        batch, length, count, inner, outer = self.shape
        more = "".join(f" {name}:{few}" for name, few in self.heads) + (f" packed:{self.packed}" if self.packed else "")
        return f"{self.mask} B={batch} T={length} H={count} N={inner} P={outer} {self.dtype}{more}"

    @property
    def task(self) -> Task:
        """The contraction."""
        program = program_of(MASKS[self.mask])
        sizes = dict(zip("BTHNP", self.shape, strict=True))
        problem = problem_from_sizes(program, dtype=self.dtype, heads=dict(self.heads), packed=self.packed, **sizes)
        return lowered(mixings(program)[0].terms[0], problem)


ONE_GROUP = (("Q", 1), ("K", 1))
CASES = (
    Case("causal", (4, 4096, 32, 128, 128)),
    Case("fixed", (4, 4096, 32, 128, 128)),
    Case("gated", (4, 4096, 32, 128, 128)),
    Case("causal", (8, 2048, 32, 64, 64)),
    Case("gated", (8, 2048, 32, 64, 64)),
    Case("causal", (4, 4096, 64, 128, 64)),
    Case("gated", (4, 4096, 64, 128, 64)),
    Case("gated", (1, 4096, 80, 128, 64), heads=ONE_GROUP),
    Case("causal", (1, 32768, 16, 128, 128)),
    Case("fixed", (1, 32768, 16, 128, 128)),
    Case("gated", (1, 32768, 16, 128, 128)),
    Case("causal", (1, 16384, 8, 64, 64)),
    Case("gated", (1, 16384, 8, 64, 64)),
    Case("gated", (1, 8192, 4, 128, 128)),
    Case("causal", (1, 8192, 2, 256, 256)),
    Case("gated", (1, 8192, 2, 256, 256)),
    Case("causal", (2, 8192, 16, 256, 256)),
    Case("fixed", (2, 4096, 8, 256, 256)),
    Case("gated", (2, 4096, 16, 256, 128)),
    Case("causal", (16, 256, 16, 64, 64)),
    Case("gated", (16, 256, 16, 64, 64)),
    Case("gated", (1, 256, 4, 128, 128)),
    Case("causal", (32, 512, 16, 128, 128)),
    Case("fixed", (8, 1024, 16, 64, 128)),
    Case("gated", (1, 2048, 8, 128, 128)),
    Case("causal", (2, 1000, 24, 96, 96)),
    Case("gated", (4, 2048, 24, 96, 96)),
    Case("gated", (2, 4096, 32, 32, 32)),
    Case("causal", (1, 16384, 4, 32, 64)),
    Case("gated", (1, 8192, 16, 64, 128), heads=(("Q", 4), ("K", 4))),
    Case("fixed", (2, 2048, 32, 128, 128), heads=(("K", 8), ("V", 8))),
    Case("causal", (1, 16384, 16, 128, 128), packed=8),
    Case("gated", (1, 16384, 16, 128, 128), packed=8),
    Case("gated", (1, 8192, 32, 64, 64), packed=32),
    Case("causal", (2, 4096, 8, 64, 64), dtype="float32"),
    Case("gated", (1, 4096, 8, 128, 128), dtype="float32"),
)


# ---- compiling ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoDevice:
    """A driver without a device: Triton compiles for its target and cannot launch."""

    target: GPUTarget

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        del device

    def get_current_stream(self, device: int) -> int:
        return device

    def get_current_target(self) -> GPUTarget:
        return self.target


@dataclass(frozen=True)
class Compiling:
    """A kernel's function that is compiled where it would be launched."""

    function: Any

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return partial(self.function.warmup, grid=grid)


def compiled(job: Job, capability: int) -> str:
    """Fills Triton's cache with the kernels of a job; "" or what was in the way, which will come up again."""
    try:
        driver.set_active(NoDevice(GPUTarget("cuda", capability, 32)))
        task = shortened(job.task, job.tiling, ENTRIES)
        found = at_tiling(job.schedule, task, job.tiling, job.backend)
        tensors = unfilled(job, task)
        for buffer, shape, _ in found.made:
            tensors[buffer.name] = torch.empty(shape, dtype=dtype_of(buffer, tensors, getattr(torch, job.dtype)))
        launch_all(compiling(found), {**found.sizes, **tensors})
    except Exception as error:  # whatever it is, the candidate itself will meet it
        return f"{type(error).__name__}: {error}"
    return ""


def compiling(found: Ready) -> Ready:
    """A routine that is compiled and not launched."""
    return replace(found, launches=tuple(replace(one, function=Compiling(one.function)) for one in found.launches))


def unfilled(job: Job, task: Task) -> dict[str, torch.Tensor]:
    """Tensors of the right shapes and dtypes, on the CPU."""
    routine, sizes = routine_of(SCHEDULES[job.schedule], task, job.tiling), sizes_of(task, job.tiling)
    buffers = {one.name: one for launch in routine.launches for one in launch.kernel.buffers}
    kinds = {"acc": torch.float32, "i32": torch.int32, "i64": torch.int64}
    return {
        name: torch.empty([sizes[dim] for dim in buffers[name].dims], dtype=kinds.get(buffers[name].dtype, getattr(torch, task.dtype)))
        for name in routine.inputs
    }


def compile_all(jobs: Sequence[Job], workers: int, capability: int) -> None:
    """Every kernel, several at a time. What is alike but for its length is compiled once."""
    begin = time.perf_counter()
    told: dict[str, int] = {}
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(compiled, job, capability) for job in jobs]
        for one in as_completed(waiting):
            if said := str(one.exception() or one.result()):
                told[said] = told.get(said, 0) + 1
    print(f"compiled {len(jobs)} candidates in {time.perf_counter() - begin:.0f} s", flush=True)
    for said, count in told.items():
        print(f"  {count} ×: {said[:300]}", flush=True)


# ---- measuring ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """One tiling of a case, with what the cost model says."""

    offer: Offer
    job: Job


@dataclass(frozen=True)
class Measured:
    """A case, its candidates with the planner's choice first, and what was found."""

    case: Case
    candidates: tuple[Candidate, ...]
    findings: tuple[Finding, ...]

    @property
    def ratio(self) -> float | None:
        """The time of the planner's choice in times of the best."""
        planned, times = self.findings[0].milliseconds, [one.milliseconds for one in self.findings if one.milliseconds is not None]
        return None if planned is None else planned / min(times)

    @property
    def best(self) -> int:
        """The place of the fastest."""
        times = {number: one.milliseconds for number, one in enumerate(self.findings) if one.milliseconds is not None}
        return min(times, key=times.__getitem__, default=0)


def wider(task: Task, machine: Machine) -> tuple[Tiling, ...]:
    """More tilings of the chunked order than it offers: other columns, warps and stages, half and twice the segments, and none."""
    blocks = [tiling(task, machine, *one) for one in product((64, 128), (4, 8), (2, 3))]
    fit = fitting(task, machine, tuple(dict.fromkeys(blocks)))
    both = (*fit, *summed(task, fit))
    machines = [replace(machine, multiprocessors=int(machine.multiprocessors * share)) for share in (0.5, 1, 2)]
    return (*both, *(one for each in machines for one in segmented(task, each, both)))


def candidates(case: Case, more: bool = False) -> tuple[Candidate, ...]:
    """Every tiling of the chunked order, and of the quadratic where sequences are short, the planner's choice first, then the
    cheapest. more: and tilings that are not offered."""
    task, machine = case.task, machine_here()
    machine = machine if machine.kind == "gpu" else MACHINES["h200"]
    names = ("chunked", "quadratic") if task.dimensions.T <= SHORT else ("chunked",)
    offers = [
        priced(SCHEDULES[name], task, machine, one)
        for name in names
        if not SCHEDULES[name].refusal(task.form)
        for one in SCHEDULES[name].tilings(task, machine)
    ]
    known = {offer.tiling for offer in offers}
    fresh = [one for one in dict.fromkeys(wider(task, machine)) if one not in known] if more else []
    offers += [priced(SCHEDULES["chunked"], task, machine, one) for one in fresh]
    planned = min(offers, key=lambda offer: (offer.tiling in fresh, offer.milliseconds))
    offers.sort(key=lambda offer: (offer is not planned, offer.milliseconds))
    return tuple(Candidate(one, Job(one.schedule, task, one.tiling, task.dtype, "triton")) for one in offers)


def measured(cases: dict[Case, tuple[Candidate, ...]], deadline: float) -> Iterator[Measured]:
    """Each case as soon as it is done; none after the deadline."""
    findings = apart([one.job for offered in cases.values() for one in offered], "cuda:0", partial(child, patience=PATIENCE))
    for case, offered in cases.items():
        found: list[Finding] = []
        while len(found) < len(offered) and time.perf_counter() < deadline:
            found.append(next(findings))
        if len(found) < len(offered):
            print(f"{case}: no time left", flush=True)
            failures.append(str(case))
            continue
        yield Measured(case, offered, tuple(found))


failures: list[str] = []


def tell(one: Measured, everything: bool) -> None:
    """Prints one case."""
    for place, (candidate, finding) in enumerate(zip(one.candidates, one.findings, strict=True)):
        if finding.reason:
            failures.append(f"{one.case}: {tiling_text(candidate.offer.tiling)}")
        if everything or finding.reason:
            time_text = finding.reason or duration(finding.milliseconds or 0.0)
            expected = duration(candidate.offer.milliseconds)
            mark = ("p" if place == 0 else " ") + ("*" if place == one.best else " ")
            print(f"    {mark} {candidate.offer.schedule:9} {tiling_text(candidate.offer.tiling)}: {expected} expected, {time_text}")
    planned, best = one.findings[0].milliseconds, one.findings[one.best].milliseconds
    if planned is None or best is None:
        print(f" ----  {one.case!s:66} the planner's choice could not be measured: {one.findings[0].reason}", flush=True)
        return
    chosen, fastest = (f"{one.candidates[place].offer.schedule} {brief(one.candidates[place])}" for place in (0, one.best))
    instead = "" if one.best == 0 else f"   best {fastest}"
    speed = one.candidates[0].offer.cost.bytes / (planned * 1e-3) / 1e12
    times = f"{duration(planned):>9} / {duration(best):>9} {speed:5.2f} TB/s"
    print(f"{one.ratio:6.3f}  {one.case!s:66} {times}  {chosen}{instead}", flush=True)


def brief(one: Candidate) -> str:
    """A tiling without what all have in common."""
    text = tiling_text(one.offer.tiling).split()
    return " ".join(part for part in text if not part.startswith(("CHUNK=64", "BLOCK_N", "SPAN", "COLUMN_BLOCKS")))


def as_json(one: Measured) -> dict[str, Any]:
    """One case for programs."""
    rows = [
        {
            "schedule": candidate.offer.schedule,
            "tiling": tiling_text(candidate.offer.tiling),
            "expected": candidate.offer.milliseconds,
            "bound": candidate.offer.bound,
            "milliseconds": finding.milliseconds,
            "reason": finding.reason,
        }
        for candidate, finding in zip(one.candidates, one.findings, strict=True)
    ]
    return {"case": str(one.case), "ratio": one.ratio, "best": one.best, "candidates": rows}


def summary(found: Sequence[Measured]) -> None:
    """Mean and worst."""
    ratios = sorted((one.ratio, str(one.case)) for one in found if one.ratio is not None)
    if ratios:
        values = [ratio for ratio, _ in ratios]
        geometric = prod(values) ** (1 / len(values))
        print(f"\nplanner / best over {len(values)} problems: mean {sum(values) / len(values):.3f} (geometric {geometric:.3f})")
        print("worst: " + ", ".join(f"{ratio:.3f} ({case})" for ratio, case in reversed(ratios[-3:])))
    print(f"{len(failures)} failed" + "".join(f"\n  {name}" for name in failures), flush=True)


# ---- the whole ------------------------------------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", action="append", default=[], help="cases whose text holds all of this; give it again for more")
    made.add_argument("--list", action="store_true", help="say which cases and candidates there are")
    made.add_argument("--seconds", type=float, default=140, help="of the whole run")
    made.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1), help="processes that compile")
    made.add_argument("--most", type=int, default=9, help="candidates of a case, the cheapest by the cost model (0: every one)")
    made.add_argument("--wider", action="store_true", help="tilings that are not offered too; the planner may not choose those")
    made.add_argument("--compile", type=int, metavar="CAPABILITY", help="fill Triton's cache for a GPU that is elsewhere (90) and end")
    made.add_argument("--all", action="store_true", help="print every candidate")
    made.add_argument("--json", metavar="FILE", help="write everything there")
    return made.parse_args()


def priced_cases(wanted: Sequence[str], most: int, more: bool) -> dict[Case, tuple[Candidate, ...]]:
    """The cases asked for, with their candidates."""
    found: dict[Case, tuple[Candidate, ...]] = {}
    for case in CASES:
        if wanted and not any(all(word in str(case) for word in one.split()) for one in wanted):
            continue
        try:
            found[case] = candidates(case, more)[: most or None]
        except Exception as error:  # one case that cannot be planned is one failure
            print(f"{case}: {type(error).__name__}: {error}", flush=True)
            failures.append(str(case))
    return found


def main() -> int:
    """Prices, compiles, measures, sums up."""
    given = arguments()
    deadline = time.perf_counter() + given.seconds
    cases = priced_cases(given.only, given.most, given.wider)
    if given.list:
        for case, offered in cases.items():
            rows = (f"    {one.offer.milliseconds:.4f} {one.offer.schedule} {tiling_text(one.offer.tiling)}" for one in offered)
            print("\n".join((str(case), *rows)))
        print(f"{len(cases)} cases, {sum(map(len, cases.values()))} candidates")
        return 1 if failures else 0
    jobs = [one.job for offered in cases.values() for one in offered]
    if given.compile:
        compile_all(jobs, given.workers, given.compile)
        return 1 if failures else 0
    major, minor = torch.cuda.get_device_capability()
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    compile_all(jobs, given.workers, 10 * major + minor)
    found: list[Measured] = []
    for one in measured(cases, deadline):
        found.append(one)
        tell(one, given.all)
    summary(found)
    if given.json:
        Path(given.json).write_text(json.dumps([as_json(one) for one in found], indent=1), encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
