"""States handed from call to call and packed sequences: whole, in parts, step by step and end to end are one function, gradients too."""

from __future__ import annotations

import pickle
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import contractor
from contractor import ArgumentError, State

torch.set_num_threads(1)
PLAIN = "layer tested\ninput Q [T, N]\ninput K [S, N]\ninput V [S, P]\n"
LETTERS = "contract(TN, SN, SP, TS -> TP)(Q, K, V, L)"
MASKS = {
    "causal": ("", "causal()"),
    "fixed": ("param A [] in [0.1, 1]", "decay(A)"),
    "late fixed": ("param A [] in [0.1, 1]", "decay(A, shift = 1)"),
    "gate": ("input G [S]", "semiseparable(log = G)"),
    "late gate": ("input G [S]", "semiseparable(log = G, shift = 1)"),
    "both": ("input G [S]\nparam A [] in [0.1, 1]", "semiseparable(log = G) * decay(A)"),
    "sum": ("input G [S]\nparam A [] in [0.1, 1]", "semiseparable(log = G) + 0.5 * decay(A)"),
}
CUTS, BOUNDS = (0, 1, 64, 65, 100, 140), (0, 0, 7, 71, 71, 139, 140, 140)
H, N, P = 4, 5, 3
Given = dict[str, Tensor]


def layer(mask: str, schedule: str | None) -> contractor.Operator:
    """The layer of a mask, with positions around it."""
    declared, written = MASKS[mask]
    return contractor.compile(
        f"{PLAIN}{declared}\nL [T, S] = {written}\nY [T, P] = {LETTERS}\noutput Y * (1 + pos(T))\n", schedule=schedule
    )


def operands(op: contractor.Operator, batch: int, length: int) -> Given:
    """Random ones in float64; keys have two heads, some gates close the past."""
    made = torch.Generator().manual_seed(length)
    found: Given = {}
    for operand in op.program.operands:
        sizes = [{"T": length, "S": length, "N": N, "P": P}[axis] for axis in operand.axes]
        shape = (H,) if operand.role == "param" else (batch, sizes[0], 2 if operand.name == "K" else H, *sizes[1:])
        value = torch.randn(*shape, generator=made, dtype=torch.float64)
        closed = torch.where(torch.rand(*shape, generator=made) < 0.03, -torch.inf, -value.abs())
        found[operand.name] = {"G": closed, "A": value.sigmoid() * 0.5 + 0.5}.get(operand.name, value)
    return found


def part(given: Given, first: int, end: int) -> Given:
    """Some positions."""
    return {name: one if name == "A" else one[:, first:end] for name, one in given.items()}


def leaves(given: Given) -> Given:
    """The operands, each wanting a gradient."""
    return {name: one.clone().requires_grad_() for name, one in given.items()}


def start(op: contractor.Operator, sequences: int) -> State:
    """A state to begin with, wanting gradients."""
    made = torch.Generator().manual_seed(1)
    empty = op.pool(sequences, dtype=torch.float64, H=H, N=N, P=P)
    tensors = {name: torch.randn(one.shape, generator=made, dtype=one.dtype).requires_grad_() for name, one in empty.tensors.items()}
    return State(tensors, empty.positions + 3)


