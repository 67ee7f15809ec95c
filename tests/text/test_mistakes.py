"""Wrong texts and their whole messages: place, line, carets, what was found, what would fit, and what was probably meant."""

from __future__ import annotations

import pytest

from contractor.errors import SpecError
from contractor.text.parse import parse
from contractor.text.scan import MOST_MISTAKES

BRACKETS = "axes are written in brackets: `[T, N]`, and `[]` for none"
AXES = "axes are names with commas between them: `[T, N]`"
OVER = "axes are names with commas between them: `over S, F`"
CONTRACT = "a contraction is written `contract(TN, SN -> TS)(Q, K)`"
TIMES = "a product is written with `*`"
LAYER = "a spec starts with `layer NAME`"
STATEMENT = "a statement is a declaration, a definition or an output"
NAMES = "a name is made of the letters a–z and A–Z, digits and `_`"

# statement, carets, message, hint
TABLE = [
    ("layer", "     ^", "found the end of the statement where a name would fit", ""),
    ("layer over", "      ^^^^", "`over` is a word of the language, it cannot be a name", "choose another name"),
    ("layer a b", "        ^", "found `b` where the end of the statement would fit", ""),
    ("input int [T]", "      ^^^", "`int` is a word of the language, it cannot be a name", "choose another name"),
    ("input Q T, N", "        ^", "found `T` where `[` would fit", BRACKETS),
    ("param gamma", "           ^", "found the end of the statement where `[` would fit", BRACKETS),
    ("input Q [T N]", "           ^", "found `N` where `]` or `,` would fit", AXES),
    ("input Q [T,, N]", "           ^", "found `,` where a name would fit", AXES),
    ("input Q [T, 4]", "            ^", "found `4` where a name would fit", AXES),
    ("input Q [T, N,]", "              ^", "found `]` where a name would fit", AXES),
    ("inptu Q [T, N]", "      ^", "found `Q` where `[` would fit", "did you mean `input`?"),
    (
        "param W [] : real",
        "             ^^^^",
        "found `real` where `complex` or `int` would fit",
        "a tensor is real unless it is `: complex` or `: int`",
    ),
    ("param W [] in [0, x]", "                  ^", "`x` is not a bound", "a bound is a number, `inf` or `-inf`"),
    (
        "param W [] in [0]",
        "                ^",
        "found `]` where `,` would fit",
        "a promise is written `in [-5, 0]`; a bound may be `inf` or `-inf`",
    ),
    (
        "param W [] in 0, 1",
        "              ^",
        "found `0` where `[` would fit",
        "a promise is written `in [-5, 0]`; a bound may be `inf` or `-inf`",
    ),
    ("x = 3", "  ^", "found `=` where `[` would fit", BRACKETS),
    ("x [T]", "     ^", "found the end of the statement where `=` would fit", "a definition is written `X [T, N] = expression`"),
    ("x [T] =", "       ^", "found the end of the statement where an expression would fit", ""),
    ("x [T] = 2 N", "          ^", "found `N` where an operator or the end of the statement would fit", TIMES),
    ("x [T] = 2(N)", "         ^", "found `(` where an operator or the end of the statement would fit", TIMES),
    ("x [T] = x ** 2", "           ^", "found `*` where an expression would fit", "a power is written with `^`"),
    ("x [T] = +x", "        ^", "found `+` where an expression would fit", "a number or a name has no sign `+` before it"),
    ("x [T] = over", "        ^^^^", "found `over` where an expression would fit", ""),
    ("x [T] = y = z", "          ^", "found `=` where an operator or the end of the statement would fit", ""),
    ("x [T] = f(x,)", "            ^", "found `)` where an expression would fit", ""),
    (
        "x [T] = f(a = 1, x)",
        "                  ^",
        "found `)` where `=` would fit",
        "options are written `name = value`, after the arguments",
    ),
    ("x [T] = f(x over)", "                ^", "found `)` where a name would fit", OVER),
    (
        "x [T] = f(x over S T)",
        "                   ^",
        "found `T` where `)`, `,` or `under` would fit",
        OVER,
    ),
    ("x [T] = contract(TN, SN)(x)", "                       ^", "found `)` where `,` or `->` would fit", CONTRACT),
    ("x [T] = contract(TN SN -> TS)(x)", "                    ^^", "found `SN` where `,` or `->` would fit", CONTRACT),
    ("x [T] = contract(TN,, SN -> TS)(x)", "                    ^", "found `,` where a name would fit", CONTRACT),
    ("x [T] = contract(TN, SN -> T S)(x)", "                             ^", "found `S` where `)` would fit", CONTRACT),
    ("x [T] = contract(T -> T)", "                        ^", "found the end of the statement where `(` would fit", CONTRACT),
    ("x [T] = (x", "        ^", "this bracket is never closed", ""),
    ("x [T] = f(g(x)[y", "         ^    ^", "these brackets are never closed", ""),
    ("x [T] = x)", "         ^", "`)` closes nothing", "no `(` is open here"),
    ("x [T] = f(x]", "         ^ ^", "`]` does not close `(`", ""),
    ("x [T] = 1e99999", "        ^^^^^^^", "this number is not finite in 64 bits", "the largest is about 1.8e308"),
    (
        "x [T] = 9223372036854775808",
        "        ^^^^^^^^^^^^^^^^^^^",
        "this integer does not fit into 64 bits",
        "a real number has a point or an exponent: `1e30`",
    ),
    ("x [T] = α", "        ^", "`α` is not a character of the language", NAMES),
    ("x [T] = a; b", "         ^", "`;` is not a character of the language", "a newline ends a statement"),
    ("x [T] = a ± b", "          ^", "`±` is not a character of the language", "outside comments a spec is ASCII"),
    ("x [T] = a.b", "         ^", "`.` is not a character of the language", "a point stands only in a number"),
    ("output", "      ^", "found the end of the statement where an expression would fit", ""),
    ("output x y", "         ^", "found `y` where an operator, `,` or the end of the statement would fit", TIMES),
    ("3", "^", "found `3` where a name, `input`, `param` or `output` would fit", STATEMENT),
]


