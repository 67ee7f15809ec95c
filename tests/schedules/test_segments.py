"""The chunked passes cut into segments, with sums made before, and what they make of gates' gradients: the same as in one piece."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from contractor.plan.machine import MACHINES
from contractor.plan.plan import Tiling
from contractor.run.execute import Execution, at_tiling, halved, launched, run
from contractor.run.gradient import FLOWS, Arrived, backward_pass, by_suffix, fused_passes, gradients, plain_passes, with_operand
from contractor.schedules.parts.form import Dimensions, Flow, Form, Gate, Task

torch.set_num_threads(1)
B, H, N, P, CHUNK, SPAN = 2, 3, 6, 5, 16, 32
GATES = {
    "none": (),
    "fixed": (Gate("gate", fixed=True),),
    "gate": (Gate("gate"),),
    "promised": (Gate("gate", resets=False),),
    "late": (Gate("gate", shift=1),),
    "two": (Gate("gate", resets=False), Gate("late_gate", shift=1, fixed=True)),
}
LENGTHS = (5, CHUNK, 70, 129)
Tensors = dict[str, Tensor]


def task(name: str, length: int, **more: bool) -> Task:
    """A task of float64 operands."""
    gates = GATES[name]
    return Task(Form(gates, strict=any(one.shift for one in gates), **more), Dimensions(B, length, H, N, P), "float64")


def tensors(wanted: Task, seed: int = 0) -> Tensors:
    """Random ones for a task; a gate that may closes the past now and then."""
    made, shape = torch.Generator().manual_seed(seed), wanted.dimensions

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=made, dtype=torch.float64)

    found = {"query": normal(B, shape.T, H, shape.N), "key": normal(B, shape.T, H, shape.N), "value": normal(B, shape.T, H, shape.P)}
    for gate in wanted.form.gates:
        log = -normal(*((H,) if gate.fixed else (B, shape.T, H))).abs()
        closing = gate.resets and not gate.fixed
        found[gate.name] = torch.where(torch.rand(log.shape, generator=made) < 0.05, -torch.inf, log) if closing else log
    if wanted.form.initial:
        found["initial"] = normal(B, H, shape.N, shape.P)
    return found


def cut(wanted: Task, given: Tensors, segments: int, summed: bool = False) -> Tensors:
    """The outputs at a tiling with so many segments."""
    width = wanted.dimensions.P
    constants = [("CHUNK", CHUNK), ("BLOCK_N", wanted.dimensions.N), ("BLOCK_P", width), ("HEAD_BLOCK", 2)]
    constants += [("SPAN", SPAN), ("COLUMN_BLOCKS", 1)] if wanted.form.flow else []
    constants += [("SEGMENTS", segments)] if segments > 1 else []
    return launched(at_tiling("chunked", wanted, Tiling(tuple(constants), 1, 1, "pointer", summed), "torch"), given, torch.float64)


def agree(found: Tensors, wanted: Tensors) -> None:
    """To rounding."""
    assert found.keys() == wanted.keys()
    for name, one in wanted.items():
        torch.testing.assert_close(found[name], one, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("ends", [False, True], ids=["", "states"])
@pytest.mark.parametrize("future", [False, True], ids=["past", "future"])
def test_segments_are_one_sequence(name: str, ends: bool, future: bool) -> None:
    """However many there are, empty ones and ragged last ones too."""
    for length, segments in product(LENGTHS, (2, 3, 5, 8)):
        wanted = task(name, length, initial=ends, final=ends, future=future)
        given = tensors(wanted)
        agree(cut(wanted, given, segments), cut(wanted, given, 1))


@pytest.mark.parametrize("future", [False, True], ids=["past", "future"])
@pytest.mark.parametrize("segments", [1, 3])
def test_sums_made_before(future: bool, segments: int) -> None:
    """Strong gates too: no exponent of a row past the end is above 0."""
    for length in LENGTHS:
        wanted = task("promised", length, future=future)
        given = tensors(wanted)
        given["gate"] = 60 * given["gate"]
        agree(cut(wanted, given, segments, summed=True), cut(wanted, given, 1))


@pytest.mark.parametrize("name", ["fixed", "gate", "late"])
@pytest.mark.parametrize(("role", "flow"), [("query", "target"), ("key", "source"), ("value", "")])
def test_backward_passes_in_segments(name: str, role: str, flow: Flow) -> None:
    """What they leave for gates' gradients too."""
    for length, ends in product((70, 129), (False, True)):
        whole = task(name, length, initial=ends)
        given = tensors(whole)
        arrived = Arrived(torch.randn(B, length, H, P, dtype=torch.float64), torch.randn(B, H, N, P, dtype=torch.float64) if ends else None)
        turned, inputs = backward_pass(role, whole, given, arrived, frozenset({"initial"} if ends else ()), flow)
        if flow:
            turned, inputs = with_operand(turned, whole, role), {**inputs, "operand": given[role]}
        if flow == "source":
            inputs["states"] = torch.randn(B * -(-length // SPAN), H, turned.dimensions.N, turned.dimensions.P, dtype=torch.float64)
        for segments in (2, 3):
            agree(cut(turned, inputs, segments), cut(turned, inputs, 1))


@pytest.mark.parametrize("name", ["fixed", "gate", "late", "two"])
@pytest.mark.parametrize(("ends", "future"), [(False, False), (True, False), (False, True)], ids=["past", "states", "future"])
def test_gates_inside_the_passes_are_gates_outside_them(name: str, ends: bool, future: bool) -> None:
    """Over several spans: both ways of a gate's gradient, one of which knows nothing of chunks."""
    passes_of = Execution("chunked", MACHINES["cpu"], "torch")
    for length in (40, 1100):
        whole = replace(task(name, length, initial=ends, final=ends, future=future))
        given = tensors(whole)
        final = torch.randn(B, H, N, P, dtype=torch.float64) if ends else None
        arrived = Arrived(torch.randn(B, length, H, P, dtype=torch.float64), final)
        gates = whole.form.gates
        asked = frozenset(gate.name for gate in gates)
        outputs = passes_of.kernel(whole, given, torch.float64)
        found = gradients(whole, given, outputs, arrived, asked, passes_of)
        assert fused_passes(whole, given, arrived, asked, passes_of).keys() >= {"meets", "target_pairs"}
        passes = plain_passes(whole, given, arrived, asked, gates, passes_of.kernel)
        for gate in gates:
            outside = by_suffix(whole, gate, given, passes, outputs, arrived, passes_of.kernel)
            outside = outside.sum((0, 1)) if gate.fixed else torch.where(given[gate.name] < -104, 0.0, outside)
            torch.testing.assert_close(found[gate.name], outside, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("name", ["fixed", "gate"])
def test_halves_of_a_wide_state_are_the_whole(name: str) -> None:
    """Where tiles find no room, two halves of n: results and what gates' gradients are made of add up, states lie side by side."""
    whole, cpu = task(name, 70, initial=True, final=True), MACHINES["cpu"]
    given = tensors(whole)
    arrived = Arrived(torch.randn(B, 70, H, P, dtype=torch.float64), torch.randn(B, H, N, P, dtype=torch.float64))
    asked: list[tuple[Task, Tensors]] = [(whole, given)]
    for role, flow in FLOWS:
        turned, inputs = backward_pass(role, whole, given, arrived, frozenset({"initial"}), flow)
        if flow:
            turned, inputs = with_operand(turned, whole, role), {**inputs, "operand": given[role]}
        if flow == "source":
            inputs["states"] = torch.randn(B, H, turned.dimensions.N, turned.dimensions.P, dtype=torch.float64)
        asked.append((turned, inputs))
    for wanted, inputs in asked:
        agree(halved("chunked", cpu, "torch", wanted, inputs, torch.float64), run("chunked", cpu, "torch", wanted, inputs, torch.float64))
