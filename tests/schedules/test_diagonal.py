"""Chunked under a gate for each channel of the key (N) or of the value (P): the definition, hard gates, states, packed sequences, causality
to the bit, precision."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import contractor
from contractor import State
from contractor.pipeline import program_of
from contractor.plan.machine import MACHINES
from contractor.plan.plan import Tiling
from contractor.run.execute import Execution, at_tiling, launched
from contractor.schedules.parts.form import DKEY, DQUERY, DVALUE, Dimensions, Form, Gate, Side, Task, permuted
from contractor.schedules.register import SCHEDULES
from tests.schedules.forms import task
from tests.schedules.layers import CHUNK, answered, expected, wrong

torch.set_num_threads(1)
LOGS = (0.0, -20.0, -1000.0, -math.inf)
SIDES = ("N", "P")
MASKS = (
    "semiseparable(log = G)",
    "semiseparable(log = G, shift = 1)",
    "reverse(semiseparable(log = G))",
    "flip(semiseparable(log = G, shift = 1))",
    "semiseparable(log = G) * decay(A)",
)
LENGTHS = (0, 1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5)
Given = dict[str, Tensor]


def layer(mask: str, side: str) -> str:
    """A layer under a gate for each channel of one side."""
    declared = f"input G [S, {side}]" + (f"\nparam A [{side}] in [0.1, 1]" if "A" in mask else "")
    return f"""layer faded
input Q [T, N]
input K [S, N]
input V [S, P]
{declared}
L [T, S, {side}] = {mask}
Y [T, P] = contract(TN, SN, SP, TS{side} -> TP)(Q, K, V, L)
output Y * 0.5
"""


def operands(side: str, length: int, rng: random.Random, batch: int = 2, width: tuple[int, int] = (5, 3)) -> Given:
    """Random ones in float64: moderate gates, hard ones here and there by channel; now and then fewer heads of an operand."""
    made = torch.Generator().manual_seed(rng.randrange(2**31))
    inner, outer = width
    sizes = {"N": inner, "P": outer}

    def normal(features: int, heads: int) -> Tensor:
        return torch.randn(batch, length, heads, features, generator=made, dtype=torch.float64)

    gate = -normal(sizes[side], rng.choice((1, 2, 4))).abs() * rng.choice((0.02, 0.5, 3.0))
    hard = torch.tensor(LOGS, dtype=torch.float64)[torch.randint(0, len(LOGS), gate.shape, generator=made)]
    gate = torch.where(torch.rand(gate.shape, generator=made) < rng.choice((0.0, 0.1, 0.5)), hard, gate)
    heads = [rng.choice((1, 2, 4)) for _ in range(2)]
    found = {"Q": normal(inner, 4), "K": normal(inner, heads[0]), "V": normal(outer, heads[1]), "G": gate}
    return found | {"A": torch.rand(4, sizes[side], generator=made, dtype=torch.float64) * 0.5 + 0.5}


def of(mask: str, given: Given) -> Given:
    """The operands that a mask's layer has."""
    return {name: one for name, one in given.items() if name != "A" or "A" in mask}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("mask", MASKS)
def test_the_definition(mask: str, side: str) -> None:
    """Outputs and gradients in float64, at ragged lengths, with groups of heads."""
    program = program_of(layer(mask, side))
    for length in LENGTHS:
        seed = f"{mask} {side} {length}"
        given = of(mask, operands(side, length, random.Random(seed)))
        oracle, along = expected(program, given)
        found = answered(program, given, along, "chunked")
        assert not found.refusal and not list(wrong(found, oracle)), (seed, found.refusal or list(wrong(found, oracle)))


@pytest.mark.parametrize("side", SIDES)
def test_float32(side: str) -> None:
    """Within the bars of float32: 1e-5 forward, 1e-4 for gradients."""
    for seed in range(4):
        given = of("", operands(side, 3 * CHUNK + 5, random.Random(seed), width=(16, 16)))
        program = program_of(layer(MASKS[0], side))
        oracle, along = expected(program, given)
        narrow = {name: one.float() for name, one in given.items()}
        found = answered(program, narrow, along, "chunked")
        assert not list(wrong(found, oracle, 1e-5, 1e-4)), (seed, list(wrong(found, oracle, 1e-5, 1e-4)))


