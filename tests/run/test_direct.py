"""The direct route and the general one give a kernel the same tensors and the same task, and the operands the same gradients."""

from __future__ import annotations

import gc
import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import contractor
from contractor.program.mixing import Core
from contractor.run import layer
from contractor.run.layer import Call
from contractor.run.normal import Normal
from contractor.run.operator import Operator
from contractor.schedules.parts.form import Task

torch.set_num_threads(1)
Given = dict[str, Any]

INPUTS = "layer l\ninput Q [T, N]\ninput K [S, N]\ninput V [S, P]\n"
PLAIN = "output contract(TN, SN, SP, TS -> TP)(Q, K, V, L)\n"
LAYERS = {
    "causal": f"L [T, S] = causal()\n{PLAIN}",
    "shifted": f"input G [S]\nL [T, S] = semiseparable(log = G, shift = 1)\n{PLAIN}",
    "window": f"L [T, S] = window(3)\n{PLAIN}",
    "reversed": f"input G [S]\nL [T, S] = reverse(semiseparable(log = G))\n{PLAIN}",
    "flipped": f"input G [S]\nL [T, S] = flip(semiseparable(log = G))\n{PLAIN}",
    "both ways": f"input G [S]\nL [T, S] = semiseparable(log = G) + reverse(semiseparable(log = G, shift = 1))\n{PLAIN}",
    "fixed decay": f"param A [] in [0, 1]\nL [T, S] = decay(A)\n{PLAIN}",
    "decay never small": f"param A [] in [0.25, 1]\nL [T, S] = decay(A)\n{PLAIN}",
    "decay of a sign": f"param A []\nL [T, S] = decay(A)\n{PLAIN}",
    "decay by log": f"param G []\nL [T, S] = decay(log = G)\n{PLAIN}",
    "decay in the text": f"L [T, S] = decay(0.5)\n{PLAIN}",
    "decay of channels": "param A [N] in [0, 1]\nL [T, S, N] = decay(A)\noutput contract(TN, SN, SP, TSN -> TP)(Q, K, V, L)\n",
    "gate by value": f"input A [S] in [0, 1]\nL [T, S] = semiseparable(A)\n{PLAIN}",
    "gate by log": "input G [S]\nL [T, S] = semiseparable(log = G)\nY [T, P] = contract(TN, SN, SP, TS -> TP)(Q, K, V, L)\noutput Y\n",
    "gate of channels": "input G [S, N]\nL [T, S, N] = semiseparable(log = G)\noutput contract(TN, SN, SP, TSN -> TP)(Q, K, V, L)\n",
    "gate of columns": "input G [S, P]\nL [T, S, P] = semiseparable(log = G)\noutput contract(TN, SN, SP, TSP -> TP)(Q, K, V, L)\n",
    "two gates": f"param A [] in [0, 1]\ninput G [S]\nL [T, S] = decay(A) * semiseparable(log = G)\n{PLAIN}",
    "gate of a step": f"input G [S]\nparam A []\ng [S] = -softplus(G + A)\nL [T, S] = semiseparable(log = g)\n{PLAIN}",
    "window of a size": f"L [T, S] = window(N)\n{PLAIN}",
    "documents": f"input ids [S] : int\nL [T, S] = causal() * documents(ids)\n{PLAIN}",
    "normalised": "q [T, N] = elu(Q) + 1\nk [S, N] = elu(K) + 1\nL [T, S] = causal()\nZ [T] = contract(TN, SN, TS -> T)(q, k, L)\n"
    "output contract(TN, SN, SP, TS -> TP)(q, k, V, L) / Z\n",
    "written inside": "L [T, S] = causal()\noutput contract(TN, SN, SP, TS -> TP)(Q * 2, exp(K), V, L)\n",
    "scaled": "L [T, S] = causal()\nY [T, P] = contract(TN, SN, SP, TS -> TP)(Q, K, V, L)\noutput Y * rsqrt(N), Y\n",
    "summed over targets": "L [T, S] = causal()\noutput contract(TN, SN, TP, TS -> SP)(Q, K, V[T, P], L)\n",
    "summed over all": "L [T, S] = causal()\noutput contract(TN, SN, SP, TS -> P)(Q, K, V, L)\n",
    "turned axes": "L [T, S] = causal()\noutput contract(TN, SN, SP, TS -> TP)(Q, K, K[S, P], L)\n",
    "several keys": "L [T, S] = causal()\noutput contract(TN, SN, SN, SP, TS -> TP)(Q, K, K, V, L)\n",
}
DIRECT = {"causal", "shifted", "window", "reversed", "fixed decay", "decay by log", "gate by value", "gate by log", "gate of channels"}
GENERAL = {"summed over all", "flipped", "two gates", "documents", "several keys", "decay of a sign"}


