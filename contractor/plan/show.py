"""A plan as people read it, an aligned table, and as programs do."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from contractor.plan.plan import Choice, Offer, Pairwise, Plan, Refusal, Tiling
from contractor.plan.problem import BYTES, Problem

HEADINGS = ("order", "tiling", "flops", "bytes", "launches", "steps", "time", "bound by")
NUMBERS = ("flops", "bytes", "launches", "steps", "time", "largest result")
SCALES = ((1e24, "Y"), (1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
PLAIN = 160  # columns where no terminal says otherwise


class PrintedPlan(Plan):
    """A plan that prints as its table."""

    __slots__ = ()

    def __str__(self) -> str:
        return show_text(self)


def printed(plan: Plan) -> PrintedPlan:
    """The plan, printing as its table."""
    return PrintedPlan(plan.problem, plan.machine, plan.choices, plan.contractions)


def show_text(plan: Plan) -> str:
    """The plan as plain text."""
    console = Console(width=PLAIN, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        console.print(table(plan))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def table(plan: Plan) -> RenderableType:
    """The plan as something rich can print."""
    parts: list[RenderableType] = [Text(headline(plan), style="bold")]
    for choice in plan.choices:
        parts += [Text(""), Text(f"{choice.name} = contract({choice.says})"), *orders(choice), *dense_line(choice, plan.problem)]
    if plan.contractions:
        parts += [Text(""), pairwise_table(plan.contractions, BYTES[plan.problem.dtype])]
    return Group(*parts)


def headline(plan: Plan) -> str:
    """The problem and the machine in one line."""
    problem = plan.problem
    sizes = " ".join(f"{axis}={size}" for axis, size in problem.sizes.mapping.items())
    heads = "".join(f", {count} {'head' if count == 1 else 'heads'} of {name}" for name, count in problem.heads)
    packed = f", {problem.packed.sequences} packed sequences" if problem.packed else ""
    return f"{problem.program.name}  {sizes} {problem.dtype}{heads}{packed}{states(problem)}  on {plan.machine.name}"


def states(problem: Problem) -> str:
    """Which states are handed in and out, in words."""
    if problem.pooled:
        return ", states in a pool"
    return (", a state handed in" if problem.initial else "") + (", a state handed out" if problem.final else "")


def orders(choice: Choice) -> tuple[Table, ...]:
    """Every order of one core, the chosen one first, the refused ones with their reasons."""
    shown = aligned(*HEADINGS)
    if choice.chosen is not None:
        shown.add_row(f"* {choice.chosen.schedule}", *cells(choice.chosen), style="bold")
    for other in choice.others:
        if isinstance(other, Offer):
            shown.add_row(f"  {other.schedule}", *cells(other))
    refused = Table.grid(padding=(0, 2))
    for other in choice.others:
        if isinstance(other, Refusal):
            refused.add_row(f"  {other.schedule}", Text(f"refused: {other.reason}"))
    return tuple(part for part in (shown, refused) if part.row_count)


def aligned(*headings: str) -> Table:
    """A table without frame; numbers to the right."""
    shown = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in shown.columns:
        column.justify = "right" if column.header in NUMBERS else "left"
    return shown


def cells(offer: Offer) -> tuple[str, ...]:
    """One offer's row behind its name."""
    cost = offer.cost
    counts = (amount(cost.flops, "FLOP"), amount(cost.bytes, "B"), str(cost.launches), str(cost.steps))
    return (tiling_text(offer.tiling), *counts, duration(offer.milliseconds), offer.bound)


def tiling_text(tiling: Tiling) -> str:
    """Block sizes, warps, stages and how tiles are loaded."""
    blocks = [f"{name}={size}" for name, size in tiling.constants]
    return " ".join([*blocks, f"warps={tiling.warps}", f"stages={tiling.stages}", tiling.via])


