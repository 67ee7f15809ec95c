"""What went wrong, where, and what would fit: every error a user meets is one of these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of the spec's text: offsets in characters, stop exclusive. Lines are computed for messages only."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong in a spec: what was found, the culprits, and what would fit."""

    message: str
    spans: tuple[Span, ...]
    hint: str = ""


class ContractorError(Exception):
    """The base of every error that contractor raises on purpose."""


class SpecError(ContractorError, ValueError):
    """A spec that cannot be read or understood; holds all mistakes of one stage.

    The message names file, line and column, shows each line with carets under every culprit, and says what would fit.
    """

    def __init__(self, mistakes: tuple[Mistake, ...], text: str, file: str = "<spec>") -> None:
        self.mistakes = mistakes
        self.text = text
        self.file = file
        super().__init__("\n\n".join(render(mistake, text, file) for mistake in mistakes))


class ArgumentError(ContractorError, ValueError):
    """A call whose tensors or options do not fit the layer: names the operand, the axis and both sizes."""


class RefusedError(ContractorError):
    """No order of evaluation may be used for this problem; the message holds every refusal."""


class TileError(ContractorError, TypeError):
    """A kernel that breaks a rule of the tile language: a fault of a lowering, never of a user."""


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both from 1."""
    line = text.count("\n", 0, offset) + 1
    return line, offset - (text.rfind("\n", 0, offset) + 1) + 1


def render(mistake: Mistake, text: str, file: str) -> str:
    """The mistake as a person reads it: place, message, lines with carets, hint."""
    spans = sorted(mistake.spans) or [Span(0, 0)]
    line, column = position(text, spans[0].start)
    shown = [f"{file}:{line}:{column}: {mistake.message}"]
    for number in dict.fromkeys(position(text, span.start)[0] for span in spans):
        shown += quote(text, number, spans)
    if mistake.hint:
        shown.append(mistake.hint)
    return "\n".join(shown)


WIDEST = 160  # a longer line is shown around its first culprit only


def quote(text: str, number: int, spans: list[Span]) -> list[str]:
    """One line of the text, with carets under the culprits that start in it."""
    lines = text.split("\n")
    line = lines[number - 1]
    start = sum(len(other) + 1 for other in lines[: number - 1])
    here = [span for span in spans if start <= span.start <= start + len(line)]
    left = max(0, here[0].start - start - WIDEST // 2) if here and len(line) > WIDEST else 0
    shown = line[left : left + WIDEST]
    marks = [" "] * (len(shown) + 1)
    for span in here:
        first = span.start - start - left
        last = max(first + 1, min(span.stop - start - left, len(shown)))
        marks[first:last] = "^" * len(marks[first:last])
    carets = "".join("\t" if char == "\t" else mark for char, mark in zip(shown + " ", marks, strict=False))
    return ["    " + shown, "    " + carets.rstrip()]
