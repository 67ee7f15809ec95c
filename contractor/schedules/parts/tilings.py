"""Block sizes that are right for a task: powers of two on a GPU (at least 64 under tensor units), the axes themselves elsewhere."""

from __future__ import annotations

from dataclasses import replace

from contractor.plan.machine import Machine
from contractor.plan.plan import Tiling
from contractor.plan.problem import BYTES
from contractor.schedules.parts.factors import summable
from contractor.schedules.parts.flow import SPAN
from contractor.schedules.parts.form import Task
from contractor.schedules.parts.walk import Layout

ROWS = 64
SHORTEST = 4  # chunks of a segment
SUMMED_FROM = 1024  # positions
HEAD_BLOCK = 16  # heads whose gates are summed together
PIECE = 128  # channels whose fading is made together, of 16 bits
SMALLEST = 64  # smaller blocks in a kernel of several products have been seen to fault, or worse, to be wrong, on Hopper
DESCRIPTORS = (9, 0)  # older GPUs take a descriptor's loads apart, and then do not pipeline them
ALIGNMENT = 16  # bytes; a descriptor's rows begin at multiples of it


def power(size: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, size - 1).bit_length()


def layout_of(task: Task, tiling: Tiling) -> Layout:
    """How the task's axes meet a tiling's blocks."""
    shape = task.dimensions
    return Layout(
        padded_n=tiling["BLOCK_N"] != shape.N,
        padded_p=shape.P % tiling["BLOCK_P"] != 0,
        via="descriptor" if tiling.via == "descriptor" else "pointer",
        precision="tf32x3" if task.dtype == "float32" else None,
        clamped=BYTES[task.dtype] == 2 and (not task.careful or task.form.flow != ""),  # both passes read the same sums
        split=BYTES[task.dtype] == 2 and task.careful,
        segmented="SEGMENTS" in dict(tiling.constants),
        summed=tiling.summed,
    )


def tiling(task: Task, machine: Machine, columns: int, warps: int, stages: int, rows: int = ROWS, smallest: int = SMALLEST) -> Tiling:
    """Blocks of `rows` positions and at most `columns` columns. Off a GPU a block is a whole axis."""
    shape = task.dimensions
    if machine.kind == "cpu":
        return Tiling((("CHUNK", rows), ("BLOCK_N", shape.N), ("BLOCK_P", max(1, shape.P))), warps, stages)
    block_n = max(smallest, power(shape.N))
    block_p = min(max(smallest, power(shape.P)), columns)
    whole = block_n == shape.N and shape.P % block_p == 0
    aligned = all(size * BYTES[task.dtype] % ALIGNMENT == 0 for size in (shape.N, shape.P))
    bounded = aligned and not task.form.packed  # a descriptor's rows end with the tensor, not with a sequence
    via = "descriptor" if whole and bounded and machine.capability >= DESCRIPTORS else "pointer"
    return Tiling((("CHUNK", rows), ("BLOCK_N", block_n), ("BLOCK_P", block_p)), warps, stages, via)


def piece_of(task: Task, one: Tiling) -> int:
    """How many of n are taken at a time where a gate differs over them: a power of two that divides their block, else the block."""
    most = PIECE * 2 // max(2, BYTES[task.dtype])
    return most if one["BLOCK_N"] % most == 0 else one["BLOCK_N"]


def fits(task: Task, machine: Machine, one: Tiling) -> bool:
    """True if the tiles of all stages, the state as an operand of products (in two parts for a careful task) and the result find room in
    shared memory."""
    rows, inner, outer = one["CHUNK"], one["BLOCK_N"], one["BLOCK_P"]
    tiles = rows * (2 * inner + outer) * one.stages
    state = inner * outer * (2 if layout_of(task, one).split else 1)
    return machine.kind == "cpu" or (tiles + state) * BYTES[task.dtype] + rows * outer * 4 <= machine.shared


def fitting(task: Task, machine: Machine, candidates: tuple[Tiling, ...]) -> tuple[Tiling, ...]:
    """The candidates whose tiles find room; none, where the state is too wide for the machine."""
    return tuple(one for one in candidates if fits(task, machine, one))


def summed(task: Task, candidates: tuple[Tiling, ...]) -> tuple[Tiling, ...]:
    """The candidates, with running sums of gates made before where that is worth a launch. Packed sequences have no blocks of rows that
    follow from a program's number alone."""
    if task.form.packed or task.dimensions.T < SUMMED_FROM:
        return candidates
    gates = task.form.gates
    return tuple(
        replace(one, constants=(*one.constants, ("HEAD_BLOCK", HEAD_BLOCK)), summed=True)
        if any(summable(gate, layout_of(task, one)) for gate in gates)
        else one
        for one in candidates
    )


def segmented(task: Task, machine: Machine, candidates: tuple[Tiling, ...]) -> tuple[Tiling, ...]:
    """The candidates, with the constants that the chunked passes name; and cut into segments, so that the programs that fit
    on all multiprocessors come together."""
    shape, more = task.dimensions, (("SPAN", SPAN),) if task.form.spanned else ()
    found: list[Tiling] = []
    for one in candidates:
        blocks = -(-shape.P // one["BLOCK_P"])
        whole = replace(one, constants=(*one.constants, *more, *((("COLUMN_BLOCKS", blocks),) if task.form.flow or task.form.own else ())))
        programs = max(1, blocks * shape.H * shape.streams)
        longest = shape.T // shape.sequences if shape.sequences else shape.T
        beside = 2 if one["BLOCK_P"] <= SMALLEST else 1
        count = min(machine.multiprocessors * beside // programs, longest // (one["CHUNK"] * SHORTEST))
        cut = machine.kind == "gpu" and count > 1 and not task.form.pooled  # of a pool no program may store what another has yet to read
        if not cut or count == 2:  # three segments read half as much again, and keep three times as much of the machine busy
            found.append(whole)
        if cut:
            found.append(replace(whole, constants=(*whole.constants, ("SEGMENTS", count))))
    return tuple(dict.fromkeys(found))
