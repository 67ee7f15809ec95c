"""The choice among offers and refusals, and how a plan is shown."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

import pytest

from contractor.errors import ArgumentError, RefusedError
from contractor.plan.choose import choose, chosen
from contractor.plan.cost import Cost
from contractor.plan.machine import H200, Machine
from contractor.plan.plan import Offer, Plan, Refusal, Tiling
from contractor.plan.problem import Problem
from contractor.plan.show import amount, as_json, duration, show_text
from contractor.plan.sizes import problem_from_sizes
from contractor.program.expression import Contract, Leaf, Variable
from contractor.program.mixing import Core
from contractor.program.program import Definition, MaskDefinition, Program

COST = Cost(flops=17_180_000_000, tensor_flops=17_000_000_000, bytes=1_073_741_824, launches=2, steps=64, programs=128)


@dataclass(frozen=True, slots=True)
class Stub:
    """A schedule that answers what it is told to."""

    name: str
    milliseconds: float | None

    def offer(self, core: Core, problem: Problem, machine: Machine) -> Offer | Refusal:
        """The same for every core."""
        if self.milliseconds is None:
            return Refusal(self.name, f"{core.name} at T = {problem.sizes.T} is too much for [batch, n] on {machine.name}")
        return Offer(self.name, Tiling((("C", 64), ("BP", 128))), COST, self.milliseconds, "bytes")


SLOW, FAST, NEVER = Stub("slow", 2.0), Stub("fast", 0.134), Stub("never", None)


@pytest.fixture
def causal(scores: Program) -> Program:
    """The contraction of three operands under a causal mask, then the ordinary one."""
    ordinary = scores.outputs[0]
    assert isinstance(ordinary, Contract)
    mixing = replace(ordinary, mask=Leaf("causal", (), ()))
    masks = (MaskDefinition("L", (), Leaf("causal", (), ())), Definition("Y", ("T", "P"), mixing, ordinary.number))
    return replace(scores, definitions=masks, outputs=(ordinary, Variable("Y", ("T", "P"), ordinary.number)))


@pytest.fixture
def problem(causal: Program) -> Problem:
    return problem_from_sizes(causal, B=4, T=4096, H=32, N=128, P=64, heads={"K": 8})


@pytest.fixture
def plan(problem: Problem) -> Plan:
    return choose(problem, H200, (SLOW, NEVER, FAST))


def test_the_cheapest_is_chosen_and_nothing_is_lost(plan: Plan) -> None:
    (choice,) = plan.choices
    assert (choice.name, choice.says) == ("Y", "TN, SN, SP, TS -> TP")
    assert chosen(choice).schedule == "fast"
    assert [other.schedule for other in choice.others] == ["slow", "never"]
    assert [each.name for each in plan.contractions] == ["output"]


def test_a_schedule_can_be_asked_for(problem: Problem) -> None:
    assert chosen(choose(problem, H200, (SLOW, FAST), schedule="slow").choices[0]).schedule == "slow"
    with pytest.raises(ArgumentError, match="unknown schedule 'quick'; there are slow, fast"):
        choose(problem, H200, (SLOW, FAST), schedule="quick")


def test_a_refusal_gives_every_reason(problem: Problem) -> None:
    (choice,) = choose(problem, H200, (NEVER, FAST), schedule="never").choices
    assert choice.chosen is None
    with pytest.raises(RefusedError) as caught:
        chosen(choice)
    assert str(caught.value).splitlines() == [
        "Y: no order of evaluation may be used here",
        "  never: Y at T = 4096 is too much for [batch, n] on h200",
        "  possible instead: fast",
    ]


def test_the_dense_mask_is_priced(plan: Plan) -> None:
    """opt_einsum makes the [B, H, T, S] scores: 4·32·4096² elements, 2·T·S·(N + P) operations and T·S for the mask a head;
    they cross memory four times."""
    dense = plan.choices[0].dense
    assert dense is not None
    assert dense.largest == 4 * 32 * 4096**2
    assert dense.flops == 4 * 32 * 4096**2 * (2 * 128 + 2 * 64 + 1)
    assert dense.milliseconds > 4


def test_the_table(plan: Plan) -> None:
    text = show_text(plan)
    lines = text.splitlines()
    assert lines[0] == "layer  B=4 T=4096 S=4096 H=32 N=128 P=64 bfloat16, 8 heads of K  on h200"
    row = next(line for line in lines if "* fast" in line)
    assert re.split(r"  +", row.strip()) == [
        "* fast", "C=64 BP=128 warps=4 stages=2 pointer", "17.2 GFLOP", "1.07 GB", "2", "64", "0.134 ms", "bytes"
    ]  # fmt: skip
    assert "refused: Y at T = 4096 is too much for [batch, n] on h200" in text
    assert any(line.startswith("mask as a dense tensor, by opt_einsum: TN, SN, SP, TS -> TP  path (") for line in lines)
    assert "\x1b" not in text


def test_json(plan: Plan) -> None:
    found = json.loads(json.dumps(as_json(plan)))
    (mixing,) = found["mixings"]
    assert (found["machine"], found["sizes"]["T"], found["heads"]) == ("h200", 4096, {"K": 8})
    assert mixing["chosen"] == "fast"
    assert mixing["offers"][0]["tiling"] == {"C": 64, "BP": 128, "warps": 4, "stages": 2, "via": "pointer"}
    assert list(mixing["refused"]) == ["never"]
    assert found["contractions"][0]["path"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1_073_741_824, "1.07 GB"),
        (999_999, "1 MB"),
        (123_456, "123 kB"),
        (3e27, "3000 YB"),
    ],
)
def test_amounts(count: float, text: str) -> None:
    assert amount(count, "B") == text


def test_durations() -> None:
    assert [duration(each) for each in (0, 0.0004, 0.1337, 12.34, 123.4, 4567.0)] == [
        "0 ms", "0.0004 ms", "0.134 ms", "12.3 ms", "123 ms", "4.57 s"
    ]  # fmt: skip