def held(found: tuple[Tensor, State], sources: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Everything that two ways of one computation are held to: result, final states, gradients by both of all sources."""
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


@pytest.mark.parametrize("schedule", ["chunked", "recurrent"])
@pytest.mark.parametrize("mask", MASKS)
def test_whole_is_any_split(mask: str, schedule: str) -> None:
    op = layer(mask, schedule)
    given = operands(op, 2, CUTS[-1])
    own, before = leaves(given), start(op, 2)
    sources = (*own.values(), *before.tensors.values())
    wanted = held(op(**own, initial_state=before, return_state=True), sources)
    pieces: list[Tensor] = []
    state = before
    for first, end in pairwise(CUTS):
        piece, state = op(**part(own, first, end), initial_state=state, return_state=True)
        pieces.append(piece)
    agree(held((torch.cat(pieces, 1), state), sources), wanted)
    assert state.positions.tolist() == [3 + CUTS[-1]] * 2


@pytest.mark.parametrize("mask", MASKS)
def test_whole_is_step_by_step(mask: str) -> None:
    op = layer(mask, None)
    given, before = operands(op, 2, 70), start(op, 2).detach()
    wanted, last = op(**given, initial_state=before, return_state=True)
    state, pieces = before, list[Tensor]()
    for place in range(70):
        single = {name: one if name == "A" else one[:, place] for name, one in given.items()}
        piece, state = op.step(state, **single)
        pieces.append(piece)
    agree((torch.stack(pieces, 1), *state.tensors.values()), (wanted, *last.tensors.values()))


@pytest.mark.parametrize("schedule", ["chunked", "recurrent"])
@pytest.mark.parametrize("mask", MASKS)
def test_packed_is_one_after_the_other(mask: str, schedule: str) -> None:
    """Empty sequences too, which hand their state on; the definition gives the same without states."""
    op = layer(mask, schedule)
    given, sequences = operands(op, 1, BOUNDS[-1]), len(BOUNDS) - 1
    own, before = leaves(given), start(op, sequences)
    sources, bounds = (*own.values(), *before.tensors.values()), torch.tensor(BOUNDS, dtype=torch.int32)
    found = held(op(**own, initial_state=before, return_state=True, cu_seqlens=bounds), sources)
    answers = [op(**part(own, *ends), initial_state=before[place], return_state=True) for place, ends in enumerate(pairwise(BOUNDS))]
    states = {name: torch.cat([state.tensors[name] for _, state in answers]) for name in before.tensors}
    joined = State(states, torch.cat([state.positions for _, state in answers]))
    agree(found, held((torch.cat([one for one, _ in answers], 1), joined), sources))
    (wanted,) = contractor.reference(op.program, given, bounds)
    agree((op(**given, cu_seqlens=bounds),), (wanted,))


def test_sequences_do_not_see_one_another() -> None:
    """Not a bit, whatever stands in the others."""
    op = layer("gate", "chunked")
    given, bounds = operands(op, 1, BOUNDS[-1]), torch.tensor(BOUNDS)
    wanted = op(**given, cu_seqlens=bounds)
    spoilt = {name: one.clone() for name, one in given.items()}
    for one in spoilt.values():
        one[:, 7:71] = torch.nan
    found = op(**spoilt, cu_seqlens=bounds)
    assert torch.equal(found[:, :7], wanted[:, :7]) and torch.equal(found[:, 71:], wanted[:, 71:])


def test_a_loss_on_either_alone() -> None:
    op = layer("both", "chunked")
    own, before = leaves(operands(op, 2, 70)), start(op, 2)
    result, state = op(**own, initial_state=before, return_state=True)
    (final,) = state.tensors.values()
    sources = (*own.values(), *before.tensors.values())
    by_final = torch.autograd.grad(final.sum(), sources, retain_graph=True, allow_unused=True)
    assert by_final[0] is None or not by_final[0].any()
    both = torch.autograd.grad(result.sum() + final.sum(), sources, retain_graph=True)
    by_result = torch.autograd.grad(result.sum(), sources)
    for one, other, whole in zip(by_result, by_final, both, strict=True):
        agree((one + (0 if other is None else other),), (whole,))


def test_a_state_is_data() -> None:
    op = layer("sum", None)
    _, state = op(**operands(op, 3, 9), return_state=True)
    for copy in (pickle.loads(pickle.dumps(state)), deepcopy(state), state.clone(), state.to("cpu"), state.detach()):
        assert all(torch.equal(copy.tensors[name], one) for name, one in state.tensors.items())
        assert copy.positions.tolist() == [9, 9, 9] and len(copy) == 3
    assert len(state[1]) == 1 and len(state[[0, 2]]) == 2 and state.to(torch.float32).positions.dtype == torch.int64
    assert "Y.1 [3, 4, 5, 3] float64" in repr(state)


WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("gate", {"initial_state": torch.zeros(2, H, N, P + 1)}, r"must be \[batch, head, N, P\] = \[2, 4, 5, 3\], not \[2, 4, 5, 4\]"),
    ("sum", {"initial_state": torch.zeros(2, H, N, P)}, "carries 2 tensors"),
    ("gate", {"initial_state": 3}, "must be a State of tested"),
    ("gate", {"cu_seqlens": torch.tensor([0, 9])}, "packed sequences lie end to end in a batch of 1"),
    ("gate", {"cu_seqlens": [0, 9]}, "cu_seqlens must be a tensor of int32 or int64"),
)


@pytest.mark.parametrize(("mask", "beside", "says"), WRONG)
def test_what_does_not_fit_is_refused(mask: str, beside: dict[str, Any], says: str) -> None:
    op = layer(mask, None)
    with pytest.raises(ArgumentError, match=says):
        op(**operands(op, 2, 9), **beside)


@pytest.mark.parametrize("bounds", [(0, 8), (1, 9), (0, 5, 4, 9)])
def test_bounds_rise_from_0_to_the_end(bounds: tuple[int, ...]) -> None:
    op = layer("gate", None)
    with pytest.raises(ArgumentError, match="must rise from 0 to T = 9"):
        op(**operands(op, 1, 9), cu_seqlens=torch.tensor(bounds))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("L [T, S] = window(3)\noutput " + LETTERS, "no state to carry"),
        ("L [T, S] = reverse(causal())\noutput " + LETTERS, "runs from the future"),
        ("L [T, S] = causal()\noutput " + LETTERS + " / T", "reads the size T"),
        ("L [T, S] = causal()\noutput " + LETTERS + " + sum(V over S)", "sum over S"),
        ("input A [S]\nL [T, S] = semiseparable(A)\noutput " + LETTERS, "may be negative"),
    ],
)
def test_layers_without_a_state_say_why(text: str, says: str) -> None:
    op = contractor.compile(PLAIN + text + "\n")
    with pytest.raises(ArgumentError, match=says):
        op(**operands(op, 1, 9), return_state=True)