@pytest.mark.parametrize(("statement", "carets", "message", "hint"), TABLE, ids=[row[0] for row in TABLE])
def test_message(statement: str, carets: str, message: str, hint: str) -> None:
    text = f"layer a\n{statement}\noutput y\n"
    lines = [f"bad.ctr:2:{carets.index('^') + 1}: {message}", f"    {statement}", f"    {carets}", *([hint] if hint else [])]
    with pytest.raises(SpecError) as caught:
        parse(text, "bad.ctr")
    assert str(caught.value) == "\n".join(lines)


FILES: list[tuple[str | bytes, str]] = [
    ("", f"<spec>:1:1: this spec is empty\n    \n    ^\n{LAYER}"),
    ("\n# c\n", f"<spec>:3:1: this spec is empty\n    \n    ^\n{LAYER}"),
    ("input X [T]\n", f"<spec>:1:1: a statement stands before the first `layer`\n    input X [T]\n    ^^^^^\n{LAYER}"),
    (b"layer a\n# \xc3\xa9\xff", "<spec>:2:4: byte 12 (0xff) is not UTF-8\n    # é�\n       ^\nsave the file as UTF-8"),
    (
        "layer a # \x1b[31m",
        "<spec>:1:11: the character U+001B may not stand in a spec\n    layer a # �[31m\n              ^\nremove it",
    ),
    ("layer a # \u202e", "<spec>:1:11: the character U+202E may not stand in a spec\n    layer a # �\n              ^\nremove it"),
    (
        "layer a\nx [T] = f(g(1,\n  2)\ny [T] = 3\noutput x",
        "<spec>:2:10: this bracket is never closed\n    x [T] = f(g(1,\n             ^",
    ),
    (
        "layer a\nx [T] = f(1,\n  2]\ny [T] = 3",
        "<spec>:2:10: `]` does not close `(`\n    x [T] = f(1,\n             ^\n      2]\n       ^",
    ),
    (
        "layer a\nx [T] = f(1,\n\n  2 3)",
        f"<spec>:4:5: found `3` where an operator, `)`, `,`, `over` or `under` would fit\n      2 3)\n        ^\n{TIMES}",
    ),
]


@pytest.mark.parametrize(("text", "message"), FILES)
def test_whole_file(text: str | bytes, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_all_together() -> None:
    """Every bad statement is reported, in the order of the text, and the good ones between them are not."""
    statements = [f"{statement}\ngood [T] = f(1)" for statement, *_ in TABLE]
    for start in range(0, len(statements), MOST_MISTAKES // 2):
        group = statements[start : start + MOST_MISTAKES // 2]
        with pytest.raises(SpecError) as caught:
            parse("layer a\n" + "\n".join(group))
        found = [caught.value.text[: mistake.spans[0].start].count("\n") for mistake in caught.value.mistakes]
        assert found == list(range(1, 2 * len(group), 2))


def test_most_mistakes() -> None:
    with pytest.raises(SpecError) as caught:
        parse("layer a\n" + "x [T] = !\ny\n" * 100)
    starts = [mistake.spans[0].start for mistake in caught.value.mistakes]
    assert len(starts) == MOST_MISTAKES + 1 and starts == sorted(starts)
    assert caught.value.mistakes[-1].message == "and more mistakes from here on"


def test_many_open_brackets() -> None:
    """Each line's bracket is reported; a statement that is nested too deeply does not hide the next."""
    deep = "x [T] = " + "(" * 70 + "1" + ")" * 70
    with pytest.raises(SpecError) as caught:
        parse("layer a\n" + "x [T] = f(\n" * 3 + deep + "\nx [T] = 1 1\nx [T] = " + "(" * 70)
    messages = [mistake.message for mistake in caught.value.mistakes]
    nested = "brackets are nested at most 64 deep"
    found = "found `1` where an operator or the end of the statement would fit"
    assert messages == ["this bracket is never closed"] * 3 + [nested, found, nested]
