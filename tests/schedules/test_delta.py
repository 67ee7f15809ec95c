"""The delta rule in chunks: DeltaNet and Gated DeltaNet, forward and backward, against the float64 reference and step by step."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from contractor.pipeline import Options, operator, program_of
from contractor.plan.machine import CPU
from contractor.program.program import Program
from contractor.program.reference import reference
from contractor.run.execute import run
from contractor.run.gradient import Arrived
from contractor.run.mix import through_text
from contractor.run.whole import whole_backward
from contractor.schedules.parts.form import Dimensions, Form, Gate, Matrix, Task
from contractor.schedules.register import SCHEDULES
from tests.schedules.layers import answered, expected, wrong

torch.set_num_threads(1)
N, P = 6, 5
LENGTHS = (0, 1, 7, 63, 64, 65, 150)
HARD = (0.0, -20.0, -1000.0, -torch.inf)
MASKS = {
    "plain": "delta(beta, K)",
    "gate before": "delta(beta, K) * semiseparable(log = G)",
    "gate after": "semiseparable(log = G) * delta(beta, K)",
    "both sides": "semiseparable(log = G) * delta(beta, K) * decay(log = g)",
    "erase apart": "semiseparable(log = G) * delta(beta, K, erase = E)",
    "key apart": "delta(beta, E) * semiseparable(log = G)",
}
Tensors = dict[str, Tensor]


def layer(mask: str, written: str = "beta * K[S, M]") -> str:
    """A delta rule layer, of the operands that it reads."""
    declared = {"E": "input E [S, N]", "G": "input G [S]", "g": "param g []"}
    more = (line for name, line in declared.items() if name in re.findall(r"\w+", mask + written))
    return (
        "\n".join(("layer delta", "input Q [T, N]", "input K [S, N]", "input V [S, P]", "input beta [S]", *more, ""))
        + f"""
L [T, S, N, M] = {mask}
Y [T, P] = contract(TN, SM, SP, TSNM -> TP)(Q, {written}, V, L)
output Y * rsqrt(N)
"""
    )


def operands(rng: random.Random, length: int, heads: int = 2, batch: int = 2, width: int = N) -> Tensors:
    """Random ones: unit keys, beta in (0, 2) or 0, weak gates and hard ones; Q and K have fewer heads now and then."""
    made = torch.Generator().manual_seed(rng.randrange(2**31))

    def normal(*shape: int) -> Tensor:
        return torch.randn(batch, length, *shape, dtype=torch.float64, generator=made)

    def unit(*shape: int) -> Tensor:
        return torch.nn.functional.normalize(normal(*shape), dim=-1)

    groups = rng.choice((1, heads))
    beta = 2 * torch.rand(batch, length, heads, dtype=torch.float64, generator=made)
    chosen = torch.randint(0, 12, (batch, length, heads), generator=made)
    log = -normal(heads).abs() * rng.choice((0.02, 0.5, 3.0))
    hard = torch.tensor((*HARD, *(1.0 for _ in range(8))), dtype=torch.float64)[chosen]
    return {
        "Q": normal(groups, width),
        "K": unit(rng.choice((1, groups)), width),
        "V": normal(heads, P),
        "E": unit(heads, width),
        "beta": torch.where(chosen == 5, 0.0, beta),
        "G": torch.where(hard == 1.0, log, hard),
        "g": torch.tensor(-0.1, dtype=torch.float64),
    }


def read_by(program: Program, tensors: Tensors) -> Tensors:
    """The operands that a layer has."""
    return {operand.name: tensors[operand.name] for operand in program.operands}


# ---- whole layers -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("length", LENGTHS)
def test_agrees_with_the_reference(mask: str, length: int) -> None:
    """Outputs and the gradient of every operand, in float64."""
    for seed in range(2):
        program = program_of(layer(MASKS[mask]))
        tensors = read_by(program, operands(random.Random(f"{seed} {mask} {length}"), length))
        oracle, along = expected(program, tensors)
        found = answered(program, tensors, along, "chunked")
        assert not found.refusal and not list(wrong(found, oracle)), (seed, found.refusal, list(wrong(found, oracle)))


@pytest.mark.parametrize("written", ["K[S, M]", "beta * E[S, M]"])
def test_what_is_written_need_not_be_what_is_erased(written: str) -> None:
    program = program_of(layer(MASKS["gate after"], written))
    tensors = read_by(program, operands(random.Random(written), 70))
    oracle, along = expected(program, tensors)
    assert not list(wrong(answered(program, tensors, along, "chunked"), oracle))


@pytest.mark.parametrize("mask", ["plain", "gate after"])
def test_float32(mask: str) -> None:
    """Within 1e-5 forward and 1e-4 backward, with unit keys."""
    program = program_of(layer(MASKS[mask]))
    tensors = {name: one.float().double() for name, one in read_by(program, operands(random.Random(mask), 200)).items()}
    oracle, along = expected(program, tensors)
    found = answered(program, {name: one.float() for name, one in tensors.items()}, along, "chunked")
    assert not list(wrong(found, oracle, 1e-5, 1e-4))


@pytest.mark.parametrize("reach", [0.02, 0.5])
def test_bfloat16(reach: float) -> None:
    """Within 5e-3 forward and 1e-2 backward, gates' gradients too, however far the past reaches; a state of usual width, beta in (0, 1)."""
    program = program_of(layer(MASKS["gate after"]))
    tensors = read_by(program, operands(random.Random(11), 300, width=64))
    tensors["beta"] = tensors["beta"] / 2
    tensors["G"] = -reach * torch.rand(tensors["G"].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(12))
    exact = {name: (one if name in ("beta", "G") else one.bfloat16()).double() for name, one in tensors.items()}
    exact |= {name: exact[name].float().double() for name in ("beta", "G")}
    along = (torch.randn(2, 300, 2, P, dtype=torch.float64, generator=torch.Generator().manual_seed(13)),)
    steps = answered(program, exact, along, "recurrent")  # the reference would form a matrix for every pair of positions
    rounded = {name: one.float() if name in ("beta", "G") else one.bfloat16() for name, one in exact.items()}
    assert not list(wrong(answered(program, rounded, along, "chunked"), steps, 5e-3, 1e-2))


