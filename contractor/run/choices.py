"""Choices of tilings that were measured: kept for good, one small file each, and asked before the cost model.

A choice belongs to a place (GPU, driver, and the versions of everything that has a hand in a kernel) and to a kind of task, never to a
length: what follows from that, as how many segments a sequence is cut into, is left to the cost model each time. A file is data. It names
blocks, and only a tiling that the schedule itself offers for the task is ever taken; what is damaged, of another shape or not this user's
alone is passed over.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch

from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.run.build import digest, folder, owned
from contractor.run.build import replace as write
from contractor.run.doctor import ptxas, version
from contractor.schedules.parts.form import Task
from contractor.schedules.schedule import Schedule, priced

FOLLOWING = ("SEGMENTS", "SPAN", "COLUMN_BLOCKS", "HEAD_BLOCK")  # constants that follow from a task's own sizes
PREFIX = "choice_"
LARGEST, MOST = 1 << 16, 4096  # bytes of a file, files that are read
DRIVER = Path("/proc/driver/nvidia/version")


def preferred(schedule: Schedule, task: Task, machine: Machine) -> Tiling | None:
    """The tiling that was measured to be best for tasks of this kind, cut into segments as the cost model has it; None if none was."""
    if not known():
        return None
    kept = known().get(key_of(schedule, task, machine))
    if kept is None:
        return None
    agreeing = [one for one in schedule.tilings(task, machine) if stored_part(one) == kept]
    return min(agreeing, key=lambda one: priced(schedule, task, machine, one).milliseconds, default=None)


def keep(key: str, tiling: Tiling) -> bool:
    """Keeps a choice, in this process at once; True if it is on the disk too."""
    kept = stored_part(tiling)
    known()[key] = kept
    home = folder()
    if home is None:
        return False
    try:
        write(home / name_of(key), text_of(key, kept))
    except OSError:  # a full disk, a folder taken away
        return False
    return True


@cache
def known() -> dict[str, Tiling]:
    """Every choice by its key; the folder is read once."""
    home = folder()
    if home is None:
        return {}
    try:
        paths = sorted(home.glob(f"{PREFIX}*.json"))[:MOST]
    except OSError:
        return {}
    return dict(pair for path in paths if (pair := read(path)) is not None)


# ---- keys -----------------------------------------------------------------------------------------------------------------------


def key_of(schedule: Schedule, task: Task, machine: Machine) -> str:
    """What a choice is kept under, as JSON: the place, the schedule, and the kind of the task. Its length is no part of it."""
    shape = task.dimensions
    groups = {name: shape.H // max(1, count) for name, count in sorted(shape.heads)}
    kind = {
        "schedule": schedule.name,
        "machine": machine.name,
        "form": digest(repr(task.form)),
        "dtype": task.dtype,
        "careful": task.careful,
        "N": shape.N,
        "P": shape.P,
        "groups": groups,
        "programs": 1 << round(math.log2(max(1, shape.streams * shape.H))),
    }
    return json.dumps({**place(), **kind}, sort_keys=True)


def place() -> dict[str, str]:
    """The GPU that is current, its driver, and the versions of everything that has a hand in a kernel."""
    return {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none", **versions()}


@cache
def versions() -> dict[str, str]:
    """What does not change while a process runs."""
    own = version("contractor") or ""
    compiler = os.environ.get("TRITON_PTXAS_PATH") or ptxas() or ""
    return {
        "driver": driver(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "triton": version("triton") or "",
        "ptxas": compiler,
        "contractor": own,
    }


def driver() -> str:
    """The version of the GPU's driver, as well as it can be had without another process; "" without one."""
    try:
        found = re.search(r"\b\d+\.\d+(\.\d+)?\b", DRIVER.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        found = None
    return found.group(0) if found else library()


def library() -> str:
    """The version of CUDA that the driver speaks."""
    number = ctypes.c_int(0)
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return ""
    return str(number.value)


# ---- files ----------------------------------------------------------------------------------------------------------------------


def stored_part(tiling: Tiling) -> Tiling:
    """What is kept of a tiling: its blocks in the order of their names, warps, stages and how tiles are reached."""
    blocks = tuple(sorted(one for one in tiling.constants if one[0] not in FOLLOWING))
    return Tiling(blocks, tiling.warps, tiling.stages, tiling.via)


def name_of(key: str) -> str:
    """The file of a key."""
    return f"{PREFIX}{digest(key)}.json"


def text_of(key: str, kept: Tiling) -> str:
    """A choice as it lies on the disk."""
    choice = {"constants": dict(kept.constants), "warps": kept.warps, "stages": kept.stages, "via": kept.via}
    return json.dumps({"key": json.loads(key), "choice": choice}, indent=1, sort_keys=True) + "\n"


def read(path: Path) -> tuple[str, Tiling] | None:
    """The key and the choice that a file holds; None for anything but a file that `keep` could have written."""
    try:
        if not owned(path) or path.stat().st_size > LARGEST:
            return None
        found = json.loads(path.read_bytes())
        key = json.dumps(found["key"], sort_keys=True)
        return (key, tiling_in(found["choice"])) if path.name == name_of(key) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def tiling_in(choice: Any) -> Tiling:
    """A choice read from JSON. Raises ValueError, TypeError, KeyError or AttributeError if it is none."""
    sizes, warps, stages, via = tuple(choice["constants"].items()), choice["warps"], choice["stages"], choice["via"]
    if not all(type(one) is int for one in (*(size for _, size in sizes), warps, stages)) or type(via) is not str:
        raise ValueError("blocks, warps and stages are whole numbers, how tiles are reached is a word")
    return stored_part(Tiling(sizes, warps, stages, via))
