"""Golden stories: each example's layer through all its stages, one under the other, so that a diff shows what a change does to it.

`pytest tests/stories --update-stories` rewrites them. They are few and short on purpose; single facts are tested where they belong.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contractor.emit.demand import MEASURED
from contractor.pipeline import plan, program_of, stages
from contractor.plan.sizes import problem_from_sizes

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
MOST_STORIES, MOST_LINES = 6, 1500
SHOWN = ("spec", "program", "plan", "source")
SIZES: dict[str, dict[str, int]] = {
    "retention": {"B": 4, "T": 4096, "H": 8, "N": 256, "P": 512},
    "linear_attention": {"B": 4, "T": 8192, "H": 16, "N": 128, "P": 128},
    "mamba2": {"B": 8, "T": 2048, "H": 80, "N": 128, "P": 64},
    "gla": {"B": 4, "T": 2048, "H": 4, "N": 256, "P": 512},
    "gated_delta": {"B": 2, "T": 2048, "H": 16, "N": 128, "P": 128},
    "s4d": {"B": 8, "T": 1024, "H": 1, "N": 32, "P": 256},
}
HEADS = {"mamba2": {"C": 1, "B": 1}}


def story(name: str) -> str:
    """All stages of an example on an H200; of the file without its head, which repeats them, and the function that all files share."""
    problem = problem_from_sizes(program_of(EXAMPLES / f"{name}.ctr"), heads=HEADS.get(name), **SIZES[name])
    shown = dict(stages(plan(problem, "h200")))
    shown["source"] = shown["source"][shown["source"].index("import torch") :].replace(MEASURED + "\n\n", "")
    return "\n".join(f"── {stage} ──\n\n{shown[stage].rstrip()}\n" for stage in SHOWN)


@pytest.mark.parametrize("name", SIZES)
def test_story(name: str, request: pytest.FixtureRequest) -> None:
    path = HERE / f"{name}.txt"
    if request.config.getoption("--update-stories"):
        assert not os.environ.get("CI"), "stories are rewritten by people, who read the difference"
        path.write_text(story(name), encoding="utf-8")
    assert story(name) == path.read_text(encoding="utf-8")


def test_stories_stay_few_and_short() -> None:
    stories = sorted(HERE.glob("*.txt"))
    assert {path.stem for path in stories} == set(SIZES) == {path.stem for path in EXAMPLES.glob("*.ctr")}
    assert len(stories) <= MOST_STORIES
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in stories) <= MOST_LINES