def dense_line(choice: Choice, problem: Problem) -> list[RenderableType]:
    """What opt_einsum would do with a dense mask."""
    if choice.dense is None:
        return []
    dense = choice.dense
    memory = amount(dense.largest * BYTES[problem.dtype], "B")
    cost = f"{amount(dense.flops, 'FLOP')}, largest tensor {memory}, {duration(dense.milliseconds)}"
    return [Text(f"mask as a dense tensor, by opt_einsum: {dense.equation}  path {path_text(dense)}: {cost}", style="dim")]


def pairwise_table(contractions: tuple[Pairwise, ...], width: int) -> Table:
    """The orders of the ordinary contractions; width: bytes of an element."""
    shown = aligned("contraction", "letters", "path", "flops", "largest result", "time")
    for each in contractions:
        counts = (amount(each.flops, "FLOP"), amount(each.largest * width, "B"), duration(each.milliseconds))
        shown.add_row(each.name, each.equation, path_text(each), *counts)
    return shown


def path_text(each: Pairwise) -> str:
    """Which operands are taken together, step by step; a result goes to the end of the list."""
    return " ".join(f"({', '.join(map(str, step))})" for step in each.path)


def amount(count: float, unit: str) -> str:
    """A count to three digits: 17.2 GFLOP, 1.07 GB."""
    scale, prefix = next((pair for pair in SCALES if count >= pair[0] * 0.9995), (1, ""))
    return f"{three_digits(count / scale)} {prefix}{unit}"


def duration(milliseconds: float) -> str:
    """A time to three digits: 0.134 ms, 4.57 s."""
    return f"{three_digits(milliseconds)} ms" if milliseconds < 999.5 else f"{three_digits(milliseconds / 1e3)} s"


def three_digits(value: float) -> str:
    """A number rounded to three significant digits, without an exponent."""
    return f"{float(f'{value:.3g}'):.6f}".rstrip("0").rstrip(".")


# ---- for programs -----------------------------------------------------------------------------------------------------------


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan as values that JSON knows: counts are whole numbers, bytes and elements unscaled, times in milliseconds."""
    problem = plan.problem
    return {
        "layer": problem.program.name,
        "sizes": problem.sizes.mapping,
        "dtype": problem.dtype,
        "heads": dict(problem.heads),
        "packed": problem.packed.sequences if problem.packed else None,
        "initial": problem.initial,
        "final": problem.final,
        "pooled": problem.pooled,
        "machine": plan.machine.name,
        "mixings": [choice_json(choice) for choice in plan.choices],
        "contractions": [pairwise_json(each) for each in plan.contractions],
    }


def choice_json(choice: Choice) -> dict[str, Any]:
    """One core's choice."""
    offers = [choice.chosen] if choice.chosen else []
    offers += [other for other in choice.others if isinstance(other, Offer)]
    return {
        "name": choice.name,
        "contraction": choice.says,
        "chosen": choice.chosen.schedule if choice.chosen else None,
        "offers": [offer_json(offer) for offer in offers],
        "refused": {other.schedule: other.reason for other in choice.others if isinstance(other, Refusal)},
        "dense": pairwise_json(choice.dense) if choice.dense else None,
    }


def offer_json(offer: Offer) -> dict[str, Any]:
    """One offer."""
    cost, tiling = offer.cost, offer.tiling
    return {
        "schedule": offer.schedule,
        "tiling": {**dict(tiling.constants), "warps": tiling.warps, "stages": tiling.stages, "via": tiling.via},
        "flops": cost.flops,
        "tensor_flops": cost.tensor_flops,
        "bytes": cost.bytes,
        "scratch": cost.scratch,
        "shared": cost.shared,
        "launches": cost.launches,
        "steps": cost.steps,
        "programs": cost.programs,
        "milliseconds": offer.milliseconds,
        "bound": offer.bound,
    }


def pairwise_json(each: Pairwise) -> dict[str, Any]:
    """A pairwise order."""
    return {
        "name": each.name,
        "equation": each.equation,
        "path": [list(step) for step in each.path],
        "flops": each.flops,
        "largest": each.largest,
        "milliseconds": each.milliseconds,
    }
