"""The machines a plan can be made for: rates that are reached, not those of a data sheet, and the limits a kernel must keep.

The H200's rates were measured (copy, matrix products) and its waits fitted to the times of this project's own kernels; the others' are
data-sheet rates times the share that was reached there: about 0.9 of the bandwidth and 0.7 of the matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contractor.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Machine:
    """One device. bandwidth: bytes/s of a copy. tensor: flop/s of matrix products and scalar: of everything else, by dtype; float32
    products are three TF32 products. exponentials: a second. shared: bytes of shared memory one program may use. registers: 32-bit, and
    threads: of one multiprocessor. launch: seconds a kernel costs at least.

    What a program waits in seconds, however little it does: trip: to the cache and back; far: from there to memory and back; product: of
    two matrices; exchange: of values between threads; step: an iteration beside those.
    """

    name: str
    kind: Literal["gpu", "cpu"]
    bandwidth: float
    tensor: tuple[tuple[str, float], ...]
    scalar: tuple[tuple[str, float], ...]
    exponentials: float
    multiprocessors: int
    shared: int
    registers: int
    launch: float
    step: float
    trip: float = 0.0
    far: float = 0.0
    product: float = 0.0
    exchange: float = 0.0
    threads: int = 2048
    capability: tuple[int, int] = (0, 0)
    says: str = ""

    def tensor_rate(self, dtype: str) -> float:
        """flop/s of matrix products of operands of a dtype; without tensor units for it, what the scalar units do."""
        rate = dict(self.tensor).get(PART.get(dtype, dtype))
        return self.scalar_rate(dtype) if rate is None else rate

    def scalar_rate(self, dtype: str) -> float:
        """flop/s outside matrix products: 16-bit operands are computed on in float32."""
        return dict(self.scalar)["float64" if dtype in ("float64", "complex128") else "float32"]


PART = {"complex64": "float32", "complex128": "float64"}
KILO, MICRO, GIGA, TERA = 1024, 1e-6, 1e9, 1e12


def rates(half: float, single: float, double: float | None = None) -> tuple[tuple[str, float], ...]:
    """flop/s of matrix products by dtype, from TFLOP/s of 16-bit, TF32 and float64 products."""
    products = [("bfloat16", half * TERA), ("float16", half * TERA), ("float32", single / 3 * TERA)]
    return tuple(products if double is None else [*products, ("float64", double * TERA)])


def others(single: float, double: float) -> tuple[tuple[str, float], ...]:
    """flop/s outside matrix products, from TFLOP/s."""
    return (("float32", single * TERA), ("float64", double * TERA))


H200 = Machine(
    name="h200",
    kind="gpu",
    bandwidth=4.27 * TERA,
    tensor=rates(700, 370, 55),
    scalar=others(50, 25),
    exponentials=3.7 * TERA,
    multiprocessors=132,
    shared=227 * KILO,
    registers=65536,
    launch=1 * MICRO,
    step=0.02 * MICRO,
    trip=0.2 * MICRO,
    far=0.9 * MICRO,
    product=0.1 * MICRO,
    exchange=0.09 * MICRO,
    capability=(9, 0),
    says="NVIDIA H200 SXM, 141 GB",
)
H100 = Machine(
    name="h100",
    kind="gpu",
    bandwidth=3.0 * TERA,
    tensor=rates(660, 350, 52),
    scalar=others(50, 25),
    exponentials=3.7 * TERA,
    multiprocessors=132,
    shared=227 * KILO,
    registers=65536,
    launch=1 * MICRO,
    step=0.02 * MICRO,
    trip=0.2 * MICRO,
    far=0.9 * MICRO,
    product=0.1 * MICRO,
    exchange=0.09 * MICRO,
    capability=(9, 0),
    says="NVIDIA H100 SXM, 80 GB",
)
A100 = Machine(
    name="a100",
    kind="gpu",
    bandwidth=1.75 * TERA,
    tensor=rates(250, 125, 16),
    scalar=others(15, 7.5),
    exponentials=2.4 * TERA,
    multiprocessors=108,
    shared=163 * KILO,
    registers=65536,
    launch=1.2 * MICRO,
    step=0.03 * MICRO,
    trip=0.25 * MICRO,
    far=0.9 * MICRO,
    product=0.13 * MICRO,
    exchange=0.12 * MICRO,
    capability=(8, 0),
    says="NVIDIA A100 SXM, 80 GB",
)
B200 = Machine(
    name="b200",
    kind="gpu",
    bandwidth=7.0 * TERA,
    tensor=rates(1500, 750, 28),
    scalar=others(56, 28),
    exponentials=4.4 * TERA,
    multiprocessors=148,
    shared=227 * KILO,
    registers=65536,
    launch=1 * MICRO,
    step=0.02 * MICRO,
    trip=0.2 * MICRO,
    far=0.9 * MICRO,
    product=0.1 * MICRO,
    exchange=0.09 * MICRO,
    capability=(10, 0),
    says="NVIDIA B200 SXM, 180 GB",
)
RTX4090 = Machine(
    name="rtx4090",
    kind="gpu",
    bandwidth=0.92 * TERA,
    tensor=rates(150, 75),
    scalar=others(60, 1),
    exponentials=5.2 * TERA,
    multiprocessors=128,
    shared=99 * KILO,
    registers=65536,
    launch=1 * MICRO,
    step=0.02 * MICRO,
    trip=0.2 * MICRO,
    far=0.8 * MICRO,
    product=0.09 * MICRO,
    exchange=0.08 * MICRO,
    capability=(8, 9),
    threads=1536,
    says="NVIDIA GeForce RTX 4090, 24 GB",
)
CPU = Machine(
    name="cpu",
    kind="cpu",
    bandwidth=40 * GIGA,
    tensor=(("bfloat16", 100 * GIGA), ("float16", 50 * GIGA), ("float32", 300 * GIGA), ("float64", 150 * GIGA)),
    scalar=(("float32", 20 * GIGA), ("float64", 10 * GIGA)),
    exponentials=1 * GIGA,
    multiprocessors=8,
    shared=1 << 40,
    registers=1 << 40,
    launch=20 * MICRO,
    step=150 * MICRO,
    says="eight cores running the torch text; a step is some twenty calls into torch",
)

MACHINES: dict[str, Machine] = {each.name: each for each in (H200, H100, A100, B200, RTX4090, CPU)}


def machine(name: str) -> Machine:
    """The machine of that name, however it is spelled (`RTX 4090`, `rtx-4090`). Raises ArgumentError naming those that exist."""
    plain = "".join(char for char in name.lower() if char.isalnum())
    if plain not in MACHINES:
        raise ArgumentError(f"unknown machine {name!r}; there are {', '.join(MACHINES)}")
    return MACHINES[plain]
