"""What is run is what was printed: whatever lies in the cache folder, and whatever cannot be written there."""

from __future__ import annotations

import inspect
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from contractor.run import build

TEXT = "def answer():\n    return 42\n"
NAME = f"contractor_{build.digest(TEXT)}"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv(build.VARIABLE, str(tmp_path / "cache"))
    build.folder.cache_clear()
    build.module.cache_clear()
    yield
    build.folder.cache_clear()
    build.module.cache_clear()


def test_the_text_lies_in_a_private_folder(tmp_path: Path) -> None:
    built = build.module(TEXT)
    path = tmp_path / "cache" / f"{NAME}.py"
    assert built.answer() == 42
    assert built.__file__ == str(path) and path.read_text() == TEXT
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not list(path.parent.glob("*.draft"))


def test_another_file_of_that_name_is_replaced_and_never_run(tmp_path: Path) -> None:
    path = tmp_path / "cache" / f"{NAME}.py"
    path.parent.mkdir(mode=0o700)
    path.write_text("raise SystemExit('run')\n")
    assert build.module(TEXT).answer() == 42
    assert path.read_text() == TEXT


def test_a_link_of_that_name_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache" / f"{NAME}.py").symlink_to(victim)
    assert build.module(TEXT).answer() == 42
    assert victim.read_text() == "mine"
    assert not (tmp_path / "cache" / f"{NAME}.py").is_symlink()


def test_a_folder_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    os.chmod(tmp_path / "cache", 0o777)
    assert build.folder() is None
    assert build.module(TEXT).answer() == 42
    assert not list((tmp_path / "cache").iterdir())


def test_a_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(build.VARIABLE, str(tmp_path / "file" / "cache"))
    assert build.folder() is None
    assert build.module(TEXT).answer() == 42


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert build.module(TEXT).answer() == 42
    assert not list((tmp_path / "cache").iterdir())


def test_the_source_is_found_with_and_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton reads the source of its functions."""
    built = build.module(TEXT)
    Path(str(built.__file__)).write_text("something else\n")
    assert inspect.getsource(built.answer) == TEXT
    build.module.cache_clear()
    build.folder.cache_clear()
    monkeypatch.setenv(build.VARIABLE, os.devnull)
    assert build.folder() is None
    assert inspect.getsource(build.module(TEXT).answer) == TEXT


def test_the_same_text_is_built_once() -> None:
    assert build.module(TEXT) is build.module(TEXT)
