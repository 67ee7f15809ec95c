"""Text to Spec: lark's LALR parser under the grammar of `grammar/contractor.lark`, with our own messages.

A file that fits is parsed in one go. One that does not is read again statement by statement, and every bad statement is reported.
No name means anything here: masks, functions and axes are the checker's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import islice
from pathlib import Path
from typing import Any

from lark import Lark, Token, UnexpectedToken

from contractor.errors import Mistake, Span, SpecError
from contractor.text.build import Builder, Misread
from contractor.text.explain import explain
from contractor.text.scan import MOST_BYTES, MOST_MISTAKES, Cutter, Statement, first_few, limited, readable, span_of
from contractor.text.spec import Spec
from contractor.text.walk import values, walk

DEEPEST = 100


class Reported:
    """Keeps the terminal of foreign characters in the lexer, though no rule has it: its tokens are reported by the scan."""

    always_accept = ("OTHER",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


def grammar_file() -> Traversable:
    """The grammar: package data when installed, beside the package in a plain checkout."""
    try:
        return resources.files("contractor.grammar") / "contractor.lark"
    except ModuleNotFoundError:
        return Path(__file__).parents[2] / "grammar" / "contractor.lark"


@cache
def parser() -> Lark:
    """The parser, made once; it holds no state between parses."""
    text = grammar_file().read_text(encoding="utf-8")
    starts = ["spec", "layer", "statement"]
    return Lark(text, parser="lalr", lexer="basic", start=starts, transformer=Builder(), postlex=Reported())


def parse(text: str | bytes, file: str = "<spec>") -> Spec:
    """The Spec that a text writes. SpecError, with every bad statement, if it does not fit the language; `file` is for its message.

    A text has at most 2^18 bytes and 25,000 tokens, brackets are nested at most 64 deep and expressions 100.
    """
    plain = readable(text, file)
    statements, mistakes = scanned(plain, file)
    mistakes += misplaced(statements, plain)
    if not mistakes:
        try:
            return shallow(replace(whole(statements), text=plain, file=file))
        except (UnexpectedToken, Misread):
            pass
    unread = (mistake for statement in statements if not statement.broken for mistake in mistaken(statement))
    raise SpecError(first_few([*mistakes, *islice(unread, MOST_MISTAKES + 1)]), plain, file)


def read(path: str | os.PathLike[str]) -> Spec:
    """The Spec in a file; SpecError as for `parse`, OSError if there is no such file."""
    with open(path, "rb") as file:
        return parse(file.read(MOST_BYTES + 1), os.fspath(path))


def scanned(text: str, file: str) -> tuple[list[Statement], list[Mistake]]:
    """The statements of a text and what is wrong with its characters and brackets."""
    reader = parser().parse_interactive(text + "\n", start="spec")
    cutter = Cutter()
    cutter.cut(limited(reader.lexer_thread.lex(reader.parser_state), text, file))
    return cutter.statements, cutter.mistakes


def misplaced(statements: Sequence[Statement], text: str) -> list[Mistake]:
    """A file without a layer, or something before the first."""
    if not statements:
        return [Mistake("this spec is empty", (Span(len(text), len(text)),), "a spec starts with `layer NAME`")]
    first = statements[0].tokens[0]
    if first.type == "LAYER":
        return []
    return [Mistake("a statement stands before the first `layer`", (span_of(first),), "a spec starts with `layer NAME`")]


def whole(statements: Iterable[Statement]) -> Spec:
    """The Spec of statements that fit the grammar; else UnexpectedToken or Misread."""
    reader = parser().parse_interactive(start="spec")
    for statement in statements:
        for token in statement.tokens:
            reader.feed_token(token)
    return reader.feed_eof()


def mistaken(statement: Statement) -> list[Mistake]:
    """What is wrong with a statement, if anything."""
    reader = started(statement)
    for index, token in enumerate(statement.tokens):
        try:
            reader.feed_token(token)
        except UnexpectedToken:
            return [explain(statement.tokens, index, fitting(statement, index))]
        except Misread as misread:
            return [misread.mistake]
    return []


def started(statement: Statement) -> Any:
    """A parser at the beginning of a statement."""
    return parser().parse_interactive(start="layer" if statement.tokens[0].type == "LAYER" else "statement")


def fitting(statement: Statement, index: int) -> set[str]:
    """The terminals that fit at a token. Read anew up to it, since the parser reduces before it finds that a token is wrong."""
    reader = started(statement)
    for token in statement.tokens[:index]:
        reader.feed_token(token)
    return reader.accepts()


def shallow(spec: Spec) -> Spec:
    """The Spec itself; SpecError if an expression is too deep for what recurses over it later."""
    expressions = (value for layer in spec.layers for statement in layer.statements for value in values(statement))
    deep = [value.span for value in expressions if any(depth > DEEPEST for _, depth in walk(value))]
    if deep:
        message, hint = f"an expression is nested at most {DEEPEST} deep", "define parts of it under names"
        raise SpecError(first_few([Mistake(message, (span,), hint) for span in deep]), spec.text, spec.file)
    return spec
