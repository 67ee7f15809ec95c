"""Clocks: how long a call takes on its device and on the host, and how much memory it wants beside what it returns."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import torch
from torch import Tensor

from contractor.run.trial import synchronize

try:
    from triton.testing import do_bench_cudagraph
except ImportError:
    do_bench_cudagraph = None

GRAPH_MILLISECONDS = 60  # of the calls in one graph
CPU_SECONDS, FEWEST, MOST = 0.2, 3, 30
WARM, CALLS = 5, 50
LONG = 0.5  # seconds: a call that takes longer is made only a few times
Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """Milliseconds of one call, the median. clock: "graph": replays of a CUDA graph, without the host's time; "events": CUDA events around
    calls that the host makes one by one; "wall": a CPU."""

    milliseconds: float
    clock: Literal["graph", "events", "wall"]


def measured(call: Call, device: str, together: int = GRAPH_MILLISECONDS) -> Measured:
    """How long a call takes on its device; together: milliseconds of the calls in one graph. Nothing is done about caches: tensors that fit
    them are found there."""
    if device == "cpu":
        return Measured(wall(call), "wall")
    call()
    long = seconds(call, device) > LONG
    if do_bench_cudagraph is not None and not long:
        try:
            found: Any = do_bench_cudagraph(call, rep=together, return_mode="median")
            return Measured(float(found), "graph")
        except RuntimeError:  # what waits for the device, or asks it for a size, cannot be captured
            torch.cuda.synchronize()
    return Measured(events(call, FEWEST if long else CALLS), "events")


def wall(call: Call) -> float:
    """The median of repeated calls on a CPU, after one that warms up."""
    call()
    spent: list[float] = []
    while len(spent) < FEWEST or (len(spent) < MOST and sum(spent) < CPU_SECONDS):
        spent.append(seconds(call, "cpu"))
    return median(spent) * 1e3


def events(call: Call, calls: int) -> float:
    """The median of so many calls by CUDA events."""
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(calls)]
    for begin, end in pairs:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return median(begin.elapsed_time(end) for begin, end in pairs)


def seconds(call: Call, device: str) -> float:
    """One call from begin to end, as a person waits for it."""
    synchronize(device)
    begin = time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - begin


def host_microseconds(call: Call, device: str) -> float | None:
    """What a warm call costs on the host while the device works; None on a CPU, where they are one."""
    if device == "cpu":
        return None
    for _ in range(WARM):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    spent = time.perf_counter() - begin
    torch.cuda.synchronize()
    return spent / CALLS * 1e6


def beyond(call: Callable[[], tuple[Tensor | None, ...]], device: str) -> int | None:
    """Bytes at the peak beyond what was there before and what the call returns; None on a CPU, where nobody counts."""
    if device == "cpu":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    returned = call()
    torch.cuda.synchronize()
    return max(0, torch.cuda.max_memory_allocated() - before - held(returned))


def held(tensors: tuple[Tensor | None, ...]) -> int:
    """The bytes that tensors keep alive, each storage once."""
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors if one is not None}
    return sum(storages.values())
