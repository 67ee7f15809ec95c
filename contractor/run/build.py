"""Printed text → functions. Text is kept on disk, named by its digest, in a folder that only its owner may write.

A cached file is code: it is written whole and then renamed into place, and read back only if it is still exactly the text that was
printed, so a tampered, half-written or foreign file is replaced and never run. Where no folder can be written, one for this process is.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

VARIABLE = "CONTRACTOR_CACHE"


def digest(text: str) -> str:
    """A name for a text: the same text, the same name."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def module(text: str) -> ModuleType:
    """The module of a printed text, imported from its file (Triton reads the source of its functions from there)."""
    name = f"contractor_{digest(text)}"
    path = stored(text, name)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {path}")
    built = importlib.util.module_from_spec(spec)
    sys.modules[name] = built
    spec.loader.exec_module(built)
    return built


def stored(text: str, name: str) -> Path:
    """The file that holds exactly this text."""
    path = folder() / f"{name}.py"
    if not owned(path) or path.read_bytes() != text.encode():
        replace(path, text)
    return path


def replace(path: Path, text: str) -> None:
    """Writes the file whole, or not at all."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".draft")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        os.replace(draft, path)
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise


@cache
def folder() -> Path:
    """Where printed text is kept: $CONTRACTOR_CACHE, else the user's cache folder, else a folder of this process."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    wanted = Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else home / "contractor"
    try:
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe, name = tempfile.mkstemp(dir=wanted)
        os.close(probe)
        Path(name).unlink()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="contractor-"))
    return wanted if private(wanted.stat()) else Path(tempfile.mkdtemp(prefix="contractor-"))


def owned(path: Path) -> bool:
    """True if the file is there, a plain file of this user's that nobody else may write."""
    try:
        return stat.S_ISREG(path.lstat().st_mode) and private(path.lstat())
    except OSError:
        return False


def private(status: os.stat_result) -> bool:
    """True if only its owner, who is this user, may write it."""
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
