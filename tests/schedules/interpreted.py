"""Run by itself, with Triton's interpreter on: the schedules' Triton text in float32 against their torch text in float64. Prints one line
a case."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from zlib import crc32

os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import Tensor

from contractor.plan.plan import Tiling
from contractor.schedules.parts.form import DKEY, DQUERY, DVALUE, FORWARD, Task, permuted
from contractor.schedules.parts.last import last_step
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
    beside: tuple[str, ...] = ()

    def __str__(self) -> str:
        heads = "".join(f" {name}:{count}" for name, count in self.grouped)
        kind = f"{self.via} {self.widths[0]}x{self.widths[1]}{heads} {self.dtype} {' '.join(self.beside)}"
        return f"{self.schedule} {self.mask} T={self.length} {self.role} {kind}"


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
    for mask in ("gate n", "gate p"):
        yield from (Case("chunked", mask, role=role) for role in ("query", "key", "value"))
        yield from (Case("chunked", mask, length) for length in (1, CHUNK - 1, CHUNK + 1))
        yield from (Case("chunked", mask, via="descriptor", widths=widths) for widths in (WIDE, (32, 32)))
        besides = (("states",), ("packed",), ("packed", "states"), ("segments",), ("packed", "segments"))
        yield from (Case("chunked", mask, 4 * CHUNK + 5, beside=beside) for beside in besides)
        yield Case("chunked", mask, 4 * CHUNK + 5, "key", beside=("states",))
        yield Case("chunked", mask, widths=PADDED, grouped=GROUPS)
        yield Case("chunked", mask, dtype="bfloat16")
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


def beside_cases() -> Iterator[Case]:
    """Chunked: segments, sums made before, packed sequences, states, what backward passes leave for gates' gradients."""
    for mask in ("causal", "fixed", "gate", "gate shift"):
        yield Case("chunked", mask, 4 * CHUNK + 5, beside=("segments",))
        yield Case("chunked", mask, 4 * CHUNK + 5, "key", beside=("segments",))
        yield from (Case("chunked", mask, beside=beside) for beside in (("states",), ("packed",), ("packed", "segments")))
        yield Case("recurrent", mask, STEPS, beside=("packed", "states"))
    yield from (Case("chunked", "promised gate", role=role, beside=("summed",)) for role in ("forward", "key"))
    for mask in ("fixed", "gate"):
        yield Case("chunked", mask, 4 * CHUNK + 5, "query", beside=("target",))
        yield Case("chunked", mask, 4 * CHUNK + 5, "key", beside=("source",))
    yield Case("chunked", "gate", 4 * CHUNK + 5, "query", "descriptor", beside=("target",))


def delta_cases() -> Iterator[Case]:
    """Chunked under rank-one transitions: lengths, layouts, groups, states, packed sequences, the pass back."""
    for mask in ("rank one", "gated rank one", "delta rule"):
        yield from (Case("chunked", mask, length) for length in (1, CHUNK - 1, CHUNK + 1))
        yield from (Case("chunked", mask, beside=names) for names in (("states",), ("packed", "states")))
        yield Case("chunked", mask, widths=PADDED)
        yield Case("chunked", mask, via="descriptor")
        yield Case("chunked", mask, grouped=GROUPS if mask != "rank one" else GROUPS[:2])
    for names in (("whole",), ("whole", "states"), ("whole", "packed", "states")):
        yield Case("chunked", "delta rule", 4 * CHUNK + 5, beside=names)
    yield Case("chunked", "delta rule", 4 * CHUNK + 5, via="descriptor", beside=("whole",))
    yield Case("chunked", "delta rule", widths=PADDED, beside=("whole",))
    yield Case("chunked", "delta rule", grouped=GROUPS, beside=("whole",))
    yield Case("chunked", "delta rule", dtype="bfloat16", beside=("whole",))


