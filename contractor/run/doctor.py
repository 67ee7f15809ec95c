"""What this machine has, and which known hazards of Triton apply to it."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

from contractor.run.build import folder
from contractor.run.here import backend_of, has_triton, machine_here

Version = tuple[int, ...]
HOPPER = (9, 0)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the hazards depend on: versions as numbers, () where a thing is not there."""

    triton: Version = ()
    ptxas: Version = ()
    numpy: Version = ()
    capability: Version = ()


def findings() -> Iterator[tuple[str, str]]:
    """Name and finding, one at a time."""
    facts = facts_here()
    yield "contractor", version("contractor") or "not installed: run from its folder"
    yield "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    yield "torch", f"{torch.__version__}, {f'CUDA {torch.version.cuda}' if torch.version.cuda else 'built for the CPU'}"
    yield "triton", version("triton") or "not installed: the torch text runs everywhere"
    yield "ptxas", ptxas() or "not found: Triton text can be printed, not compiled"
    yield "GPU", gpu()
    yield "machine", f"plans are made for {machine_here().name} where no other is named"
    yield "backend", f"{backend_of(torch.device('cuda' if torch.cuda.is_available() else 'cpu'))} text is run"
    yield "cache", cache()
    yield from (("hazard", hazard) for hazard in hazards(facts))


def facts_here() -> Facts:
    """The facts of this machine."""
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else ()
    return Facts(parsed(version("triton")), parsed(ptxas()), parsed(version("numpy")), capability)


def hazards(facts: Facts) -> Iterator[str]:
    """The known hazards of these versions, and what is done about each."""
    triton, gpu_there = facts.triton, bool(facts.capability)
    if (3, 4) <= triton < (3, 7, 1):
        yield "a product whose left operand is the transpose of a product is computed wrongly (FLA #640): no kernel holds one"
    if facts.ptxas in ((12, 8, 93), (13, 0, 88)):
        yield "this ptxas miscompiles some kernels whose scale is specialised to 1 (FLA #1262): no real number is ever specialised"
    if gpu_there and facts.capability >= HOPPER:
        yield "several products with a block of 16 or 32 can fault or be wrong (Triton #10486, #10573): such blocks are 64 or wider"
    if gpu_there and triton:
        yield "some numbers of warps give wrong results (FLA #984): run `contractor run` at your sizes, it compares with the reference"
    if (3, 6) <= triton < (3, 7):
        yield "a descriptor made inside a pipelined loop fails: descriptors are made on the host"
        yield "a tile times its own transpose does not compile with one stage: such kernels have two stages or more"
        yield "warp_specialize does nothing on compute capability 9.0: it is never asked for"
        if facts.numpy >= (2, 4):
            yield "Triton's interpreter fails with numpy 2.4: interpret with Triton 3.7.1 or newer"
    if triton:
        yield "Triton's interpreter multiplies bfloat16 wrongly (Triton #11584): interpret in float32"


def cache() -> str:
    """Where printed text is kept, and how much of it there is."""
    home = folder()
    return "none: no private folder can be written" if home is None else f"{home}, {len(list(home.glob('*.py')))} kernels"


def gpu() -> str:
    """The current GPU."""
    if not torch.cuda.is_available():
        return "none"
    major, minor = torch.cuda.get_device_capability()
    _, memory = torch.cuda.mem_get_info()
    return f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}, {memory / 1e9:.0f} GB, compute capability {major}.{minor}"


def version(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def ptxas() -> str | None:
    """The version of the ptxas that Triton brings."""
    if not has_triton():
        return None
    spec = importlib.util.find_spec("triton")
    program = Path(spec.origin).parent / "backends/nvidia/bin/ptxas" if spec and spec.origin else None
    if program is None or not program.exists():
        return None
    try:
        said = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"V(\d+\.\d+\.\d+)", said)
    return found.group(1) if found else None


def parsed(text: str | None) -> Version:
    """A version as numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", text or "")[:3])
