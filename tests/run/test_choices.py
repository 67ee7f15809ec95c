"""Choices on the disk: found again by place and kind, never by length; what is damaged, hostile or cannot be written does no harm."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from contractor.plan.machine import MACHINES
from contractor.plan.plan import Offer, Tiling
from contractor.run import build, choices
from contractor.run.execute import tiling_of
from contractor.schedules.parts.form import Task
from contractor.schedules.register import SCHEDULES
from contractor.schedules.schedule import best
from tests.run.offered import offer_more
from tests.schedules.forms import task

torch.set_num_threads(1)
H200, CHUNKED = MACHINES["h200"], SCHEDULES["chunked"]


def gated(length: int = 8192, batch: int = 1, heads: int = 4, widths: tuple[int, int] = (128, 128), **grouped: int) -> Task:
    return task("gate", (batch, length, heads, *widths), **grouped)


def planned(wanted: Task) -> Tiling:
    answer = best(CHUNKED, wanted, H200)
    assert isinstance(answer, Offer)
    return answer.tiling


def another(wanted: Task) -> Tiling:
    """A tiling that the cost model does not choose."""
    return next(one for one in CHUNKED.tilings(wanted, H200) if choices.stored_part(one) != choices.stored_part(planned(wanted)))


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv(build.VARIABLE, str(tmp_path / "cache"))
    offer_more(monkeypatch, "chunked")
    forget()
    yield tmp_path / "cache"
    forget()


def forget() -> None:
    """What a new process knows."""
    build.folder.cache_clear()
    choices.known.cache_clear()
    best.cache_clear()


def kept(wanted: Task | None = None) -> tuple[Task, Tiling, Path]:
    """A task, its choice, and the file of that."""
    wanted = wanted or gated()
    key = choices.key_of(CHUNKED, wanted, H200)
    chosen = another(wanted)
    assert choices.keep(key, chosen)
    home = build.folder()
    assert home is not None
    return wanted, chosen, home / choices.name_of(key)


def found(wanted: Task) -> Tiling | None:
    return choices.preferred(CHUNKED, wanted, H200)


# ---- kept and found -------------------------------------------------------------------------------------------------------------


def test_without_a_choice_no_key_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "key_of", None)
    assert found(gated()) is None
    assert tiling_of("chunked", gated(), H200) == planned(gated())


def test_a_choice_is_seen_at_once_and_by_the_next_process() -> None:
    wanted, chosen, path = kept()
    for _ in range(2):
        taken = tiling_of("chunked", wanted, H200)
        assert choices.stored_part(taken) == choices.stored_part(chosen) and taken != planned(wanted)
        forget()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_the_folder_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept()
    forget()
    assert found(gated()) is not None
    monkeypatch.setattr(choices, "read", None)
    assert found(gated()) is not None


@pytest.mark.parametrize("length", [64, 1000, 4096, 65536])
def test_segments_are_the_cost_models_at_the_tasks_own_length(length: int) -> None:
    _, chosen, _ = kept()
    wanted = gated(length)
    taken = found(wanted)
    assert taken is not None and choices.stored_part(taken) == choices.stored_part(chosen)
    agreeing = [one for one in CHUNKED.tilings(wanted, H200) if choices.stored_part(one) == choices.stored_part(chosen)]
    assert taken in agreeing
    assert ("SEGMENTS" in dict(taken.constants)) == (length > 64)


def test_a_kind_is_not_its_length() -> None:
    key = choices.key_of(CHUNKED, gated(), H200)
    assert key == choices.key_of(CHUNKED, gated(100), H200) == choices.key_of(CHUNKED, gated(batch=4, heads=1), H200)
    assert key == choices.key_of(CHUNKED, gated(heads=5), H200)
    assert not {"T", "B", "H"} & set(json.loads(key))


OTHERS: dict[str, Task] = {
    "widths": gated(widths=(128, 64)),
    "more programs": gated(heads=8),
    "grouped": gated(Q=2, K=2),
    "another dtype": task("gate", (1, 8192, 4, 128, 128), "float16"),
    "careful": replace(gated(), careful=True),
    "another form": task("fixed", (1, 8192, 4, 128, 128)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_choice_is_for_its_kind(name: str) -> None:
    kept()
    assert found(OTHERS[name]) is None


@pytest.mark.parametrize("part", ["gpu", "driver", "torch", "cuda", "triton", "ptxas", "contractor"])
def test_a_choice_is_for_its_place(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept()
    here = choices.place()
    assert part in here
    monkeypatch.setattr(choices, "place", lambda: here | {part: "another"})
    assert found(gated()) is None


def test_a_choice_is_for_its_machine_and_schedule() -> None:
    wanted, _, _ = kept()
    assert choices.preferred(CHUNKED, wanted, MACHINES["h100"]) is None
    assert choices.preferred(SCHEDULES["quadratic"], wanted, H200) is None


# ---- files that are no choices --------------------------------------------------------------------------------------------------


def changed(text: str, **parts: Any) -> str:
    """The file with parts of its choice changed."""
    whole = json.loads(text)
    return json.dumps({**whole, "choice": {**whole["choice"], **parts}})


DAMAGED: dict[str, Callable[[str], str | bytes]] = {
    "empty": lambda _: "",
    "cut short": lambda text: text[: len(text) // 2],
    "no text": lambda _: b"\xff\xfe\x00",
    "a list": lambda text: f"[{text}]",
    "a number": lambda _: "7",
    "nothing": lambda _: "null",
    "deep": lambda _: "[" * 100000,
    "long": lambda text: text + " " * choices.LARGEST,
    "a long number": lambda text: text.replace('"warps": 4', f'"warps": {"9" * 9999}'),
    "no choice": lambda text: json.dumps({"key": json.loads(text)["key"]}),
    "a choice of text": lambda text: json.dumps({**json.loads(text), "choice": "chunked"}),
    "constants of text": lambda text: changed(text, constants="CHUNK"),
    "constants in a list": lambda text: changed(text, constants=[["CHUNK", 64]]),
    "a block of text": lambda text: changed(text, constants={"CHUNK": "64"}),
    "a block of nothing": lambda text: changed(text, constants={"CHUNK": None}),
    "warps of truth": lambda text: changed(text, warps=True),
    "warps in halves": lambda text: changed(text, warps=4.0),
    "via a number": lambda text: changed(text, via=1),
    "via a list": lambda text: changed(text, via=[]),
    "another key": lambda text: json.dumps({**json.loads(text), "key": {"schedule": "chunked"}}),
    "a key of text": lambda text: json.dumps({**json.loads(text), "key": "chunked"}),
    "not offered: warps": lambda text: changed(text, warps=64),
    "not offered: stages": lambda text: changed(text, stages=0),
    "not offered: blocks": lambda text: changed(text, constants={"CHUNK": 16, "BLOCK_N": 128, "BLOCK_P": 16}),
    "not offered: no blocks": lambda text: changed(text, constants={}),
    "not offered: via": lambda text: changed(text, via="__import__('os')"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_passed_over(name: str) -> None:
    wanted, chosen, path = kept()
    good = path.read_text()
    made = DAMAGED[name](good)
    path.write_bytes(made if isinstance(made, bytes) else made.encode())
    forget()
    assert tiling_of("chunked", wanted, H200) == planned(wanted)
    assert choices.keep(choices.key_of(CHUNKED, wanted, H200), chosen)
    forget()
    assert path.read_text() == good and found(wanted) is not None


def test_another_files_contents_are_passed_over() -> None:
    wanted, _, path = kept()
    path.rename(path.with_name(f"{choices.PREFIX}{'0' * 32}.json"))
    forget()
    assert found(wanted) is None


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "of others", "unreadable"])
def test_what_is_no_file_of_ones_own_is_passed_over(kind: str) -> None:
    wanted, _, path = kept()
    match kind:
        case "link":
            path.rename(path.parent.parent / "elsewhere")
            path.symlink_to(path.parent.parent / "elsewhere")
        case "folder":
            path.unlink()
            path.mkdir()
        case "pipe":
            path.unlink()
            os.mkfifo(path)
        case "of others":
            path.chmod(0o666)
        case _:
            path.unlink()
            path.symlink_to(path.name)
    forget()
    assert found(wanted) is None


def test_a_folder_that_others_may_write_is_not_read() -> None:
    wanted, chosen, path = kept()
    path.parent.chmod(0o777)
    forget()
    assert found(wanted) is None
    assert not choices.keep(choices.key_of(CHUNKED, wanted, H200), chosen)


def test_what_a_killed_process_leaves_is_no_choice() -> None:
    wanted, _, path = kept()
    path.rename(path.with_suffix(".draft"))
    forget()
    assert found(wanted) is None


# ---- folders that cannot be written ---------------------------------------------------------------------------------------------


def test_without_a_folder_a_choice_lives_as_long_as_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.VARIABLE, os.devnull)
    forget()
    wanted = gated()
    assert not choices.keep(choices.key_of(CHUNKED, wanted, H200), another(wanted))
    assert found(wanted) is not None
    forget()
    assert found(wanted) is None


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    wanted, chosen, path = kept()
    before = path.read_text()
    monkeypatch.setattr(os, "replace", full)
    other = next(one for one in CHUNKED.tilings(wanted, H200) if choices.stored_part(one) != choices.stored_part(chosen))
    assert not choices.keep(choices.key_of(CHUNKED, wanted, H200), other)
    assert path.read_text() == before and [one.name for one in home.iterdir()] == [path.name]


def test_a_folder_that_is_taken_away(home: Path) -> None:
    wanted, chosen, path = kept()
    path.unlink()
    home.rmdir()
    assert not choices.keep(choices.key_of(CHUNKED, wanted, H200), chosen)
    forget()
    assert found(wanted) is None


def test_writers_and_readers_at_once() -> None:
    """A reader sees one whole choice or the other."""
    wanted, _, path = kept()
    key = choices.key_of(CHUNKED, wanted, H200)
    both = list(dict.fromkeys(map(choices.stored_part, CHUNKED.tilings(wanted, H200))))[:2]

    def write(number: int) -> bool:
        return choices.keep(key, both[number % 2])

    def read(_: int) -> tuple[str, Tiling] | None:
        return choices.read(path)

    with ThreadPoolExecutor(8) as pool:
        written, seen = pool.map(write, range(200)), pool.map(read, range(200))
        assert all(written)
        assert all(one is not None and one[0] == key and one[1] in (*both, choices.stored_part(another(wanted))) for one in seen)