@pytest.mark.parametrize("mask", ["plain", "gate after", "erase apart"])
def test_no_strength_is_no_update(mask: str) -> None:
    """Under beta = 0 nothing is erased or written: the result is exactly 0."""
    program = program_of(layer(MASKS[mask]))
    tensors = read_by(program, operands(random.Random(3), 130)) | {"beta": torch.zeros(2, 130, 2, dtype=torch.float64)}
    assert not operator(program, Options(schedule="chunked", backend="torch"))(**tensors).any()


@pytest.mark.parametrize("mask", ["plain", "gate after"])
def test_long_keys_are_as_finite_as_step_by_step(mask: str) -> None:
    """Keys that are not normalised: the state may grow without bound, and what the recurrence gives is still what comes out."""
    program = program_of(layer(MASKS[mask]))
    made = torch.Generator().manual_seed(5)
    tensors = read_by(program, operands(random.Random(4), 64))
    tensors["K"] = torch.randn(tensors["K"].shape, dtype=torch.float64, generator=made)
    tensors["beta"] = torch.sigmoid(torch.randn(tensors["beta"].shape, dtype=torch.float64, generator=made))
    wanted = reference(program, tensors)[0]
    found = operator(program, Options(schedule="chunked", backend="torch"))(**tensors)
    assert wanted.isfinite().all() and torch.linalg.norm(found - wanted) <= 1e-9 * torch.linalg.norm(wanted)


def test_the_future_does_not_change_the_past() -> None:
    """Not by one bit."""
    program = program_of(layer(MASKS["gate after"]))
    tensors = read_by(program, operands(random.Random(6), 150))
    op = operator(program, Options(schedule="chunked", backend="torch"))
    before = op(**tensors)
    for name, one in tensors.items():
        if one.dim() > 1:
            tensors[name] = torch.cat((one[:, :100], one[:, 100:].flip(1)), 1)
    assert torch.equal(op(**tensors)[:, :100], before[:, :100])


