"""What random operands are drawn for a trial, and that a wrong number is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from contractor.pipeline import Options, operator, program_of
from contractor.plan.problem import Problem
from contractor.plan.sizes import problem_from_sizes
from contractor.run.sample import sample
from contractor.run.trial import trial

torch.set_num_threads(1)
SPECS = sorted((Path(__file__).parent.parent / "specs").glob("*.ctr"))
ALL_SIZES = {"B": 2, "T": 40, "H": 2, "N": 8, "P": 8, "F": 8, "R": 8}


def problem(spec: Path, dtype: str) -> Problem:
    program = program_of(spec)
    found = {axis: size for axis, size in ALL_SIZES.items() if axis in "BTH" or any(axis in operand.axes for operand in program.operands)}
    return problem_from_sizes(program, dtype=dtype, **found)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_random_operands_keep_every_layer_finite_and_right(spec: Path) -> None:
    posed = problem(spec, "float32")
    found = trial(operator(posed.program, Options()), posed, "cpu")
    assert found.right, found
    assert all(one.error is not None for one in (*found.outputs, *found.gradients))
    assert {one.name for one in found.gradients} == {operand.name for operand in posed.program.operands}


def test_random_operands_keep_promises_and_repeat() -> None:
    posed = problem(next(spec for spec in SPECS if spec.stem == "retention"), "bfloat16")
    first, again, other = sample(posed), sample(posed), sample(posed, seed=1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["Q"], other["Q"])
    assert first["Q"].dtype == torch.bfloat16 and first["gamma"].dtype == torch.float32
    assert first["gamma"].min() >= 0 and first["gamma"].max() <= 1


@pytest.mark.parametrize("seed", range(4))
def test_random_decays_carry_something_on(seed: int) -> None:
    """Few heads: none of them may have a decay so near 0 that its own gradient, a difference of what is carried on, says nothing."""
    program = program_of(next(spec for spec in SPECS if spec.stem == "retention"))
    posed = problem_from_sizes(program, dtype="float32", B=1, T=256, H=2, N=16, P=16)
    assert sample(posed, seed=seed)["gamma"].min() >= 0.5
    assert trial(operator(program, Options()), posed, "cpu", seed=seed).right


def test_a_wrong_number_is_found() -> None:
    posed = problem(next(spec for spec in SPECS if spec.stem == "retention"), "float64")
    op = operator(posed.program, Options())
    found = trial(lambda **operands: op(**operands) * 1.001, posed, "cpu")
    assert not found.right and not found.outputs[0].right
    lost = trial(lambda **operands: op(**operands).detach() + 0 * operands["Q"].sum(), posed, "cpu")
    assert lost.outputs[0].right and not lost.right
    assert not replace(found.outputs[0], finite=False, error=None).right
