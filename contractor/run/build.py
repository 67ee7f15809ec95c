"""Printed text → functions. What is run is always the text just printed, from memory: nothing is read back from a disk and run.

The text is also left in the user's cache folder, named by its digest, so that tracebacks, debuggers and profilers can show it. A file
there is written whole and renamed into place, in a folder that only its owner may write; where that cannot be, none is written.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import stat
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

import platformdirs

VARIABLE = "CONTRACTOR_CACHE"


def digest(text: str) -> str:
    """A name for a text: the same text, the same name."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def module(text: str) -> ModuleType:
    """The module of a printed text. Triton reads the source of its functions through `linecache`, which is given the text itself."""
    name = f"contractor_{digest(text)}"
    path = str(left_on_disk(text, name) or f"{name}.py")
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)  # without a time it is never read again
    built = ModuleType(name)
    built.__file__ = path
    sys.modules[name] = built
    exec(compile(text, path, "exec"), built.__dict__)
    return built


def left_on_disk(text: str, name: str) -> Path | None:
    """The file that holds exactly this text; None where it cannot be written."""
    home = folder()
    if home is None:
        return None
    path = home / f"{name}.py"
    try:
        if not (owned(path) and path.read_bytes() == text.encode()):
            replace(path, text)
    except OSError:  # a full disk, a folder taken away
        return None
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
def folder() -> Path | None:
    """Where printed text is left: $CONTRACTOR_CACHE, else the user's cache folder. None where nobody or somebody else may write."""
    wanted = Path(os.environ.get(VARIABLE) or platformdirs.user_cache_path("contractor"))
    try:
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        return wanted if private(wanted.stat()) and os.access(wanted, os.W_OK) else None
    except OSError:
        return None


def owned(path: Path) -> bool:
    """True if the file is there, a plain file of this user's that nobody else may write."""
    try:
        return stat.S_ISREG(path.lstat().st_mode) and private(path.lstat())
    except OSError:
        return False


def private(status: os.stat_result) -> bool:
    """True if only its owner, who is this user, may write it. Where there are no such owners the system's own protection holds."""
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
