"""A problem from a program and either sizes by letter or the tensors' shapes: every size known and in agreement with the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from contractor.errors import ArgumentError
from contractor.plan.problem import BYTES, DType, Packed, Problem, Sizes
from contractor.plan.relations import Evidence, Relations, relations, solve
from contractor.program.carry import stateless, unpackable
from contractor.program.expression import POSITIONS
from contractor.program.program import Operand, Program

OWN = ("B", "T", "S", "H")


def problem_from_sizes(
    program: Program,
    *,
    dtype: str = "bfloat16",
    heads: Mapping[str, int] | None = None,
    packed: int | None = None,
    initial: bool = False,
    final: bool = False,
    pooled: bool = False,
    **sizes: int,
) -> Problem:
    """A problem from sizes by letter: `B=4, T=4096, H=32, N=128, P=128`.

    B and H are 1 if not given; of T and S either is the other's length if not given; sizes that follow from definitions need not be
    given. heads: the head counts of operands that have fewer than H. packed: how many sequences lie end to end along T (B is 1).
    initial, final: a state is handed in, and handed out; pooled: both, in place.
    Raises ArgumentError for a missing, unknown or contradictory size, and for sequences or states that the layer cannot have.
    """
    known = relations(program)
    refuse_unknown(known, sizes)
    solved = solve(known, [Evidence(axis, size) for axis, size in sizes.items()])
    return assemble(
        program,
        known,
        {"B": 1, "H": 1} | solved,
        dtype,
        head_counts(program, solved.get("H", 1), heads or {}),
        (packed, initial, final, pooled),
    )


def problem_from_shapes(
    program: Program,
    shapes: Mapping[str, tuple[int, ...]],
    dtype: str = "bfloat16",
    packed: int | None = None,
    initial: bool = False,
    final: bool = False,
    pooled: bool = False,
) -> Problem:
    """A problem from the shape of every operand, in the layouts of `Operand`.

    Raises ArgumentError for a missing or unknown operand, a wrong number of dimensions, sizes that contradict each other (naming
    operand, axis and both sizes) or head counts that do not divide H. packed, initial, final, pooled: as above.
    """
    refuse_operands(program, shapes)
    known = relations(program)
    found = [
        Evidence(axis, size, operand.name)
        for operand in program.operands
        for axis, size in zip(layout(operand, shapes[operand.name]), shapes[operand.name], strict=True)
    ]
    solved = solve(known, [each for each in found if each.axis not in ("batch", "head")])
    heads = {each.source: each.size for each in found if each.axis == "head"}
    most = max(heads.values(), default=1)
    counts = {operand.name: heads.get(operand.name, 1) for operand in program.operands}
    solved |= {"B": batch_of([each for each in found if each.axis == "batch"]), "H": most}
    return assemble(program, known, solved, dtype, head_counts(program, most, counts), (packed, initial, final, pooled))


def assemble(
    program: Program,
    known: Relations,
    sizes: Mapping[str, int],
    dtype: str,
    heads: tuple[tuple[str, int], ...],
    beside: tuple[int | None, bool, bool, bool],
) -> Problem:
    """The problem, once nothing is missing. beside: packed, initial, final, pooled."""
    dtype = str(dtype).removeprefix("torch.")
    if dtype not in BYTES:
        raise ArgumentError(f"unknown dtype {dtype!r}; there are {', '.join(BYTES)}")
    targets = sizes.get("T", sizes.get("S"))
    sources = sizes.get("S", targets)
    missing = ["T"] if targets is None else []
    missing += [axis for axis in known.axes if axis not in sizes]
    if missing or targets is None or sources is None:
        raise ArgumentError(f"no size for {', '.join(missing)}; {layer_has(known)}")
    packed, initial, final, pooled = beside
    refuse_whole(program, sizes["B"], targets != sources, packed, initial or pooled, final or pooled)
    features = tuple((axis, sizes[axis]) for axis in known.axes)
    whole = Sizes(sizes["B"], targets, sources, sizes["H"], features)
    return Problem(
        program,
        whole,
        cast(DType, dtype),
        heads,
        None if packed is None else Packed(packed),
        bool(initial or pooled),
        bool(final or pooled),
        bool(pooled),
    )


def refuse_whole(program: Program, batch: int, uneven: bool, packed: int | None, initial: bool, final: bool) -> None:
    """Raises ArgumentError for packed sequences or states where the layer, or the sizes, do not allow them."""
    if packed is not None:
        if batch != 1 or packed < 1:
            raise ArgumentError(f"packed sequences lie end to end in a batch of 1; B is {batch} and there are {packed} sequences")
        if reason := unpackable(program):
            raise ArgumentError(f"{program.name} takes no packed sequences: {reason}")
    if (initial or final) and (reason := stateless(program)):
        raise ArgumentError(f"{program.name} has no state to carry: {reason}")
    if uneven and (initial or final or packed is not None):
        raise ArgumentError("T and S must be one length where sequences are packed or a state is handed on")


def layer_has(known: Relations) -> str:
    """The axes that a layer has, for messages."""
    return f"this layer has {', '.join((*OWN, *known.axes))}"


def refuse_unknown(known: Relations, sizes: Mapping[str, int]) -> None:
    """Sizes that name no axis of the layer, or are no sizes."""
    for axis, size in sizes.items():
        if axis not in OWN and axis not in known.axes:
            raise ArgumentError(f"unknown size {axis}; {layer_has(known)}")
        least = 1 if axis == "H" else 0
        if type(size) is not int or size < least:
            raise ArgumentError(f"{axis} = {size!r}: a size is an integer of at least {least}")


def refuse_operands(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Operands that are missing, or that the layer does not have."""
    names = [operand.name for operand in program.operands]
    takes = f"this layer takes {', '.join(names)}"
    if unknown := [name for name in shapes if name not in names]:
        raise ArgumentError(f"unknown operand {', '.join(unknown)}; {takes}")
    if missing := [name for name in names if name not in shapes]:
        raise ArgumentError(f"no tensor for {', '.join(missing)}; {takes}")


