"""Hostile texts end in a clear SpecError within bounded time and memory, and what is accepted is safe to recurse over."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

from contractor.errors import SpecError
from contractor.text.parse import DEEPEST, parse, read
from contractor.text.scan import DEEPEST_BRACKET, MOST_BYTES, MOST_MISTAKES
from contractor.text.show import show

SECONDS, MEGABYTES = 2.0, 200


def test_hostile_texts() -> None:
    script = Path(__file__).with_name("hostile.py")
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=script.parents[2], timeout=60)
    results = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(results) >= 25
    assert [result for result in results if result["seconds"] > SECONDS or result["growth"] > MEGABYTES] == []
    assert [result["name"] for result in results if not result["outcome"].startswith("<spec>:")] == []
    assert [result["name"] for result in results if len(result["outcome"]) > MOST_MISTAKES * 500] == []


def test_endless_file(tmp_path: Path) -> None:
    """No more of a file is read than a spec may have."""
    path = tmp_path / "endless.ctr"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(
        SpecError, match=f"endless.ctr:1:1: this text is too long for a spec\n(.*\n)*a spec has at most {MOST_BYTES:,} bytes"
    ):
        read(path)


@pytest.mark.parametrize("text", ["(" * DEEPEST_BRACKET + "1" + ")" * DEEPEST_BRACKET, "+".join("1" * DEEPEST), "-" * (DEEPEST - 1) + "1"])
def test_deepest(text: str) -> None:
    """The deepest that is accepted can be shown, compared, hashed, copied and printed."""
    spec = parse(f"layer a\noutput {text}")
    assert parse(show(spec)) == spec == copy.deepcopy(spec)
    assert hash(spec) == hash(parse(show(spec))) and repr(spec)


@pytest.mark.parametrize(
    "text", ["f(" * (DEEPEST_BRACKET + 1) + ")" * (DEEPEST_BRACKET + 1), "+".join("1" * (DEEPEST + 1)), "-" * DEEPEST + "1"]
)
def test_too_deep(text: str) -> None:
    with pytest.raises(SpecError, match=f"nested at most ({DEEPEST_BRACKET}|{DEEPEST}) deep"):
        parse(f"layer a\noutput {text}")
