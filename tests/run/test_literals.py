"""Transitions that the spec writes out, or whose signs and phases move into the operands: they widen nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import contractor
from contractor.run import layer
from contractor.run.mix import mixed

TEXT = """layer literal
input Q [T, N]
input K [S, N]
input V [S, P]
input a [S]
Y [T, P] = contract(TN, SN, SP, TS -> TP)(Q, K, V, {mask})
output real(Y)
"""
MASKS = ["decay(0.9)", "decay(-0.9)", "semiseparable(a)", "semiseparable(a) * decay(0.9)", "decay(polar(0.9, 0.3))"]


def operands(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(0)
    shapes = {"Q": (1, 9, 2, 4), "K": (1, 9, 2, 4), "V": (1, 9, 2, 3)}
    gates = torch.rand(1, 9, 2, generator=made) * 2 - 1
    return {name: torch.randn(shape, generator=made).to(dtype) for name, shape in shapes.items()} | {"a": gates}


def compiled(mask: str) -> contractor.Operator:
    """A layer under a mask, without the gate that the mask does not read."""
    return contractor.compile(TEXT.format(mask=mask) if "(a)" in mask else TEXT.format(mask=mask).replace("input a [S]\n", ""))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_kernels_are_given_the_dtype_they_were_planned_for(mask: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs leave the operands in their own dtype, phases in float32 at least; results agree with the reference."""
    seen: list[torch.dtype] = []

    def watched(task: Any, evaluator: Any, zeros: Any, tensors: Any) -> Any:
        seen.extend(tensors[name].dtype for name in ("query", "key", "value"))
        return mixed(task, evaluator, zeros, tensors)

    monkeypatch.setattr(layer, "mixed", watched)
    op = compiled(mask)
    given = {name: one for name, one in operands(dtype).items() if name in op.names}
    found = op(**given)
    assert set(seen) == {dtype} or ("polar" in mask and set(seen) <= {dtype, torch.float32})
    (wanted,) = contractor.reference(op.program, given)
    assert found.dtype == dtype and (found - wanted).norm() <= (1e-6 if dtype == torch.float32 else 1e-2) * wanted.norm()


def test_a_written_decay_leaves_a_state_in_float32() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        given = {name: one for name, one in operands(dtype).items() if name != "a"}
        _, state = compiled("decay(0.9)")(**given, return_state=True)
        assert state.tensors["Y"].dtype == torch.float32
