"""Pools of states: slots, updates in place, and the states after given positions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import contractor
from contractor import ArgumentError

torch.set_num_threads(1)
TEXT = """layer gated
input Q [T, N]
input K [S, N]
input V [S, P]
input G [S]
param A [] in [0.1, 1]
Y [T, P] = contract(TN, SN, SP, TS -> TP)(Q, K, V, semiseparable(log = G) * decay(A))
output Y * (1 + pos(T))
"""
H, N, P = 4, 5, 3


def operands(length: int, batch: int = 3, seed: int = 0) -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=made, dtype=torch.float64)

    keys = {"Q": normal(batch, length, H, N), "K": normal(batch, length, 2, N), "V": normal(batch, length, H, P)}
    return {**keys, "G": -normal(batch, length, H).abs(), "A": normal(H).sigmoid() * 0.5 + 0.5}


def at(given: dict[str, torch.Tensor], position: int) -> dict[str, torch.Tensor]:
    """One position."""
    return {name: one if name == "A" else one[:, position] for name, one in given.items()}


@pytest.mark.parametrize("schedule", ["chunked", "recurrent"])
def test_slots_are_updated_in_place(schedule: str) -> None:
    """Prefill and steps through slots are what states of one's own give; other slots stay as they are; -1 leaves nothing."""
    op = contractor.compile(TEXT, schedule=schedule)
    pool, slots = op.pool(6, dtype=torch.float64, H=H, N=N, P=P), torch.tensor([4, -1, 0])
    given = operands(70)
    found, same = op(**given, initial_state=pool, slots=slots, return_state=True)
    wanted, state = op(**given, return_state=True)
    assert same is pool
    torch.testing.assert_close(found, wanted)
    for place in range(2):
        more = at(operands(2, seed=1), place)
        found, _ = op.step(pool, **more, slots=slots.int())
        wanted, state = op.step(state, **more)
        torch.testing.assert_close(found[[0, 2]], wanted[[0, 2]])
    torch.testing.assert_close(pool.tensors["Y"][[4, 0]], state.tensors["Y"][[0, 2]])
    assert not pool.tensors["Y"][[1, 2, 3, 5]].any() and pool.positions.tolist() == [72, 0, 0, 0, 72, 0]
    pool.clear([4])
    assert pool.positions.tolist() == [72, 0, 0, 0, 0, 0] and not pool.tensors["Y"][4].any()


def test_packed_prompts_go_into_slots() -> None:
    op, given = contractor.compile(TEXT), operands(70, batch=1)
    bounds = torch.tensor([0, 30, 30, 70])
    pool = op.pool(4, dtype=torch.float64, H=H, N=N, P=P)
    found, _ = op(**given, initial_state=pool, slots=torch.tensor([3, 1, 2]), cu_seqlens=bounds, return_state=True)
    wanted, state = op(**given, cu_seqlens=bounds, return_state=True)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(pool.tensors["Y"][[3, 1, 2]], state.tensors["Y"])
    assert pool.positions.tolist() == [0, 0, 40, 30]


def test_half_the_memory() -> None:
    """A pool in bfloat16 is computed with in float32."""
    op = contractor.compile(TEXT)
    given = {name: one.float() for name, one in operands(9).items()}
    pool, slots = op.pool(3, dtype=torch.bfloat16, H=H, N=N, P=P), torch.arange(3)
    op(**given, initial_state=pool, slots=slots, return_state=True)
    _, state = op(**given, return_state=True)
    assert pool.tensors["Y"].dtype == torch.bfloat16
    torch.testing.assert_close(pool.tensors["Y"].float(), state.tensors["Y"], rtol=8e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"initial_state": None}, "slots are of a pool of states: give it as initial_state"),
        ({"slots": torch.tensor([0.0, 1.0, 2.0])}, "slots must be a tensor of int32 or int64"),
        ({"slots": [0, 1, 2]}, "slots must be a tensor of int32 or int64"),
        ({"initial_state": torch.zeros(6, H, N, P)}, "slots are of a pool"),
        ({"slots": torch.tensor([0, 1])}, "slots has 2 indices, and there are 3 sequences"),
        ({"slots": torch.tensor([0, 1, 2, 3])}, "slots has 4 indices, and there are 3 sequences"),
        ({"slots": torch.tensor([0, 6, -1])}, "slots has 6, and the pool has 6 slots"),
        ({"slots": torch.tensor([-1, 2, 2])}, "slots has 2 twice"),
    ],
)
def test_what_is_no_pool(changed: dict[str, Any], says: str) -> None:
    op = contractor.compile(TEXT)
    beside = {"initial_state": op.pool(6, dtype=torch.float64, H=H, N=N, P=P), "slots": torch.arange(3), **changed}
    with pytest.raises(ArgumentError, match=says):
        op(**operands(3), **beside, return_state=True)