def layout(operand: Operand, shape: tuple[int, ...]) -> tuple[str, ...]:
    """What each dimension of an operand's tensor is: an axis, "batch" or "head"."""
    positions = tuple(axis for axis in operand.axes if axis in POSITIONS)
    features = operand.axes[len(positions) :]
    if operand.role == "param":
        full = ("head", *operand.axes)
    elif len(positions) == 1:
        full = ("batch", *positions, "head", *features)
    else:
        full = ("batch", "head", *operand.axes)
    shared = operand.role == "param" and len(shape) == len(operand.axes)
    if len(shape) != len(full) and not shared:
        raise ArgumentError(f"{operand.name} has {len(shape)} dimensions {tuple(shape)}; expected {len(full)}: [{', '.join(full)}]")
    return operand.axes if shared else full


def batch_of(found: list[Evidence]) -> int:
    """The batch: the one size beside 1."""
    full = next((each for each in found if each.size != 1), None)
    if full is None:
        return 1
    for each in found:
        if each.size not in (1, full.size):
            both = f"{full.source} has batch {full.size}, but {each.source} has batch {each.size}"
            raise ArgumentError(f"{both}: it must be {full.size} or 1")
    return full.size


def head_counts(program: Program, most: int, heads: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The head counts that are not H, each a divisor of it."""
    names = [operand.name for operand in program.operands]
    for name, count in heads.items():
        if name not in names:
            raise ArgumentError(f"heads of {name}: there is no such operand; this layer takes {', '.join(names)}")
        if count < 1:
            raise ArgumentError(f"{name} has {count} heads: there must be at least one")
        if most % count:
            whose = next((f" ({other}'s)" for other, own in heads.items() if own == most), "")
            raise ArgumentError(f"{name} has {count} heads, H is {most}{whose}: a head count must be {most}, 1 or a divisor of {most}")
    return tuple((name, heads[name]) for name in names if heads.get(name, most) != most)
