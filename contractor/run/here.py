"""The machine at hand: which GPU, which Triton, and so which plan and which backend."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Literal

import torch

from contractor.plan.machine import MACHINES, Machine

NAMES = (("H200", "h200"), ("H100", "h100"), ("A100", "a100"), ("B200", "b200"), ("4090", "rtx4090"))


@cache
def machine_here() -> Machine:
    """The machine that plans are made for when none is named: the current GPU, as the nearest known one, else the CPU."""
    if not torch.cuda.is_available():
        return MACHINES["cpu"]
    name = torch.cuda.get_device_name()
    capability = torch.cuda.get_device_capability()
    known = next((machine for part, machine in NAMES if part in name), None)
    nearest = "b200" if capability >= (10, 0) else "h100" if capability >= (9, 0) else "a100"
    return MACHINES[known or nearest]


@cache
def has_triton() -> bool:
    """True if Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def wide(dtype: str) -> bool:
    """True for the dtypes that run as torch text everywhere: tensor units have no place for float64 tiles."""
    return dtype in ("float64", "complex128")


def backend_of(device: torch.device, dtype: str = "float32") -> Literal["triton", "torch"]:
    """What runs on a device: Triton text on a GPU where Triton is there, else torch text."""
    return "triton" if device.type == "cuda" and has_triton() and not wide(dtype) else "torch"
