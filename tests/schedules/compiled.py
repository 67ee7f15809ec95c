"""A schedule's kernel compiled ahead of time for a machine's GPU: what the compiler made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from contractor.emit.triton import arguments, emit_triton
from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.schedules.parts.form import Task
from contractor.schedules.parts.tilings import layout_of
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import kernels_of, priced, sizes_of
from tests.emit.test_compiles import imported, types_of

KIND = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


@dataclass(frozen=True)
class Facts:
    """Bytes of shared memory, as used and as the plan claims; instructions: products of Hopper's tensor units and of older ones, spills
    of registers to memory."""

    shared: int
    claimed: int
    wgmma: int
    mma: int
    spills: int


@lru_cache
def facts(schedule: str, task: Task, machine: Machine, tiling: Tiling) -> Facts:
    """Compiles the kernel of a task at a tiling; pointers and T are multiples of 16."""
    *_, kernel = kernels_of(SCHEDULES[schedule], task.form, layout_of(task, tiling))
    sizes = sizes_of(task, tiling)
    constants = {name: sizes[name] for name in arguments(kernel) if name in kernel.constants}
    claimed = priced(SCHEDULES[schedule], task, machine, tiling).cost.shared
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{kernel.name}.py"
        path.write_text(emit_triton(kernel), encoding="utf-8")
        function = getattr(imported(path), kernel.name)
        return compiled(function, types_of(kernel, sizes, KIND[task.dtype]), constants, machine, tiling, claimed)


def compiled(
    function: object, types: Mapping[str, str], constants: Mapping[str, int], machine: Machine, tiling: Tiling, claimed: int
) -> Facts:
    """What Triton makes of a function for a machine's architecture, without one."""
    aligned = {(place,): [["tt.divisibility", 16]] for place, (name, kind) in enumerate(types.items()) if kind[0] == "*" or name == "T"}
    source = ASTSource(fn=function, signature={**types, **dict.fromkeys(constants, "constexpr")}, constexprs=dict(constants), attrs=aligned)
    major, minor = machine.capability
    options = {"num_warps": tiling.warps, "num_stages": tiling.stages}
    built = triton.compile(source, target=GPUTarget("cuda", 10 * major + minor, 32), options=options)
    text = built.asm["sass"]
    return Facts(built.metadata.shared, claimed, text.count("HGMMA"), text.count("HMMA"), text.count("LDL") + text.count("STL"))
