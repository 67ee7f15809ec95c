"""What a layer is given: strides, incoming gradients, who wants a gradient, empty axes, dtypes of lower precision."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from contractor.pipeline import Options, operator, program_of
from contractor.program.program import Program
from contractor.program.reference import reference
from contractor.schedules.register import SCHEDULES
from tests.schedules.layers import CHUNK, check, difference

GATED = """layer gated
input Q [T, N]
input K [S, N]
input V [S, P]
input g [S]
L [T, S] = semiseparable(log = g)
Y [T, P] = contract(TN, SN, SP, TS -> TP)(Q, K, V, L)
output Y
"""
DIAGONAL = GATED.replace("g [S]", "g [S, N]").replace("L [T, S]", "L [T, S, N]").replace("TS ->", "TSN ->")
DELTA = """layer delta
input Q [T, N]
input K [S, M]
input V [S, P]
input beta [S]
L [T, S, N, M] = delta(beta, K[S, N])
Y [T, P] = contract(TN, SM, SP, TSNM -> TP)(Q, beta * K, V, L)
output Y
"""
QUOTIENT = """layer quotient
input Q [T, N]
input K [S, N]
input V [S, P]
Y [T, P] = contract(TN, SN, SP, TS -> TP)(softplus(Q), softplus(K), V, causal())
Z [T] = contract(TN, SN, TS -> T)(softplus(Q), softplus(K), causal())
output Y / Z
"""
LAYERS = {"gated": GATED, "diagonal": DIAGONAL, "delta": DELTA, "quotient": QUOTIENT}


def operands(program: Program, length: int, batch: int = 2, sizes: tuple[int, int] = (4, 3), seed: int = 0) -> dict[str, Tensor]:
    """Operands of moderate size in float64: keys of length 1, logs of gates not far below 0."""
    generator = torch.Generator().manual_seed(seed)
    known = {"N": sizes[0], "M": sizes[0], "P": sizes[1]}
    found: dict[str, Tensor] = {}
    for one in program.operands:
        shape = (batch, length, 2, *(known[axis] for axis in one.axes[1:]))
        tensor = torch.randn(shape, dtype=torch.float64, generator=generator)
        found[one.name] = {"g": -tensor.abs() / 8, "beta": tensor.sigmoid()}.get(one.name, tensor)
    found["K"] = torch.nn.functional.normalize(found["K"], dim=-1)
    return found


def accepting(text: str) -> list[str]:
    """The schedules that accept a layer."""
    program = program_of(text)
    _, refusals = check(text, operands(program, 2))
    return [schedule for schedule in SCHEDULES if schedule not in refusals]


CASES = [(name, schedule) for name, text in LAYERS.items() for schedule in accepting(text)]
cases = pytest.mark.parametrize(("name", "schedule"), CASES)


def gradients(output: Tensor, tensors: dict[str, Tensor], along: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output, list(tensors.values()), along.to(output.dtype), allow_unused=True, materialize_grads=True)


def strided(tensor: Tensor, kind: str) -> Tensor:
    """The same numbers in another place: a slice of something larger, transposed in memory, or one batch element expanded."""
    match kind:
        case "sliced":
            return torch.cat((torch.zeros_like(tensor), tensor, tensor), -1)[..., tensor.shape[-1] : 2 * tensor.shape[-1]]
        case "every second":
            return torch.stack((tensor, torch.zeros_like(tensor)), 2).flatten(1, 2)[:, ::2]
        case "transposed":
            return tensor.transpose(1, -1).contiguous().transpose(1, -1)
        case _:
            return tensor[:1].expand_as(tensor)


@cases
@pytest.mark.parametrize("kind", ["sliced", "every second", "transposed", "expanded"])
def test_strides(name: str, schedule: str, kind: str) -> None:
    """Operands of any strides give what their contiguous copies give, with incoming gradients of any strides."""
    program = program_of(LAYERS[name])
    run = operator(program, Options(schedule=schedule))
    given = {key: strided(tensor, kind).detach().requires_grad_() for key, tensor in operands(program, CHUNK + 2).items()}
    plain = {key: tensor.detach().contiguous().requires_grad_() for key, tensor in given.items()}
    output, other = run(**given), run(**plain)
    assert torch.equal(output, other)
    for along in (torch.ones(()).expand_as(output), strided(torch.randn_like(output), kind)):
        found = torch.autograd.grad(output, list(given.values()), along, retain_graph=True)
        wanted = torch.autograd.grad(other, list(plain.values()), along.contiguous(), retain_graph=True)
        assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))


@cases
def test_every_subset_of_gradients(name: str, schedule: str) -> None:
    """Whoever wants a gradient gets the same one, whoever else wants one; without any the output wants none."""
    program = program_of(LAYERS[name])
    run = operator(program, Options(schedule=schedule))
    tensors = operands(program, 9)
    along = torch.randn(2, 9, 2, 3, dtype=torch.float64)
    leaves = {key: tensor.clone().requires_grad_() for key, tensor in tensors.items()}
    whole = dict(zip(leaves, gradients(run(**leaves), leaves, along), strict=True))
    for count in range(len(tensors) + 1):
        for chosen in itertools.combinations(tensors, count):
            given = {key: tensor.clone().requires_grad_(key in chosen) for key, tensor in tensors.items()}
            output = run(**given)
            assert output.requires_grad == bool(chosen)
            wanted = {key: given[key] for key in chosen}
            for key, found in zip(chosen, gradients(output, wanted, along) if chosen else (), strict=True):
                assert not difference(found, whole[key], 1e-12), key


@cases
def test_empty_and_single_axes(name: str, schedule: str) -> None:
    program = program_of(LAYERS[name])
    for length, batch, sizes in ((0, 2, (4, 3)), (5, 0, (4, 3)), (5, 2, (1, 1)), (1, 1, (1, 3)), (CHUNK + 1, 1, (5, 1))):
        given = {key: tensor.requires_grad_() for key, tensor in operands(program, length, batch, sizes).items()}
        output = operator(program, Options(schedule=schedule))(**given)
        (wanted,) = reference(program, given)
        along = torch.randn_like(wanted)
        assert not difference(output, wanted, 1e-11)
        for found, other in zip(gradients(output, given, along), gradients(wanted, given, along), strict=True):
            assert not difference(found, other, 1e-10)


@cases
@pytest.mark.parametrize(("dtype", "forward", "backward"), [(torch.float32, 1e-5, 1e-4), (torch.bfloat16, 5e-3, 1e-2)])
def test_lower_precision(name: str, schedule: str, dtype: torch.dtype, forward: float, backward: float) -> None:
    """Against the oracle on the very same rounded numbers; scalar gates in float32, as layers have them. A quotient's gradient in 16 bits
    is what is left of two that nearly cancel: it is held to the error of the same formula in plain torch
    and a quarter more, if that is the larger."""
    program = program_of(LAYERS[name])
    length = 70 if name == "delta" else 150
    operand_of = operands(program, length, 1, (32, 24))
    rounded = {key: tensor.to(torch.float32 if tensor.dim() == 3 else dtype) for key, tensor in operand_of.items()}
    given = {key: tensor.requires_grad_() for key, tensor in rounded.items()}
    exact = {key: tensor.detach().double().requires_grad_() for key, tensor in rounded.items()}
    output = operator(program, Options(schedule=schedule))(**given)
    (wanted,) = reference(program, exact)
    along = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert output.dtype == dtype
    assert not difference(output.double(), wanted, forward)
    plain = gradients(quotient(**given), given, along) if name == "quotient" else [None] * len(given)
    for key, found, other, rough in zip(given, gradients(output, given, along), gradients(wanted, exact, along), plain, strict=True):
        allowed = backward if rough is None else max(backward, 1.25 * float((rough.double() - other).norm() / other.norm()))
        assert not (problem := difference(found.double(), other, allowed)), f"gradient of {key} {problem}"


def quotient(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """The quotient layer as torch evaluates it in the operands' dtype: scores, then their products and sums."""
    query, key = (torch.nn.functional.softplus(one).transpose(1, 2) for one in (Q, K))
    scores = (query @ key.mT).tril()
    return ((scores @ V.transpose(1, 2)) / scores.sum(-1, keepdim=True)).transpose(1, 2)


@pytest.mark.parametrize("schedule", accepting(GATED))
def test_gradcheck(schedule: str) -> None:
    program = program_of(GATED)
    run = operator(program, Options(schedule=schedule))
    names, tensors = zip(*operands(program, 5, 1, (2, 2)).items(), strict=True)
    given = tuple(tensor.requires_grad_() for tensor in tensors)
    assert torch.autograd.gradcheck(lambda *one: run(**dict(zip(names, one, strict=True))), given)
