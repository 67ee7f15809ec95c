"""Texts are read: the ten layers, precedence, every shape of a statement; and what is shown reads back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from contractor.errors import Span
from contractor.text.parse import parse, parser, read
from contractor.text.show import show, show_expression
from contractor.text.spec import Call, Contraction, Declaration, Definition, Expression, Name, Promise, Spec

SPECS = sorted((Path(__file__).parent.parent / "specs").glob("*.ctr"))


def expression(text: str) -> Expression:
    definition = parse(f"layer a\nx [] = {text}").layers[0].statements[0]
    assert isinstance(definition, Definition)
    return definition.value


def statement(text: str) -> object:
    return parse(f"layer a\n{text}").layers[0].statements[0]


def test_there_are_ten() -> None:
    assert len(SPECS) == 10


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_round_trip(path: Path) -> None:
    spec = read(path)
    assert spec.layers[0].name.text == path.stem
    assert spec.file == str(path) and spec.text == path.read_text(encoding="utf-8")
    again = parse(show(spec))
    assert again == spec and repr(again) == repr(spec)
    assert show(again) == show(spec)


def test_fast() -> None:
    parser()
    text = (SPECS[0].parent / "performer.ctr").read_text(encoding="utf-8")
    started = time.process_time()
    for _ in range(10):
        parse(text)
    assert (time.process_time() - started) / 10 < 0.02


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("-x^2", "-(x ^ 2)"),
        ("(-x)^2", "(-x) ^ 2"),
        ("x^-y^z", "x ^ (-(y ^ z))"),
        ("x^y^z", "x ^ (y ^ z)"),
        ("(x^y)^z", "(x ^ y) ^ z"),
        ("x-y-z", "(x - y) - z"),
        ("x-(y-z)", "x - (y - z)"),
        ("x/y*z", "(x / y) * z"),
        ("x/(y*z)", "x / (y * z)"),
        ("x*-y", "x * (-y)"),
        ("-x*y", "(-x) * y"),
        ("-(x*y)", "-(x * y)"),
        ("x - -y", "x - (-y)"),
        ("--x", "-(-x)"),
        ("x+y*z^w", "x + (y * (z ^ w))"),
        ("x[T]^2", "x[T] ^ 2"),
    ],
)
def test_precedence(text: str, grouped: str) -> None:
    assert expression(text) == expression(grouped)
    assert expression(show_expression(expression(text))) == expression(text)
    assert len(show_expression(expression(text))) <= len(grouped)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("12", 12),
        ("1.", 1.0),
        (".5", 0.5),
        ("2e3", 2000.0),
        ("1E-5", 1e-5),
        ("1e+16", 1e16),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_numbers(text: str, value: float) -> None:
    constant = expression(text)
    assert repr(constant) == f"Constant(value={value!r})"
    assert repr(expression(show_expression(constant))) == repr(constant)


def test_declarations() -> None:
    bounded = Declaration("input", Name("X"), (Name("S"), Name("N")), "complex", Promise(0.0, float("inf")))
    assert statement("input X [S, N] : complex in [0, inf]") == bounded
    assert statement("param n [] : int in [-inf, -2.5]") == Declaration("param", Name("n"), (), "int", Promise(float("-inf"), -2.5))
    assert statement("param g []") == Declaration("param", Name("g"), ())


def test_calls() -> None:
    call = expression("f(x, y, log = g, shift = 1 over S, F under L)")
    assert isinstance(call, Call)
    assert [option.name.text for option in call.options] == ["log", "shift"]
    assert call.arguments == (Name("x"), Name("y")) and call.over == (Name("S"), Name("F")) and call.under == Name("L")
    assert expression("full()") == Call(Name("full"), ())
    assert expression("decay(log = g)") == Call(Name("decay"), (), call.options[:1])


def test_contractions() -> None:
    assert expression("contract(TN, SN -> TS)(x, y)") == Contraction((Name("TN"), Name("SN")), Name("TS"), (Name("x"), Name("y")))
    assert expression("contract(TN, TN -> )(x, y)") == Contraction((Name("TN"), Name("TN")), None, (Name("x"), Name("y")))
    assert show_expression(expression("contract(TN,TN->)(x,y)")) == "contract(TN, TN -> )(x, y)"


def test_lines() -> None:
    """Newlines in brackets, comments, blank lines, a byte order mark, foreign line ends, a missing last newline."""
    plain = parse("layer a\ninput X [S, N]\noutput f(X, 1)\n")
    assert parse("\n # c\n\n  layer a # c\n\n\tinput X [S, # c [\n\n N]\noutput f(X,\n 1)") == plain
    assert parse("\ufefflayer a\r\ninput X [S, N]\r\noutput f(X, 1)".encode()) == plain
    assert parse("layer a\rinput X [S, N]\routput f(X, 1)\r") == plain


def test_layers() -> None:
    spec = parse("layer a\noutput x\nlayer b\noutput y, z\n")
    assert [layer.name.text for layer in spec.layers] == ["a", "b"]
    assert show(spec) == "layer a\n\noutput x\n\nlayer b\n\noutput y, z\n"


def test_words_of_few_places_are_names_elsewhere() -> None:
    assert expression("inf + real") == expression("(inf) + (real)")
    assert parse("layer toeplitz\noutput x").layers[0].name.text == "toeplitz"


def spans(spec: Spec, text: str) -> list[str]:
    definition = spec.layers[0].statements[0]
    assert isinstance(definition, Definition)
    call = definition.value
    assert isinstance(call, Call)
    nodes = [spec.layers[0], definition, definition.name, call, *call.arguments, *call.options, *call.over]
    return [text[node.span.start : node.span.stop] for node in nodes]


def test_places() -> None:
    text = "layer a\nx [T] = f((x + 1) * 2, -y, z[T, N], o = (2) over N)"
    whole = text.removeprefix("layer a\n")
    found = spans(parse(text), text)
    assert found == [text.removeprefix("layer "), whole, "x", whole[8:], "(x + 1) * 2", "-y", "z[T, N]", "o = (2)", "N"]
    assert parse(text).layers[0].name.span == Span(6, 7)
