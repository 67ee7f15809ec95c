"""Text to statements: what is too large or no text is refused, then tokens are cut at the newlines outside brackets.

Everything here is linear in the text, and the limits hold before the parser builds anything, so a hostile file ends early.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from lark import Token

from contractor.errors import Mistake, Span, SpecError

MOST_BYTES = 2**18
MOST_TOKENS = 25_000
DEEPEST_BRACKET = 64
MOST_MISTAKES = 20
LONGEST_SHOWN = 80

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
CLOSES = {")": "(", "]": "["}
STARTS = {"LAYER", "INPUT", "PARAM", "OUTPUT"}
INSTEAD = {
    ";": "a newline ends a statement",
    "@": "a product over axes is written `contract(TN, SN -> TS)(Q, K)`",
    "<": "comparisons are masks: `causal()`, `window(w)`, …",
    ">": "`>` stands only in `->`",
    ".": "a point stands only in a number",
    "{": "axes stand in `[ ]`, everything else in `( )`",
    "}": "axes stand in `[ ]`, everything else in `( )`",
    "\u2212": "minus is `-`",
    "·": "a product is written with `*`",
    "×": "a product is written with `*`",
    "→": "an arrow is written `->`",
    "'": "the language has no strings",
    '"': "the language has no strings",
}
NAMES = "a name is made of the letters a–z and A–Z, digits and `_`"


@dataclass(slots=True)
class Statement:
    """The tokens of one statement, the last of them its newline; a broken one has been reported and is not parsed."""

    tokens: list[Token] = field(default_factory=list[Token])
    broken: bool = False


def too_long(text: str | bytes, file: str, limit: str) -> SpecError:
    """A whole text that is refused; only its beginning is shown."""
    start = text[:LONGEST_SHOWN] if isinstance(text, str) else text[:LONGEST_SHOWN].decode("utf-8", errors="replace")
    return SpecError((Mistake("this text is too long for a spec", (Span(0, 1),), limit),), CONTROL.sub("\ufffd", start), file)


def readable(text: str | bytes, file: str) -> str:
    """The text with `\\n` for every newline; SpecError if it is too long, not UTF-8, or holds control characters."""
    if len(text) > MOST_BYTES:
        raise too_long(text, file, f"a spec has at most {MOST_BYTES:,} bytes")
    plain = text if isinstance(text, str) else decoded(text, file)
    plain = plain.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    found = [control(match) for match in islice(CONTROL.finditer(plain), MOST_MISTAKES + 1)]
    if found:
        raise SpecError(first_few(found), CONTROL.sub("\ufffd", plain), file)
    return plain


def first_few(mistakes: list[Mistake]) -> tuple[Mistake, ...]:
    """The first mistakes in the text, and a word if there are more."""
    ordered = sorted(mistakes, key=lambda mistake: mistake.spans)
    more = [Mistake("and more mistakes from here on", after.spans) for after in ordered[MOST_MISTAKES : MOST_MISTAKES + 1]]
    return (*ordered[:MOST_MISTAKES], *more)


def control(match: re.Match[str]) -> Mistake:
    """A character that is not seen, or that changes how others are."""
    return Mistake(f"the character U+{ord(match[0]):04X} may not stand in a spec", (Span(*match.span()),), "remove it")


def decoded(data: bytes, file: str) -> str:
    """Bytes as text."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = len(data[: error.start].decode("utf-8"))
        shown = CONTROL.sub("\ufffd", data.decode("utf-8", errors="replace"))
        message = f"byte {error.start} (0x{data[error.start]:02x}) is not UTF-8"
        mistake = Mistake(message, (Span(before, before + 1),), "save the file as UTF-8")
        raise SpecError((mistake,), shown, file) from None


def span_of(token: Token) -> Span:
    """Where a token stands."""
    return Span(token.start_pos or 0, token.end_pos or 0)


def limited(tokens: Iterable[Token], text: str, file: str) -> list[Token]:
    """All tokens, unless they are too many."""
    kept = list(islice(tokens, MOST_TOKENS + 1))
    if len(kept) > MOST_TOKENS:
        raise too_long(text, file, f"a spec has at most {MOST_TOKENS:,} words, numbers, signs and line ends")
    return kept


@dataclass(slots=True)
class Cutter:
    """Cuts tokens into statements, and writes down what is wrong with brackets and characters."""

    statements: list[Statement] = field(default_factory=lambda: [Statement()])
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    opened: list[Token] = field(default_factory=list[Token])

    def cut(self, tokens: list[Token]) -> None:
        """Take all tokens."""
        for index, token in enumerate(tokens):
            if token.type == "_NEWLINE":
                if not self.opened or starts_statement(tokens, index + 1):
                    self.end(token)
                continue
            self.statements[-1].tokens.append(token)
            self.look(token)
        self.statements.pop()

    def look(self, token: Token) -> None:
        """Watch brackets and characters."""
        if token.value in CLOSES.values():
            self.opened.append(token)
            if len(self.opened) == DEEPEST_BRACKET + 1:
                self.wrong(f"brackets are nested at most {DEEPEST_BRACKET} deep", token, hint="define parts of it under names")
        elif token.value in CLOSES and not self.opened:
            self.wrong(f"`{token}` closes nothing", token, hint=f"no `{CLOSES[token.value]}` is open here")
        elif token.value in CLOSES and (opening := self.opened.pop()) != CLOSES[token.value]:
            self.wrong(f"`{token}` does not close `{opening}`", opening, token)
        elif token.type == "OTHER":
            self.wrong(f"`{token[:40]}` is not a character of the language", token, hint=instead(token.value))

    def end(self, newline: Token) -> None:
        """End a statement, if there is one, with its newline."""
        if 0 < len(self.opened) <= DEEPEST_BRACKET:
            brackets = "this bracket is" if len(self.opened) == 1 else "these brackets are"
            self.wrong(f"{brackets} never closed", *self.opened)
        self.opened.clear()
        if self.statements[-1].tokens:
            self.statements[-1].tokens.append(newline)
            self.statements.append(Statement())

    def wrong(self, message: str, *tokens: Token, hint: str = "") -> None:
        """Write a mistake down; the statement is broken."""
        self.mistakes.append(Mistake(message, tuple(span_of(token) for token in tokens), hint))
        self.statements[-1].broken = True


def instead(characters: str) -> str:
    """What may be meant by characters that the language does not have."""
    return INSTEAD.get(characters[0]) or (NAMES if characters[0].isalpha() else "outside comments a spec is ASCII")


def starts_statement(tokens: list[Token], index: int) -> bool:
    """True at the end, at a word that only starts statements, and at `X [T, N] =`: none of them can stand inside brackets."""
    if index == len(tokens) or tokens[index].type in STARTS:
        return True
    if [token.type for token in tokens[index : index + 2]] != ["NAME", "LSQB"]:
        return False
    index += 2
    while index < len(tokens) and tokens[index].type in {"NAME", "COMMA"}:
        index += 1
    return [token.type for token in tokens[index : index + 2]] == ["RSQB", "EQUAL"]