@pytest.mark.parametrize("mask", ["plain", "gate after", "erase apart"])
def test_states_are_handed_on(mask: str) -> None:
    """A sequence in parts is the whole, gradients through the states too; the step by step order goes on where chunks end."""
    program = program_of(layer(MASKS[mask]))
    tensors = {name: one.requires_grad_() for name, one in read_by(program, operands(random.Random(8), 150)).items()}
    chunked, steps = (operator(program, Options(schedule=name, backend="torch")) for name in ("chunked", "recurrent"))
    whole, _ = steps(**tensors, return_state=True)
    cut = {name: (one[:, :90], one[:, 90:]) if one.dim() > 1 else (one, one) for name, one in tensors.items()}
    first, state = chunked(**{name: one[0] for name, one in cut.items()}, return_state=True)
    second, _ = chunked(**{name: one[1] for name, one in cut.items()}, initial_state=state, return_state=True)
    joined = torch.cat((first, second), 1)
    torch.testing.assert_close(joined, whole, rtol=1e-10, atol=1e-10)
    along = torch.randn(whole.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for one, other in zip(*(torch.autograd.grad(y, list(tensors.values()), along) for y in (joined, whole)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_packed_sequences_with_empty_ones() -> None:
    """Each as if alone; gradients too."""
    program = program_of(layer(MASKS["gate after"]))
    tensors = {name: one.requires_grad_() for name, one in read_by(program, operands(random.Random(9), 200, batch=1)).items()}
    bounds = torch.tensor([0, 0, 70, 71, 71, 199, 200, 200])
    op = operator(program, Options(schedule="chunked", backend="torch"))
    together = op(**tensors, cu_seqlens=bounds)
    apart = torch.cat([op(**{name: one[:, a:b] for name, one in tensors.items()}) for a, b in pairwise(bounds)], 1)
    torch.testing.assert_close(together, apart, rtol=1e-10, atol=1e-10)
    along = torch.randn(apart.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    for one, other in zip(*(torch.autograd.grad(y, list(tensors.values()), along) for y in (together, apart)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


# ---- the backward's kernels -------------------------------------------------------------------------------------------------------

TIED = Matrix("transition", "rank_one", tied=True)
STEPS = {"plain": (TIED,), "gate": (Gate("gate"), TIED), "fixed": (TIED, Gate("gate", fixed=True))}
GROUPS = (("query", 2), ("key", 1), ("gate", 2), ("source_weight", 2))


def problem(name: str, length: int, heads: tuple[tuple[str, int], ...], **more: bool) -> tuple[Task, Tensors, Arrived]:
    """A task whose rank-one step is tied, its tensors, and gradients that arrive."""
    packed = more.get("packed", False)
    form = Form(STEPS[name], weights=(("source_weight", "source"),), grouped=tuple(one for one, _ in heads), **more)
    shape = Dimensions(1 if packed else 2, length, 4 if heads else 2, N, P, heads=heads, sequences=4 if packed else 0)
    made, count = torch.Generator().manual_seed(length), dict(heads)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, dtype=torch.float64, generator=made)

    def rows(buffer: str, *sizes: int) -> Tensor:
        return normal(shape.B, length, count.get(buffer, shape.H), *sizes)

    found = {"query": rows("query", N), "key": rows("key", N) / 2, "value": normal(shape.B, length, shape.H, P)}
    found["source_weight"] = rows("source_weight").sigmoid() * 2
    for gate in form.gates:
        log = -normal(count.get("gate", shape.H)).abs() if gate.fixed else -rows("gate").abs()
        found["gate"] = log if gate.fixed else torch.where(torch.rand(log.shape, generator=made) < 0.1, -1000.0, log)
    state = (shape.streams, shape.H, N, P)
    if form.initial:
        found["initial"] = normal(*state)
    if packed:
        found["starts"] = torch.tensor([0, length // 3, length // 3, length // 2, length])
    arrived = Arrived(normal(shape.B, length, shape.H, P), normal(*state) if form.final else None)
    return Task(form, shape, "float64", scale=0.5), found, arrived


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("heads", [(), GROUPS], ids=["", "groups"])
@pytest.mark.parametrize(
    "more",
    [{}, {"initial": True, "final": True}, {"packed": True}, {"packed": True, "initial": True, "final": True}],
    ids=["", "states", "packed", "packed states"],
)
def test_the_pass_back_is_autograd_through_the_steps(name: str, heads: tuple[tuple[str, int], ...], more: dict[str, bool]) -> None:
    for length in (1, 65, 150):
        whole, given, arrived = problem(name, length, heads, **more)
        wanted = frozenset(given) - {"starts"}
        expect = through_text(whole, given, arrived, wanted, partial(run, "recurrent", CPU, "torch"))
        found = whole_backward(whole, given, arrived, wanted, partial(run, "chunked", CPU, "torch"))
        assert found.keys() == expect.keys()
        for buffer, one in expect.items():
            torch.testing.assert_close(found[buffer], one, rtol=1e-9, atol=1e-10, msg=lambda text, at=(buffer, length): f"{at}: {text}")


def test_strong_gates_leave_their_gradients_digits() -> None:
    """Where every gate is strong their gradients are small: nothing of what does not cross them may be left in them, in float32 either."""
    whole, given, arrived = problem("gate", 150, ())
    given["gate"] = given["gate"].clamp(min=-3.0) - 12.0
    expect = through_text(whole, given, arrived, frozenset({"gate"}), partial(run, "recurrent", CPU, "torch"))["gate"]
    narrow = {name: one.float() for name, one in given.items()}
    arrived = Arrived(arrived.result.float())
    found = whole_backward(replace(whole, dtype="float32"), narrow, arrived, frozenset({"gate"}), partial(run, "chunked", CPU, "torch"))[
        "gate"
    ]
    assert torch.linalg.norm(found.double() - expect) <= 1e-4 * torch.linalg.norm(expect)


def test_who_has_a_pass_back() -> None:
    """Tied steps whose results are neither weighted nor added to; for others autograd follows the chunked text."""
    form = problem("gate", 7, ())[0].form
    chunked = SCHEDULES["chunked"]
    assert chunked.flows(form) and not chunked.flows(replace(form, skip=True))
    assert not chunked.flows(replace(form, steps=(Matrix("transition", "rank_one"),)))
