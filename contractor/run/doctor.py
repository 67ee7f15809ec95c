"""What this machine has, and which known hazards of Triton apply to it."""

from __future__ import annotations

import importlib.util
import platform
import re
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import torch

from contractor.run.build import folder
from contractor.run.here import backend_of, has_triton, machine_here

Version = tuple[int, ...]


def findings() -> Iterator[tuple[str, str]]:
    """Name and finding, one at a time."""
    yield "python", platform.python_version()
    yield "torch", torch.__version__
    yield "triton", version("triton") or "not installed: the torch text runs everywhere"
    yield "ptxas", ptxas() or "not found"
    yield "GPU", gpu()
    yield "machine", f"plans are made for {machine_here().name}"
    yield "backend", backend_of(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    yield "cache", str(folder())
    for hazard in hazards(
        parsed(version("triton") or "0"), parsed(ptxas() or "0"), torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
    ):
        yield "hazard", hazard


def hazards(triton: Version, ptxas_version: Version, hopper: bool) -> Iterator[str]:
    """The known hazards of these versions, and what contractor does about each."""
    if triton and (3, 4) <= triton < (3, 7, 1):
        yield "a product whose left operand is the transpose of a product is computed wrongly: no kernel holds one"
    if ptxas_version in ((12, 8, 93), (13, 0, 88)):
        yield "this ptxas miscompiles some kernels where a scale is specialised to 1: no scale is ever specialised"
    if hopper:
        yield "several products with a block of 16 or 32 can fault or be wrong: blocks are at least 64 wide"
    if triton and triton < (3, 7, 1):
        yield "Triton's interpreter fails with numpy 2.4 and multiplies bfloat16 wrongly: use it in float32, with a newer Triton"


def gpu() -> str:
    """The current GPU."""
    if not torch.cuda.is_available():
        return "none"
    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()}, compute capability {major}.{minor}"


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
    said = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", said)
    return found.group(1) if found else None


def parsed(text: str) -> Version:
    """A version as numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])
