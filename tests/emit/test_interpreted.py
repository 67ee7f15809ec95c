"""The Triton text in Triton's interpreter, in float32, against the torch text in float64."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = (
    "one_pass y",
    "described y",
    "gated y",
    "packed y",
    "packed sums",
    "transition end",
    "window y",
    "gathered y",
    "running 1 y",
    "running 37 y",
)


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    """Relative errors by case; a process of its own, as the interpreter is chosen when Triton is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", str(ROOT / "tests" / "emit" / "interpreted.py")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in run.stdout.splitlines()}


@pytest.mark.parametrize("case", CASES)
def test_float32(case: str, errors: dict[str, float]) -> None:
    assert errors[case] <= 1e-6


def test_every_case_ran(errors: dict[str, float]) -> None:
    assert set(errors) == set(CASES)
