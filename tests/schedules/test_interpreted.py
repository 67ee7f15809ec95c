"""The schedules' Triton text in Triton's interpreter, in float32, against their torch text in float64."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from contractor.schedules.register import SCHEDULES
from tests.schedules.forms import MASKS

ROOT = Path(__file__).parents[2]
EXACT = 1e-6
CLAMPED = 2e-5  # closed gates are summed as large numbers beside operands of 16 bits


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    """Relative errors by case; a process of its own, as the interpreter is chosen when Triton is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", str(ROOT / "tests" / "schedules" / "interpreted.py")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return {line.rpartition(": ")[0]: float(line.rpartition(": ")[2]) for line in run.stdout.splitlines()}


@pytest.mark.parametrize("schedule", ["quadratic", "recurrent", "chunked"])
def test_float32(schedule: str, errors: dict[str, float]) -> None:
    """Not a number is no agreement."""
    mine = {case: error for case, error in errors.items() if case.startswith(f"{schedule} ")}
    wrong = {case: error for case, error in mine.items() if not error <= (CLAMPED if "bfloat16" in case else EXACT)}
    assert len(mine) >= 30 and not wrong, wrong


def test_every_mask_was_run(errors: dict[str, float]) -> None:
    """By one schedule at least; those that carry a state in both directions."""
    assert all(any(f" {mask} T=" in case for case in errors) for mask in MASKS)
    assert all(any(f"{name} " in case and " key " in case for case in errors) for name in SCHEDULES if name != "entrywise")