@pytest.mark.parametrize("side", SIDES)
def test_bfloat16(side: str) -> None:
    """Within the bars of bfloat16: 5e-3 forward, 1e-2 for gradients; gates in float32, hard ones among them."""
    made = torch.Generator().manual_seed(11)
    program = program_of(layer(MASKS[0], side))
    given = {name: torch.randn(1, 300, 2, 64, generator=made).bfloat16() for name in "QKV"}
    gate = -torch.rand(1, 300, 2, 64, generator=made) * 0.3
    given["G"] = torch.where(torch.rand(gate.shape, generator=made) < 0.01, -torch.inf, gate)
    oracle, along = expected(program, {name: one.double() for name, one in given.items()})
    found = answered(program, given, along, "chunked")
    assert not list(wrong(found, oracle, 5e-3, 1e-2)), list(wrong(found, oracle, 5e-3, 1e-2))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("mask", MASKS)
def test_the_future_changes_nothing(mask: str, side: str) -> None:
    """Not one bit of the results before a position from where on every operand is another, gates that close everything among them."""
    op = contractor.compile(layer(mask, side), schedule="chunked")
    given = of(mask, operands(side, 2 * CHUNK + 5, random.Random(mask)))
    wanted = op(**given)
    for cut in (1, 30, CHUNK, CHUNK + 17, 2 * CHUNK + 4):
        later = slice(0, cut) if mask.startswith(("reverse", "flip")) else slice(cut, None)
        seen = slice(cut, None) if mask.startswith(("reverse", "flip")) else slice(0, cut)
        for gate in (0.0, -3.0, -1000.0, -math.inf):
            changed = {name: one.clone() for name, one in given.items()}
            for name, number in {"Q": -3.0, "K": 1e6, "V": -1e6, "G": gate}.items():
                changed[name][:, later] = number
            assert torch.equal(op(**changed)[:, seen], wanted[:, seen]), (cut, gate)


def start(op: contractor.Operator, sequences: int) -> State:
    """A state to begin with, wanting gradients."""
    made = torch.Generator().manual_seed(1)
    empty = op.pool(sequences, dtype=torch.float64, H=4, N=5, P=3)
    tensors = {name: torch.randn(one.shape, generator=made, dtype=one.dtype).requires_grad_() for name, one in empty.tensors.items()}
    return State(tensors, empty.positions)