@dataclass
class Record:
    """What a run gave its kernels: the task, the names, the gates by value and the tensors, each time."""

    calls: list[tuple[Task, tuple[str, ...], frozenset[str], tuple[Tensor, ...]]]

    def mixed(self, task: Task, _: Any, zeros: frozenset[str], named: dict[str, Tensor]) -> dict[str, Tensor]:
        """In the kernel's place: a result that every number of every tensor changes."""
        names, tensors = tuple(named), tuple(named.values())
        self.calls.append((task, names, zeros, tensors))
        generator = torch.Generator().manual_seed(0)
        sizes = task.dimensions
        shape = (sizes.B, sizes.T, sizes.H, sizes.P)
        total = torch.randn(shape, generator=generator, dtype=torch.float64)
        for tensor in tensors:
            weights = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            total = total + (tensor.double() * weights).nan_to_num(neginf=-50.0).sum()
        dtype = torch.float32 if sizes.P == 1 else named["value"].dtype
        return {"result": total.to(dtype)}


def made(text: str, length: int = 5, dtype: torch.dtype = torch.float32) -> Given:
    """Operands for a spec, small."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    sizes = {"T": length, "S": length, "N": 4, "P": 4}
    found: Given = {}
    for operand in contractor.compile(text).program.operands:
        axes = tuple(sizes[axis] for axis in operand.axes)
        shape = (4, *axes) if operand.role == "param" else (2, axes[0], 4, *axes[1:])
        value = normal(*shape)
        gated = {"A": value.sigmoid(), "G": -value.exp(), "ids": torch.zeros(shape, dtype=torch.int64)}
        found[operand.name] = gated.get(operand.name, value.to(dtype))
    return found


def grown(given: Given, names: Collection[str] = ("Q", "K", "V", "A", "G")) -> Given:
    """The operands as leaves of their own, those that are named with a gradient."""
    return {
        name: one.detach().clone(memory_format=torch.preserve_format).requires_grad_(name in names) if isinstance(one, Tensor) else one
        for name, one in given.items()
    }


@dataclass
class Ran:
    """One call by one of the routes: its outputs, the gradients of its operands, and how many contractions were direct."""

    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor | None, ...]
    direct: int


def ran(monkeypatch: pytest.MonkeyPatch, op: Operator, given: Given, record: Record, general: bool) -> Ran:
    """One call with nothing in the kernels' place; general: the direct route is closed."""
    found: list[Normal | None] = []
    before = Call.direct

    def direct(call: Call, core: Core) -> Normal | None:
        found.append(None if general else before(call, core))
        return found[-1]

    with monkeypatch.context() as patch:
        patch.setattr(layer, "mixed", record.mixed)
        patch.setattr(Call, "direct", direct)
        answer = op(**given)
    outputs = answer if isinstance(answer, tuple) else (answer,)
    leaves = [one for one in given.values() if isinstance(one, Tensor) and one.requires_grad]
    gradients = torch.autograd.grad([one.sum() for one in outputs], leaves, allow_unused=True) if leaves else ()
    return Ran(outputs, gradients, sum(one is not None for one in found))


def both(monkeypatch: pytest.MonkeyPatch, op: Operator, given: Given) -> tuple[int, int]:
    """Runs both routes and holds one against the other: how many contractions there were, and how many were direct."""
    records = Record([]), Record([])
    first, second = ran(monkeypatch, op, given, records[0], False), ran(monkeypatch, op, given, records[1], True)
    for one, other in zip(records[0].calls, records[1].calls, strict=True):
        assert one[:3] == other[:3]
        assert all(alike(*pair) for pair in zip(one[3], other[3], strict=True))
    assert all(torch.equal(*pair) for pair in zip(first.outputs, second.outputs, strict=True))
    assert all(same(*pair) for pair in zip(first.gradients, second.gradients, strict=True))
    return len(records[0].calls), first.direct


def alike(one: Tensor, other: Tensor) -> bool:
    """True if a kernel cannot tell two tensors apart."""
    return one.dtype == other.dtype and one.is_contiguous() and other.is_contiguous() and torch.equal(one, other)


def same(one: Tensor | None, other: Tensor | None) -> bool:
    """True for equal gradients, or none."""
    return one is other if one is None or other is None else torch.equal(one, other)


@pytest.mark.parametrize("name", LAYERS)
def test_the_routes_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = INPUTS + LAYERS[name]
    op, given = contractor.compile(text), made(text)
    calls, taken = both(monkeypatch, op, given)
    assert taken == calls or name not in DIRECT, "a plain layer goes the direct route"
    assert taken == 0 or name not in GENERAL
    assert both(monkeypatch, op, grown(given))[1] == taken
    both(monkeypatch, op, made(text, 5, torch.bfloat16))


