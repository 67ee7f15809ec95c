"""Every example runs by itself, on a CPU, in seconds, and prints a plan."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "* " in done.stdout and "by opt_einsum" in done.stdout


def test_every_layer_has_a_program() -> None:
    assert {path.stem for path in EXAMPLES} == {path.stem for path in (ROOT / "examples").glob("*.ctr")}
    assert all(len(path.read_text(encoding="utf-8").splitlines()) <= 60 for path in EXAMPLES)
