"""What an order of evaluation costs: counts in, milliseconds out. The counts come from the kernels themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """flops: all floating-point operations; tensor_flops: those of them inside matrix products that use tensor units.
    bytes: moved through device memory (each tensor once a kernel). launches: kernels. steps: serial iterations of the longest
    chain of dependent work. programs: how many run side by side (the least over the launches). scratch: bytes of temporary memory."""

    flops: int
    tensor_flops: int
    bytes: int
    launches: int
    steps: int
    programs: int
    scratch: int = 0