@pytest.mark.parametrize("name", ["causal", "fixed decay", "gate by log", "gate of a step", "normalised"])
def test_odd_tensors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grouped heads, a batch of 1, nothing at all, expanded and turned memory, mixed dtypes, gradients of a few operands."""
    text = INPUTS + LAYERS[name]
    op, given = contractor.compile(text), made(text)
    grouped = {**given, "K": given["K"][:, :, :2], "V": given["V"][:, :, :1]}
    single = {**given, "K": given["K"][:1], "V": given["V"][:, :, :2]}
    expanded = {**given, "V": given["V"][:1].expand(2, -1, -1, -1), "Q": given["Q"][:, :, :1].expand(-1, -1, 4, -1)}
    turned = {**given, "Q": given["Q"].transpose(1, 2).contiguous().transpose(1, 2), "K": given["K"].mT.contiguous().mT}
    narrow = {key: one.half() if key in "QK" else one for key, one in given.items()}
    for case in (grouped, single, expanded, turned, narrow, made(text, 0)):
        both(monkeypatch, op, case)
        both(monkeypatch, op, grown(case))
    number = random.randrange(2**31)
    print(f"seed {number}")
    chosen = random.Random(number)
    for _ in range(4):
        subset = {key for key in given if chosen.random() < 0.5}
        both(monkeypatch, op, grown(given, subset))


@pytest.mark.parametrize("name", ["gate by log", "gate by value"])
def test_a_gate_as_wide_as_it_likes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = INPUTS + LAYERS[name]
    op, given = contractor.compile(text), made(text, 5, torch.bfloat16)
    gate = next(key for key in given if key in "AG")
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for heads in (4, 2, 1):
            case = {**given, gate: given[gate][:, :, :heads].to(dtype)}
            assert both(monkeypatch, op, case) == both(monkeypatch, op, grown(case)) == (1, 1)


@pytest.mark.parametrize("value", [0.5, torch.tensor(0.5), torch.tensor([0.5]), torch.tensor([0.25, 0.5]), 1])
def test_a_param_with_few_heads_or_none(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = INPUTS + LAYERS["fixed decay"]
    given = {**made(text), "A": value}
    both(monkeypatch, contractor.compile(text), given)
    both(monkeypatch, contractor.compile(text), grown(given))


@pytest.mark.parametrize("name", ["fixed decay", "decay never small", "gate by value"])
@pytest.mark.parametrize("least", [0.0, 1e-6])
def test_transitions_near_zero_take_the_general_route_where_a_gradient_is_wanted(
    name: str, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = INPUTS + LAYERS[name]
    op, given = contractor.compile(text), made(text)
    given["A"].view(-1)[1] = least
    assert both(monkeypatch, op, given) == (1, 1)
    promised = name == "decay never small"
    assert both(monkeypatch, op, grown(given)) == (1, int(promised))
    assert both(monkeypatch, op, grown(given, "QKV")) == (1, 1)


@pytest.mark.parametrize("name", ["fixed decay", "gate by log", "normalised"])
def test_through_the_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same outputs and gradients to the last bit from a kernel that is really run."""
    text = INPUTS + LAYERS[name]
    op, found = contractor.compile(text), list[tuple[Tensor | None, ...]]()
    for _ in range(2):
        given = grown(made(text))
        result = op(**given)
        result.square().sum().backward()
        found.append((result, *(one.grad for one in given.values())))
        monkeypatch.setattr(Call, "direct", lambda *_: None)  # type: ignore[reportUnknownLambdaType]
    assert all(same(*pair) for pair in zip(*found, strict=True))


def test_a_prepared_task_is_the_one_that_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call makes a task anew, so what is known of a task is found by its identity."""
    text = INPUTS + LAYERS["gate by log"]
    op, given, record = contractor.compile(text), made(text), Record([])
    monkeypatch.setattr(layer, "mixed", record.mixed)
    op(**given)
    op(**given)
    assert record.calls[0][0] is record.calls[1][0]


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("name", ["decay in the text", "window of a size"])
def test_numbers_of_the_text_go_where_the_operands_are(name: str, general: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Tensor] = []

    def mixed(_: Task, __: Any, ___: frozenset[str], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        found.extend(tensors.values())
        return {"result": torch.empty_like(tensors["value"])}

    text = INPUTS + LAYERS[name]
    monkeypatch.setattr(layer, "mixed", mixed)
    if general:
        monkeypatch.setattr(Call, "direct", lambda *_: None)  # type: ignore[reportUnknownLambdaType]
    result = contractor.compile(text)(**{key: one.to("meta") for key, one in made(text).items()})
    assert {one.device.type for one in (result, *found)} == {"meta"} and len(found) == 4


@pytest.mark.parametrize("general", [False, True])
def test_a_call_that_has_ended_holds_no_tensors(general: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = INPUTS + LAYERS["normalised"]
    op, given = contractor.compile(text), made(text)
    if general:
        monkeypatch.setattr(Call, "direct", lambda *_: None)  # type: ignore[reportUnknownLambdaType]
    op(**given)
    gc.collect()
    gc.disable()
    try:
        op(**given)
        left = [one for one in gc.get_objects() if type(one) is Call]
    finally:
        gc.enable()
    assert not left