def held(found: tuple[Tensor, State], sources: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The result, the final states, and the gradients by both of all sources."""
    result, state = found
    outputs = (result, *state.tensors.values())
    made = torch.Generator().manual_seed(2)
    arrived = [torch.randn(one.shape, generator=made, dtype=one.dtype) for one in outputs]
    return (*outputs, *torch.autograd.grad(outputs, sources, arrived))


def agree(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    """To rounding, scaled by the largest number."""
    for one, other in zip(found, wanted, strict=True):
        assert torch.isfinite(one).all()
        assert float((one - other).detach().abs().max()) <= 1e-10 * max(1.0, float(other.detach().abs().max()))


def leaves(given: Given) -> Given:
    """The operands, each wanting a gradient; gates that close a channel for good have none that is finite."""
    return {name: (one.clamp(min=-30.0) if name == "G" else one).clone().requires_grad_() for name, one in given.items()}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("mask", [*MASKS[:2], MASKS[-1]])
def test_states_go_from_call_to_call(mask: str, side: str) -> None:
    """The whole is any split, and the recurrent order, gradients of states too."""
    op, steps = (contractor.compile(layer(mask, side), schedule=name) for name in ("chunked", "recurrent"))
    own, before = leaves(of(mask, operands(side, 140, random.Random(side)))), start(op, 2)
    sources = (*own.values(), *before.tensors.values())
    wanted = held(steps(**own, initial_state=before, return_state=True), sources)
    agree(held(op(**own, initial_state=before, return_state=True), sources), wanted)
    pieces: list[Tensor] = []
    state = before
    for first, end in pairwise((0, 1, 64, 65, 100, 140)):
        part = {name: one if name == "A" else one[:, first:end] for name, one in own.items()}
        piece, state = op(**part, initial_state=state, return_state=True)
        pieces.append(piece)
    agree(held((torch.cat(pieces, 1), state), sources), wanted)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("mask", [*MASKS[:2], MASKS[-1]])
def test_packed_sequences(mask: str, side: str) -> None:
    """Ends and empty ones too: the same as step by step."""
    bounds = torch.tensor((0, 0, 7, 71, 71, 139, 140, 140))
    op, steps = (contractor.compile(layer(mask, side), schedule=name) for name in ("chunked", "recurrent"))
    own, before = leaves(of(mask, operands(side, 140, random.Random(side), batch=1))), start(op, len(bounds) - 1)
    sources = (*own.values(), *before.tensors.values())
    found, wanted = (held(one(**own, initial_state=before, return_state=True, cu_seqlens=bounds), sources) for one in (op, steps))
    agree(found, wanted)


@pytest.mark.parametrize("side", ["n", "p"])
@pytest.mark.parametrize("future", [False, True], ids=["past", "future"])
@pytest.mark.parametrize("more", [{}, {"fixed": True}, {"shift": 1}], ids=["", "fixed", "late"])
def test_segments_are_one_sequence(side: Side, future: bool, more: dict[str, Any]) -> None:
    """However many there are, with states in and out, empty segments and ragged last ones too."""
    made = torch.Generator().manual_seed(3)
    for length, ends in product((5, 70, 129), (False, True)):
        form = Form((Gate("gate", features=(side,), **more),), strict="shift" in more, initial=ends, final=ends, future=future)
        wanted = Task(form, Dimensions(2, length, 3, 6, 5), "float64")
        shapes = {"query": (2, length, 3, 6), "key": (2, length, 3, 6), "value": (2, length, 3, 5), "initial": (2, 3, 6, 5)}
        shapes["gate"] = (*(() if "fixed" in more else (2, length)), 3, 6 if side == "n" else 5)
        given = {name: torch.randn(*shape, generator=made, dtype=torch.float64) for name, shape in shapes.items()}
        given["gate"] = -given["gate"].abs()
        constants = (("CHUNK", 16), ("BLOCK_N", 6), ("BLOCK_P", 5))
        whole = launched(at_tiling("chunked", wanted, Tiling(constants, 1, 1, "pointer"), "torch"), given, torch.float64)
        for segments in (2, 3, 8):
            tiling = Tiling((*constants, ("SEGMENTS", segments)), 1, 1, "pointer")
            found = launched(at_tiling("chunked", wanted, tiling, "torch"), given, torch.float64)
            assert found.keys() == whole.keys()
            agree(tuple(found.values()), tuple(whole.values()))


def test_what_it_refuses() -> None:
    """A gate for every entry of the state, and two gates that are crossed at different places."""
    assert "every entry" in SCHEDULES["chunked"].refusal(task("gate n p", (1, 64, 1, 16, 16)).form)
    form = task("gate n", (1, 64, 1, 16, 16)).form
    late = replace(form.gates[0], name="late_gate", shift=1)
    assert "different places" in SCHEDULES["chunked"].refusal(replace(form, steps=(*form.steps, late)))


def test_careful_tasks_stay_narrow_on_the_values_side() -> None:
    """There the state and what is written pass in two parts; on the key's side operands are widened."""
    for mask, role, narrow in (("gate n", DQUERY, True), ("gate n", DKEY, True), ("gate p", DVALUE, True), ("gate p", DQUERY, False)):
        form = permuted(task(mask, (1, 64, 1, 16, 16)), role).form
        assert SCHEDULES["chunked"].careful(form) == narrow
    passes = Execution("chunked", MACHINES["cpu"], "torch")
    assert not passes.flows(task("gate n", (1, 64, 1, 16, 16)))


@pytest.mark.parametrize("machine", ["h200", "a100"])
def test_it_is_chosen(machine: str) -> None:
    """For gated linear attention as people run it."""
    op = contractor.compile(Path(__file__).parents[2] / "examples" / "gla.ctr")
    plan = str(op.plan(B=4, T=4096, H=32, N=128, P=128, dtype="bfloat16", machine=machine))
    assert "* chunked" in plan