def beside(wanted: Task, tiling: Tiling, names: tuple[str, ...]) -> tuple[Task, Tiling]:
    """A task and a tiling with what stands beside them."""
    form = replace(wanted.form, initial="states" in names, final="states" in names, packed="packed" in names)
    form = replace(form, flow=next((name for name in names if name in ("target", "source", "whole")), ""))
    constants = dict(tiling.constants) | ({"SEGMENTS": 2} if "segments" in names else {}) | ({"HEAD_BLOCK": 4} if "summed" in names else {})
    if form.flow == "whole":
        constants |= {"COLUMNS": tiling["BLOCK_P"]}
    elif form.flow:
        constants |= {"SPAN": 2 * CHUNK, "COLUMN_BLOCKS": wanted.dimensions.P // tiling["BLOCK_P"]}
    dimensions = replace(wanted.dimensions, sequences=3 if form.packed else 0, B=1 if form.packed else wanted.dimensions.B)
    return replace(wanted, form=form, dimensions=dimensions), replace(tiling, constants=tuple(constants.items()), summed="summed" in names)


def filled(kernel: Kernel, wanted: Task, sizes: dict[str, float], seed: str) -> Tensors:
    """Random tensors for every buffer that is read: gates are logs, some −inf where nothing rules it out; labels come in runs."""
    made = torch.Generator().manual_seed(crc32(seed.encode()))
    closing = {gate.name: 0.1 if gate.resets else 0.0 for gate in wanted.form.gates}

    def one(buffer: Buffer) -> Tensor:
        shape = [int(sizes[dim]) for dim in buffer.dims]
        if buffer.name == "starts":
            return torch.tensor([0, 3, 3, wanted.dimensions.T])
        if buffer.dtype == I64:
            return torch.randint(0, 3, shape, generator=made).sort(1).values
        normal = torch.randn(*shape, generator=made, dtype=torch.float64)
        if buffer.name in closing:
            return torch.where(torch.rand(*shape, generator=made) < closing[buffer.name], -torch.inf, -normal.abs())
        if buffer.name == "source_weight" and wanted.form.matrices:
            return normal.sigmoid()
        erasing = buffer.name.startswith("transition") or (buffer.name == "key" and bool(wanted.form.matrices))
        return normal * (shape[-1] ** -0.5 if erasing else 1.0)

    return {buffer.name: one(buffer) for buffer in kernel.buffers if buffer.name not in kernel.stored}


def error(case: Case) -> float:
    """The relative error of what the Triton text stores (absolute where all is 0); not a number where it left something out."""
    batch, heads = (1, 4) if case.grouped else (2, 2) if case.role == "forward" else (2, 1)
    wanted = task(case.mask, (batch, case.length, heads, *case.widths), case.dtype, **dict(case.grouped))
    if case.role != "forward":
        wanted = permuted(wanted, ROLES[case.role])
    wanted, tiling = beside(wanted, blocks(wanted.dimensions, case.via, CHUNK), case.beside)
    kernels = kernels_of(SCHEDULES[case.schedule], wanted.form, layout_of(wanted, tiling))
    assert any(buffer.via == case.via for kernel in kernels for buffer in kernel.buffers)
    sizes: dict[str, float] = {**sizes_of(wanted, tiling), "scale": 0.5, "programs": 0}
    wide: Tensors = {}
    for kernel in kernels:
        wide = filled(kernel, wanted, sizes, str(case)) | wide
        stored = {name: [int(sizes[dim]) for dim in kernel.buffer(name).dims] for name in kernel.stored}
        wide |= {name: torch.full(shape, torch.nan, dtype=torch.float64) for name, shape in stored.items()}
    narrow = {name: one.float() if one.is_floating_point() else one.clone() for name, one in wide.items()}
    for kernel in kernels:
        exact(kernel, wide, sizes)
        interpreted(kernel, narrow, sizes)
    return max(difference(narrow[name].double(), wide[name]) for name in kernels[-1].stored)


def channel_error(mask: str, packed: bool) -> float:
    """The relative error of the last step of a gradient, of a gate for each channel; keys of fewer heads, a state's gradient among it."""
    batch, heads, channels = (1 if packed else 2), 4, 20
    wanted = task(mask, (batch, LONG, heads, channels, channels), "float32")
    wanted = replace(wanted, form=replace(wanted.form, packed=packed), dimensions=replace(wanted.dimensions, sequences=3 * packed))
    (gate,) = wanted.form.gates
    rows = dict.fromkeys(("target", "target_gradient", "source_gradient", gate.name), (batch, LONG, heads, channels))
    shapes = {**rows, "source": (batch, LONG, 2, channels), "met": (wanted.dimensions.streams, heads, channels)}
    kernel, sizes = last_step(wanted, gate, shapes)
    named: dict[str, float] = {**sizes, "CHUNK": CHUNK, "BLOCK": 16}
    wide = filled(kernel, wanted, named, mask) | {"gradient": torch.full(rows["target"], torch.nan, dtype=torch.float64)}
    narrow = {name: one.float() if one.is_floating_point() else one.clone() for name, one in wide.items()}
    exact(kernel, wide, named)
    interpreted(kernel, narrow, named)
    return difference(narrow["gradient"].double(), wide["gradient"])


def difference(found: Tensor, wanted: Tensor) -> float:
    """The relative difference, absolute where all is 0."""
    return float((found - wanted).norm()) / (float(wanted.norm()) or 1.0)


def main() -> None:
    """Every case."""
    for case in (*cases(), *beside_cases(), *delta_cases()):
        print(f"{case}: {error(case):.3e}", flush=True)
    for mask in ("gate n", "gate p"):
        for packed in (False, True):
            print(f"chunked {mask} gradient of the gate {packed}: {channel_error(mask, packed):.3e}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
