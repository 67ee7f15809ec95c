"""What the README shows is what happens: the spec is the example's, the plan is the one printed, the marked command runs pytest."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import contractor

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def blocks() -> list[str]:
    """The fenced blocks, in order."""
    return re.findall(r"^```\w*\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_spec_is_the_example() -> None:
    assert contractor.compile(blocks()[0]) == contractor.compile(ROOT / "examples" / "retention.ctr")


def test_the_plan_is_the_one_printed(request: pytest.FixtureRequest) -> None:
    """`--update-stories` rewrites it."""
    shown = next(block for block in blocks() if block.startswith("retention  B="))
    found = f"{contractor.compile(blocks()[0]).plan(B=4, T=4096, H=32, N=128, P=128, machine='h200')}\n"
    if request.config.getoption("--update-stories"):
        assert not os.environ.get("CI"), "the README is rewritten by people, who read the difference"
        README.write_text(README.read_text(encoding="utf-8").replace(shown, found), encoding="utf-8")
        return
    assert shown == found


def test_one_command_is_marked_as_the_tests() -> None:
    (command,) = re.findall(r"^<!-- test -->\n```\n(.*)\n```$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert command.startswith("pip install ") and "&& pytest" in command