def test_states_after_given_positions() -> None:
    """For prefix caches and going back: from each of them the rest comes out as in the whole."""
    op, given = contractor.compile(TEXT), operands(70)
    whole, last = op(**given, return_state=True)
    found, states = op(**given, return_state=[0, 10, 64, 70])
    torch.testing.assert_close(found, whole)
    assert [one.positions.tolist() for one in states] == [[end] * 3 for end in (0, 10, 64, 70)]
    torch.testing.assert_close(states[-1].tensors["Y"], last.tensors["Y"])
    rest = {name: one if name == "A" else one[:, 10:] for name, one in given.items()}
    torch.testing.assert_close(op(**rest, initial_state=states[1]), whole[:, 10:])
    for wrong in ([], [3, 3], [71], [-1], [1.0], 3, None, "yes"):
        with pytest.raises(ArgumentError, match="rising positions from 0 to 70"):
            op(**given, return_state=wrong)
    _, again = op(**given, return_state=torch.tensor([10, 64]))
    torch.testing.assert_close(again[1].tensors["Y"], states[2].tensors["Y"])


def test_wrong_slots_leave_the_pool_as_it_was() -> None:
    op = contractor.compile(TEXT)
    pool = op.pool(6, dtype=torch.float64, H=H, N=N, P=P)
    with pytest.raises(ArgumentError):
        op(**operands(3), initial_state=pool, slots=torch.tensor([0, 1, 2, 3]))
    assert not pool.tensors["Y"].any() and not pool.positions.any()


def test_a_pool_has_no_gradients() -> None:
    """What a backward would read of it is overwritten: better none than a part."""
    op, given = contractor.compile(TEXT), operands(3)
    pool = op.pool(3, dtype=torch.float64, H=H, N=N, P=P)
    given["Q"].requires_grad_()
    assert not op(**given, initial_state=pool, slots=torch.arange(3)).requires_grad
    assert op(**given, initial_state=pool).requires_grad


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"T": 3}, "T: a pool is for calls of any length"),
        ({"Z": 3}, "unknown size Z"),
        ({"slots": -1}, "a whole number of slots, not -1"),
        ({"dtype": torch.int32}, "states are kept in float32, bfloat16, float16, float64, not torch.int32"),
    ],
)
def test_no_such_pool(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        contractor.compile(TEXT).pool(**{"slots": 4, "H": H, "N": N, "P": P, **asked})


# ---- one state after the other --------------------------------------------------------------------------------------------------


def test_states_are_put_into_a_pool() -> None:
    """As a prefix cache does: a pool goes on from states that were kept elsewhere, in its own dtype."""
    op, given = contractor.compile(TEXT), operands(9)
    _, state = op(**given, return_state=True)
    pool = op.pool(6, dtype=torch.float32, H=H, N=N, P=P)
    pool[[4, 0, 2]] = state
    torch.testing.assert_close(pool.tensors["Y"][[4, 0, 2]], state.tensors["Y"].float())
    assert pool.positions.tolist() == [9, 0, 9, 0, 9, 0]
    pool[1:4] = state[0]
    assert pool.positions.tolist() == [9, 9, 9, 9, 9, 0] and torch.equal(pool.tensors["Y"][1], pool.tensors["Y"][3])
    for index, wrong, says in (
        ([0, 1], state, "the states of 3 sequences are put in place of 2"),
        (0, state.tensors["Y"], "must be a State of the same layer"),
        (0, op.pool(1, H=H, N=N + 1, P=P), r"\[4, 5, 3\], not \[4, 6, 3\]"),
    ):
        with pytest.raises(ArgumentError, match=says):
            pool[index] = wrong


def test_sequences_are_picked() -> None:
    state = contractor.compile(TEXT)(**operands(9), return_state=True)[1]
    for index, count in (
        (1, 1),
        (-1, 1),
        (torch.tensor(2), 1),
        (slice(1, 3), 2),
        ([2, 0], 2),
        (torch.tensor([True, False, True]), 2),
        ([], 0),
    ):
        assert state[index].tensors["Y"].shape == (count, H, N, P) and len(state[index]) == count
    for wrong in (None, "Y", True, 1.0, [0.5], [[0]], ...):
        with pytest.raises(ArgumentError, match="sequences are picked by"):
            state[wrong]
    with pytest.raises(IndexError):
        state[3]
    assert [len(one) for one in state] == [1, 1, 1] and repr(state[0]).startswith("<State of 1 sequence:")
