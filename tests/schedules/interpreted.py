"""Run by itself, with Triton's interpreter on: the schedules' Triton text in float32 against their torch text in float64. Prints one line
a case."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import Tensor

from contractor.schedules.parts.form import DKEY, DQUERY, DVALUE, FORWARD, Task, permuted
from contractor.schedules.parts.tilings import layout_of
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import kernels_of, sizes_of
from contractor.tile.kernel import Buffer, Kernel
from contractor.tile.ops import I64
from tests.emit.interpreted import exact, interpreted
from tests.schedules.forms import MASKS, blocks, task

CHUNK = 16
LONG, STEPS = 2 * CHUNK + 5, 7
WIDE, PADDED = (16, 32), (20, 24)
GROUPS = (("Q", 2), ("K", 1), ("G", 2))
ROLES = {"forward": FORWARD, "query": DQUERY, "key": DKEY, "value": DVALUE}
SCALAR = ("causal", "fixed", "fixed shift", "gate", "promised gate", "gate shift")
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """One kernel at one length. role: of which of the forward's operands the result is the gradient. grouped: heads of operands."""

    schedule: str
    mask: str
    length: int = LONG
    role: str = "forward"
    via: str = "pointer"
    widths: tuple[int, int] = WIDE
    grouped: tuple[tuple[str, int], ...] = ()
    dtype: str = "float32"

    def __str__(self) -> str:
        heads = "".join(f" {name}:{count}" for name, count in self.grouped)
        return f"{self.schedule} {self.mask} T={self.length} {self.role} {self.via} {self.widths[0]}x{self.widths[1]}{heads} {self.dtype}"


def cases() -> Iterator[Case]:
    """Every mask by every order that may, forward and backward; then lengths, layouts and groups."""
    for mask in MASKS:
        for schedule in ("quadratic", "recurrent", "chunked"):
            if not SCHEDULES[schedule].refusal(task(mask, (2, 1, 2, 16, 16)).form):
                yield Case(schedule, mask, STEPS if schedule == "recurrent" else LONG)
    for mask in SCALAR:
        yield from (Case("chunked", mask, role=role) for role in ("query", "key", "value"))
        yield from (Case("chunked", mask, length) for length in (1, CHUNK - 1, CHUNK + 1))
    for mask in ("gate", "gate shift", "gate n", "gate p", "window", "documents"):
        yield from (Case("quadratic", mask, CHUNK + 5, role) for role in ("query", "key", "value"))
        yield from (Case("quadratic", mask, length) for length in (1, CHUNK - 1, CHUNK + 1))
    for mask in ("gate", "gate shift", "gate n", "gate p"):
        yield from (Case("recurrent", mask, STEPS, role) for role in ("query", "key", "value"))
    for schedule in ("quadratic", "recurrent", "chunked"):
        length = STEPS if schedule == "recurrent" else CHUNK + 5
        yield Case(schedule, "gate", length, widths=PADDED)
        yield Case(schedule, "gate", length, grouped=GROUPS)
        yield Case(schedule, "gate", length, "key", widths=PADDED, grouped=GROUPS)
        yield Case(schedule, "causal", 1)
    for schedule in ("quadratic", "chunked"):
        yield from (Case(schedule, mask, via="descriptor") for mask in ("causal", "gate"))
        yield Case(schedule, "gate", CHUNK + 1, "key", "descriptor", grouped=(("Q", 2), ("K", 1)))
        yield Case(schedule, "gate", dtype="bfloat16")
    yield from (Case("recurrent", mask, STEPS, widths=PADDED) for mask in ("gate n", "rank one", "dense"))
    yield from (Case("quadratic", mask, CHUNK + 1, widths=PADDED) for mask in ("gate n", "gate p", "prefix", "toeplitz"))


def filled(kernel: Kernel, wanted: Task, sizes: dict[str, float], seed: str) -> Tensors:
    """Random tensors for every buffer that is read: gates are logs, some −inf where nothing rules it out; labels come in runs."""
    made = torch.Generator().manual_seed(crc32(seed.encode()))
    closing = {gate.name: 0.1 if gate.resets else 0.0 for gate in wanted.form.gates}

    def one(buffer: Buffer) -> Tensor:
        shape = [int(sizes[dim]) for dim in buffer.dims]
        if buffer.dtype == I64:
            return torch.randint(0, 3, shape, generator=made).sort(1).values
        normal = torch.randn(*shape, generator=made, dtype=torch.float64)
        if buffer.name in closing:
            return torch.where(torch.rand(*shape, generator=made) < closing[buffer.name], -torch.inf, -normal.abs())
        return normal * (shape[-1] ** -0.5 if buffer.name.startswith("transition") else 1.0)

    return {buffer.name: one(buffer) for buffer in kernel.buffers if buffer.name not in kernel.stored}


def error(case: Case) -> float:
    """The relative error of what the Triton text stores (absolute where all is 0); not a number where it left something out."""
    batch, heads = (1, 4) if case.grouped else (2, 2) if case.role == "forward" else (2, 1)
    wanted = task(case.mask, (batch, case.length, heads, *case.widths), case.dtype, **dict(case.grouped))
    if case.role != "forward":
        wanted = permuted(wanted, ROLES[case.role])
    tiling = blocks(wanted.dimensions, case.via, CHUNK)
    (kernel,) = kernels_of(SCHEDULES[case.schedule], wanted.form, layout_of(wanted, tiling))
    assert any(buffer.via == case.via for buffer in kernel.buffers)
    sizes: dict[str, float] = {**sizes_of(wanted, tiling), "scale": 0.5, "programs": 0}
    wide = filled(kernel, wanted, sizes, str(case))
    narrow = {name: one.float() if one.is_floating_point() else one for name, one in wide.items()}
    shape = [int(sizes[dim]) for dim in kernel.buffer("result").dims]
    for tensors, dtype in ((wide, torch.float64), (narrow, torch.float32)):
        tensors["result"] = torch.full(shape, torch.nan, dtype=dtype)
    exact(kernel, wide, sizes)
    interpreted(kernel, narrow, sizes)
    return float((narrow["result"].double() - wide["result"]).norm()) / (float(wide["result"].norm()) or 1.0)


def main() -> None:
    """Every case."""
    for case in cases():
        print(f"{case}: {error(case):.3e}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
