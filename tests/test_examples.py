"""Every example runs by itself, on a CPU, in seconds, and prints a plan."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SERVING = {"decode"}  # what is done with a layer: it has another's spec


def printed(path: Path, folder: Path) -> str:
    """What an example prints, run by itself without a GPU."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, str(path)], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    text = printed(path, tmp_path)
    assert "* " in text and "by opt_einsum" in text
    if path.stem in SERVING:
        assert "positions in the pool: [70, 3, 129]" in text and "positions in the pool: [76, 9, 135]" in text
        assert "whole = parts = step by step; a freed slot has 0 positions" in text


def test_every_layer_has_a_program() -> None:
    assert {path.stem for path in EXAMPLES} - SERVING == {path.stem for path in (ROOT / "examples").glob("*.ctr")}
    assert all(len(path.read_text(encoding="utf-8").splitlines()) <= 60 for path in EXAMPLES)
