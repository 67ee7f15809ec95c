"""What is wrong with a statement that does not fit the grammar: what was found, what would fit, and what was probably meant."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from lark import Token

from contractor.errors import Mistake
from contractor.text.scan import span_of

WORDS = {
    "LAYER": "layer",
    "INPUT": "input",
    "PARAM": "param",
    "OUTPUT": "output",
    "OVER": "over",
    "UNDER": "under",
    "IN": "in",
    "COMPLEX": "complex",
    "INT": "int",
    "CONTRACT": "contract",
}
SIGNS = {"LPAR": "(", "RPAR": ")", "LSQB": "[", "RSQB": "]", "COMMA": ",", "EQUAL": "=", "COLON": ":", "ARROW": "->"}
EXPRESSION = {"NAME", "NUMBER", "MINUS", "LPAR", "CONTRACT"}
OPERATOR = {"PLUS", "MINUS", "STAR", "SLASH", "CIRCUMFLEX"}
CONTRACTION = "a contraction is written `contract(TN, SN -> TS)(Q, K)`"
PROMISE = "a promise is written `in [-5, 0]`; a bound may be `inf` or `-inf`"
OPERAND_ENDS = {"NAME", "NUMBER", "RPAR", "RSQB"}


def explain(tokens: Sequence[Token], index: int, fitting: set[str]) -> Mistake:
    """The mistake of a statement whose token at `index` is none of the terminals that fit."""
    found = tokens[index]
    if found.type in WORDS and "NAME" in fitting and EXPRESSION - {"NAME"} - fitting:
        return Mistake(f"`{found}` is a word of the language, it cannot be a name", (span_of(found),), "choose another name")
    message = f"found {described(found)} where {expected(fitting)} would fit"
    return Mistake(message, (span_of(found),), hint(tokens, index, fitting))


def described(token: Token) -> str:
    """A token in a sentence."""
    if token.type == "_NEWLINE":
        return "the end of the statement"
    return f"`{token}`" if len(token) <= 40 else f"`{token[:40]}…`"


def expected(fitting: set[str]) -> str:
    """The terminals that fit, in a sentence."""
    left = set(fitting)
    phrases: list[str] = []
    for group, phrase in ((EXPRESSION, "an expression"), (OPERATOR, "an operator"), ({"NAME"}, "a name"), ({"NUMBER"}, "a number")):
        if group <= left:
            phrases.append(phrase)
            left -= group | ({"LPAR", "LSQB"} if phrase == "an operator" else set())
    phrases += [f"`{text}`" for terminal, text in {**SIGNS, **WORDS, "MINUS": "-"}.items() if terminal in left]
    phrases += ["the end of the statement"] if "_NEWLINE" in left else []
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} or {phrases[-1]}"


def hint(tokens: Sequence[Token], index: int, fitting: set[str]) -> str:
    """What was probably meant, or nothing."""
    found, before = tokens[index], tokens[max(index - 1, 0)]
    if index == 0:
        return f"a statement is a declaration, a definition or an output{nearest(found)}"
    if index == 1 and tokens[0].type == "NAME" and found.type == "NAME" and nearest(tokens[0]):
        return nearest(tokens[0]).removeprefix("; ")
    if fitting == {"LSQB"}:
        return PROMISE if before.type == "IN" else "axes are written in brackets: `[T, N]`, and `[]` for none"
    if fitting == {"EQUAL"}:
        return option_or_definition(before)
    if fitting == {"LPAR"}:
        return CONTRACTION
    if {"COMPLEX", "INT"} <= fitting:
        return "a tensor is real unless it is `: complex` or `: int`"
    if fitting >= EXPRESSION or fitting >= OPERATOR:
        return hint_in_expression(found, before, fitting)
    return hint_in_brackets(tokens, index, fitting)


def option_or_definition(before: Token) -> str:
    """Where only `=` fits."""
    if before.type == "RSQB":
        return "a definition is written `X [T, N] = expression`"
    return "options are written `name = value`, after the arguments"


def hint_in_brackets(tokens: Sequence[Token], index: int, fitting: set[str]) -> str:
    """Where no operator and no expression fits: in lists of names and in promises."""
    opened: list[int] = []
    for place, token in enumerate(tokens[:index]):
        if token.type in {"LPAR", "LSQB"}:
            opened.append(place)
        elif token.type in {"RPAR", "RSQB"}:
            opened.pop()
    if not opened:
        return ""
    words = [tokens[place].type for place in (opened[-1] - 1, opened[-1])]
    if words == ["CONTRACT", "LPAR"]:
        return CONTRACTION
    if words == ["IN", "LSQB"]:
        return PROMISE
    if words[1:] == ["LSQB"]:
        return "axes are names with commas between them: `[T, N]`"
    return "axes are names with commas between them: `over S, F`" if fitting <= {"NAME", "COMMA", "UNDER", "RPAR"} else ""


def hint_in_expression(found: Token, before: Token, fitting: set[str]) -> str:
    """Among operators and operands."""
    if (before.value, found.value) == ("*", "*"):
        return "a power is written with `^`"
    if found.type == "PLUS" and fitting >= EXPRESSION:
        return "a number or a name has no sign `+` before it"
    if fitting >= OPERATOR and before.type in OPERAND_ENDS and found.type in {"NAME", "NUMBER", "LPAR"}:
        return "a product is written with `*`"
    return ""


def nearest(word: Token) -> str:
    """A word that begins a statement and looks like this one."""
    near = get_close_matches(word.value.lower()[:20], ("layer", "input", "param", "output"), 1, 0.7)
    return f"; did you mean `{near[0]}`?" if near else ""
