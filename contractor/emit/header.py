"""The head of an emitted file: what it computes, as comments."""

from __future__ import annotations

WIDTH = 110


def header(*lines: str) -> str:
    """Lines of text as comments; a text of several lines keeps them, an empty one makes a bare `#`. Ends with a blank line."""
    flat = [part for line in lines for part in (line.splitlines() or [""])]
    return "".join(f"# {line}".rstrip() + "\n" for line in flat) + "\n"
