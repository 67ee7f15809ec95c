"""Layers that are wrong: a table of one mistake each, several together, and specs that would exhaust a careless checker."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

from contractor.errors import Span, SpecError
from contractor.program.check import check
from contractor.program.show import show
from contractor.text import spec
from contractor.text.parse import parse

SPECS = sorted((Path(__file__).parents[1] / "specs").glob("*.ctr"))
HEAD = """layer a
input Q [T, N]
input K [S, N]
input V [S, P]
input g [S]
input G [S, N]
input z [S, N] : complex
param gamma []
param W [F, N]
param w [] : int
"""

WRONG = [
    ("output Y", "11:8: `Y` is neither a tensor nor an axis of this layer"),
    ("output Q + Kx", "11:12: the name `Kx` is not known"),
    ("output N2 * Q", "11:8: `N2` is neither a tensor nor an axis of this layer"),
    ("Y [T, N] = Q * later\nlater [T, N] = Q\noutput Y", "11:16: `later` is used before it is defined"),
    ("K [S, N] = 2 * K\noutput Q", "3:7: `K` is declared twice"),
    ("exp [T, N] = Q\noutput Q", "11:1: `exp` is a function: it cannot name a tensor"),
    ("decay [T, N] = Q\noutput Q", "11:1: `decay` is a mask: it cannot name a tensor"),
    ("reverse [T, N] = Q\noutput Q", "11:1: `reverse` is a mask: it cannot name a tensor"),
    ("input slots [T, N]\noutput Q", "11:7: `slots` is an argument of every call: it cannot name a tensor"),
    ("param state []\noutput Q", "11:7: `state` is an argument of every call: it cannot name a tensor"),
    ("N [T] = 2\noutput Q", "2:13: `N` is both a tensor and an axis"),
    ("T [N] = 2\noutput Q", "2:10: `T` is both a tensor and an axis"),
    ("Y [T, B] = Q\noutput Q", "11:7: `B` is no axis: batch is implicit everywhere"),
    ("Y [T, H] = Q\noutput Q", "11:7: `H` is no axis: head is implicit everywhere"),
    ("Y [T, n] = Q\noutput Q", "11:7: `n` is not an axis"),
    ("Y [T, NP] = Q\noutput Q", "11:7: `NP` is not an axis"),
    ("Y [T, N, N] = Q\noutput Q", "11:7: the axis N stands here twice"),
    ("param U [S, N]\noutput Q", "11:10: a param has no position: `U` has S"),
    ("input U [N] in [2, 1]\noutput Q", "11:13: nothing lies in [2.0, 1.0]"),
    (
        "input U [N] : complex in [-2, -1]\noutput Q",
        "11:23: the promise of a complex value is about its modulus, which is never below 0",
    ),
    ("Y [T] = Q\noutput Q", "11:9: the value has the axes [T, N], and N is not on the left"),
    ("Y [T, N, F2] = Q\noutput Q", "11:10: nothing gives the axis F2 a size"),
    ("output Q[T]", "11:8: `Q` has 2 axes [T, N], not 1"),
    ("output Q[T, S]", "11:13: the axis N of `Q` cannot become S"),
    ("output Q[N, T]", "11:10: the axis T of `Q` cannot become N"),
    ("output Q[T, T]", "11:10: the axis T stands here twice"),
    ("output Qq[T, N]", "11:8: the tensor `Qq` is not known"),
    ("output exp(Q, Q)", "11:8: exp(x) takes 1 argument, not 2"),
    ("output clamp(Q, 1)", "11:8: clamp(x, lo, hi) takes 3 arguments, not 2"),
    ("output min(Q)", "11:8: min(x, y) takes 2 arguments, not 1"),
    ("output expp(Q)", "11:8: the function `expp` is not known"),
    ("output Q(K)", "11:8: `Q` is not a function"),
    ("output exp", "11:8: `exp` is a function and needs its arguments"),
    ("output causal", "11:8: `causal` is a mask and needs its arguments"),
    ("output sum(Q over P)", "11:19: sum() over P: the value has no such axis, it has [T, N]"),
    ("output sum(2 over N)", "11:19: sum() over N: the value has no such axis, it is a number"),
    ("output sum(Q)", "11:8: sum() goes over axes"),
    ("output sum(Q, K over N)", "11:8: sum(x over …) takes one argument, not 2"),
    ("output sum(Q over N, N)", "11:19: the axis N stands here twice"),
    ("output l2norm(Q over B)", "11:22: `B` is no axis: batch is implicit everywhere"),
    ("output softmx(Q over N)", "11:8: the function `softmx` is not known"),
    ("output min(Q over N)", "11:8: min() does not go over axes"),
    ("output exp(Q over N)", "11:8: exp() does not go over axes"),
    ("output exp(Q, scale = 2)", "11:15: exp() takes no option `scale`"),
    ("output max(z over N)", "11:12: max() takes real values only, this one is complex"),
    ("output max(z, 1)", "11:12: max() takes real values only, this one is complex"),
    ("output softmax(z over N)", "11:16: softmax() takes real values only, this one is complex"),
    ("output polar(z, 1)", "11:14: polar() takes real values only, this one is complex"),
    ("output pos(N)", "11:8: pos() takes one position"),
    ("output concat(Q, 1)", "11:8: the axis of concat() has no name here"),
    ("output outer(Q, Q)", "11:8: the axis of outer() has no name here"),
    ("Y [T, N] = concat(Q, 1)\noutput Q", "11:12: concat() needs a new axis on the left [T, N]"),
    ("Y [T, F, P] = concat(Q, 1)\noutput Q", "11:15: concat() could lie along `F` or `P`"),
    ("Y [T, F2] = concat(Q, K)\noutput Q", "11:23: this part of concat() has the position S, which is not on the left [T, F2]"),
    ("Y [T, F2] = concat(W, 1)\noutput Q", "11:20: this part of concat() has 2 axes that are not on the left [T, F2]"),
    ("Y [T, N] = outer(Q, Q)\noutput Q", "11:12: outer() needs a new axis on the left [T, N]"),
    ("Y [T, F2] = outer(Q, Q, Q)\noutput Q", "11:13: outer(x, y) takes 2 arguments, not 3"),
    ("output zoh_matrix(gamma, 1)", "11:8: zoh_matrix() wants a matrix: A with two feature axes, not []"),
    ("output zoh_matrix(W, Q)", "11:8: zoh_matrix(): dt [T, N] has an axis of the matrix [F, N]"),
    (
        "output zoh_matrix_input(W, g, g)",
        "11:8: zoh_matrix_input(): Bc is over the matrix' columns N, and not over its rows F; it has [S]",
    ),
    ("output contract(TN, SN -> TS)(Q, K, V)", "11:17: the contraction names 2 operands and is given 3"),
    ("output contract(TN, SN -> TS)(Q, Q)", "11:21: the axis T of `Q` cannot be called S"),
    ("output contract(TM, SN -> TSM)(Q, K)", "11:22: the axis N is in one operand only, and not in the result"),
    ("output contract(TN, SN -> TSP)(Q, K)", "11:29: the axis P is in the result, but in no operand"),
    ("output contract(TNN, SN -> TS)(Q, K)", "11:18: the axis N stands twice in `TNN`"),
    ("output contract(TN, SNP -> TSP)(Q, K)", "11:21: `K` has 2 axes [S, N], the contraction gives it 3: SNP"),
    ("output contract(TB, SN -> TS)(Q, K)", "11:18: `B` is no axis: batch is implicit everywhere"),
    ("output contract(Tn, SN -> TS)(Q, K)", "11:17: `Tn` is not a row of axes"),
    ("output contract(TM, SM -> TS)(2 * Q, K)", "11:17: the letters TM do not name the axes [T, N] of this operand"),
    ("output contract(TN, TN -> TT)(Q, Q)", "11:27: the axis T stands twice in `TT`"),
    ("L [T, S] = causal()\noutput exp(L)", "12:12: `L` is a mask, not a tensor"),
    ("L [T, S] = causal()\noutput L[S, T]", "12:8: this is a mask, not a tensor"),
    ("L [T, S] = causal()\noutput contract(TS, TS, SP -> TP)(L, L, V)", "12:35: a contraction has at most one mask"),
    ("L [T, S] = causal()\noutput contract(TS, TN -> TN)(L, Q)", "12:18: the axis S is in one operand only, and not in the result"),
    ("L [T, S] = causal()\noutput contract(ST, SP -> TP)(L, V)", "12:17: the axis T of `L` cannot be called S"),
    ("L [T, S] = causal()\noutput contract(TSN, SN -> T)(L, K)", "12:17: `L` has 2 axes [T, S], the contraction gives it 3: TSN"),
    ("L [S, T] = causal()\noutput Q", "11:1: a mask is over [T, S, …], not [S, T]"),
    ("L [T, S] = causl()\noutput Q", "11:12: the function `causl` is not known"),
    ("L [T, S] = causal(2)\noutput Q", "11:19: causal() takes 0 arguments in order, not 1"),
    ("L [T, S] = decay()\noutput Q", "11:12: decay() needs `gamma` or `log`"),
    ("L [T, S] = decay(gamma, log = gamma)\noutput Q", "11:18: decay() takes `gamma` or `log`, not both"),
    ("L [T, S] = decay(gamma, lg = gamma)\noutput Q", "11:25: decay() has no argument `lg`"),
    ("L [T, S] = decay(g)\noutput Q", "11:18: `gamma` of decay() is without positions; this has the axes [S]"),
    ("L [T, S] = semiseparable(gamma)\noutput Q", "11:26: `a` of semiseparable() is over [S]; this has no axes"),
    ("L [T, S] = semiseparable(Q)\noutput Q", "11:26: `a` of semiseparable() is over [S]; this has the axes [T, N]"),
    (
        "L [T, S] = semiseparable(log = G)\noutput Q",
        "11:32: `log` of semiseparable() has the axis N, which is not on the left [T, S]",
    ),
    ("L [T, S] = semiseparable(g, left = Q)\noutput Q", "11:12: semiseparable() takes left and right together"),
    ("L [T, S] = decay(gamma, shift = 2)\noutput Q", "11:33: shift is 0 or 1"),
    ("L [T, S] = causal(shift = 1)\noutput Q", "11:19: causal() has no shift"),
    ("L [T, S] = window(0)\noutput Q", "11:19: `w` of window() is a positive integer, a size or an int param"),
    ("L [T, S] = window(2.5)\noutput Q", "11:19: `w` of window() is a positive integer, a size or an int param"),
    ("L [T, S] = window(99999999999)\noutput Q", "11:19: `w` of window() is a positive integer, a size or an int param"),
    ("L [T, S] = window(gamma)\noutput Q", "11:19: `w` of window() is a positive integer, a size or an int param"),
    ("L [T, S] = window(2 * w)\noutput Q", "11:19: `w` of window() is a positive integer, a size or an int param"),
    ("L [T, S] = toeplitz(gamma)\noutput Q", "11:21: `alpha` of toeplitz() has one axis of its own; this has no axes"),
    ("L [T, S] = documents()\noutput Q", "11:12: documents() needs `ids`"),
    ("L [T, S, N] = documents(G)\noutput Q", "11:25: `ids` of documents() has no feature axis; this has the axes [S, N]"),
    ("L [T, S] = matrix(Q)\noutput Q", "11:19: `M` of matrix() is over [T, S]; this has the axes [T, N]"),
    ("L [T, S, N] = delta(g, K)\noutput Q", "11:15: a matrix mask has exactly two extra axes, it has [N]"),
    ("L [T, S, N, M] = delta(g, g)\noutput Q", "11:27: `K` of delta() has one of the axes [N, M]; this has the axes [S]"),
    (
        "L [T, S, N, M] = delta(g, K) * delta(g, K, shift = 1)\noutput Q",
        "11:18: all matrix factors of a product have the same shift",
    ),
    ("L [T, S, M, P] = delta(g, K)\noutput Q", "11:27: `K` of delta() has one of the axes [M, P]; this has the axes [S, N]"),
    ("L [T, S, N, M] = product(W)\noutput Q", "11:26: `A` of product() is a matrix over [N, M]; this has the axes [F, N]"),
    (
        "L [T, S, N, M] = delta(g, K) * semiseparable(G * K[S, M])\noutput Q",
        "11:46: `a` of semiseparable() has the axes [S, N, M]; beside a matrix a gate is a scalar or a diagonal",
    ),
    ("L [T, S] = causal() - decay(gamma)\noutput Q", "11:12: masks have no `-`"),
    ("L [T, S] = causal() / 2\noutput Q", "11:12: masks have no `/`"),
    ("L [T, S] = -causal()\noutput Q", "11:12: masks have no sign"),
    ("L [T, S] = causal() + 1\noutput Q", "11:23: a mask is added to a mask only"),
    ("L [T, S] = causal() + Q\noutput Q", "11:23: `Q` is a tensor, a mask is wanted here"),
    ("L [T, S] = g * causal()\noutput Q", "11:12: a mask is multiplied by a number or a scalar; this has the axes [S]"),
    ("L [T, S] = reverse(causal(), 2)\noutput Q", "11:12: reverse(L) takes one mask"),
    ("L [T, S] = reverse(Q)\noutput Q", "11:20: `Q` is a tensor, a mask is wanted here"),
    ("L [T, S] = exp(causal())\noutput Q", "11:16: this is a mask, not a tensor"),
    (
        "L [T, S, N] = semiseparable(log = G)\nL2 [T, S] = L * causal()\noutput Q",
        "12:13: `L` has the extra axis N, which is not on the left",
    ),
    ("L [T, S, N, M] = delta(g, K)\nL2 [T, S, M, N] = L * causal()\noutput Q", "12:19: `L` is a matrix over [N, M], not [M, N]"),
    (
        "L [T, S, N] = semiseparable(log = G)\noutput softmax(g over S under L)",
        "12:31: softmax goes under a mask over [T, S]; `L` has the extra axes [N]",
    ),
    ("output softmax(g over S under Q)", "11:31: `Q` is a tensor, a mask is wanted here"),
    ("output softmax(g over S under later)", "11:31: the mask `later` is not known"),
    ("output softmax(g over S under decay(polar(1, 1)))", "11:31: softmax goes under a real mask; this one is complex"),
    ("output softmax(Q over N under causal())", "11:23: softmax under a mask goes over S"),
    ("output sum(Q over N under causal())", "11:27: sum() takes no mask: `under` belongs to softmax"),
    ("output contract(TN, SN, TSN -> T)(Q, K, causal())", "11:27: this mask has no axis N"),
    ("output contract(TN, SN, SN -> TN)(Q, K, causal())", "11:25: a mask stands over T and S"),
    ("output Q\noutput K", "11:1: a layer has one output statement"),
    ("output Q\nY [T, N] = Q", "11:1: `output` is the last statement of a layer"),
    ("Y [T, N] = Q", "1:7: the layer `a` has no output"),
]


def refused(text: str) -> SpecError:
    """The error of a text that parses and does not check."""
    whole = parse(text, "a.ctr")
    with pytest.raises(SpecError) as caught:
        check(whole)
    return caught.value


@pytest.mark.parametrize(("body", "line"), WRONG, ids=[body.splitlines()[0] for body, _ in WRONG])
def test_one_mistake(body: str, line: str) -> None:
    """Each wrong layer gives one mistake, with its place and a caret under something."""
    error = refused(f"{HEAD}{body}\n")
    assert str(error).splitlines()[0] == f"a.ctr:{line}"
    assert len(error.mistakes) == 1
    assert any(set(shown) <= {" ", "^"} and "^" in shown for shown in str(error).splitlines())


# ---- whole messages -------------------------------------------------------------------------------------------------------


def test_a_letter_slipped() -> None:
    assert str(refused("layer a\ninput Q [T, N]\ninput K [S, N]\noutput contract(TN, SM -> TSN)(Q, K)\n")) == (
        "a.ctr:4:22: the axis M is in one operand only, and not in the result\n"
        "    output contract(TN, SM -> TSN)(Q, K)\n"
        "                         ^            ^\n"
        "sum it beforehand, `sum(… over M)`, or name it in the result"
    )


def test_a_name_slipped() -> None:
    assert str(refused("layer a\ninput beta [S]\noutput sigmoid(bata)\n")) == (
        "a.ctr:3:16: the name `bata` is not known\n    output sigmoid(bata)\n                   ^^^^\ndid you mean `beta`?"
    )


def test_a_name_used_before_its_definition_shows_both_places() -> None:
    assert str(refused("layer a\ninput x [S]\ny [S] = late\nlate [S] = x\noutput y\n")) == (
        "a.ctr:3:9: `late` is used before it is defined\n"
        "    y [S] = late\n"
        "            ^^^^\n"
        "    late [S] = x\n"
        "    ^^^^\n"
        "move its definition up"
    )


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("output softmx(Q over N)", "did you mean `softmax`?"),
        ("L [T, S] = causl()\noutput Q", "did you mean `causal`?"),
        ("L [T, S] = decay(gamma, lg = gamma)\noutput Q", "did you mean `log`?"),
        ("Y [T] = Q\noutput Q", "add N to [T], or reduce it: `sum(… over N)`"),
        ("output min(Q over N)", "write `-max(-x over …)`"),
        ("L [T, S] = causal() - decay(gamma)\noutput Q", "`L1 + (-1) * L2`"),
        ("L [T, S] = causal() + Q\noutput Q", "write `matrix(Q)`"),
        ("L [T, S] = causal()\noutput contract(ST, SP -> TP)(L, V)", "`reverse(…)` exchanges T and S of a mask"),
        ("output contract(TN, SN -> TS)(Q, Q)", "or relabel: `Q[…]`"),
        ("Y [T, B] = Q\noutput Q", "leave it out, or call a feature axis `B2`"),
        ("output Q\noutput K", "write `output e1, e2`"),
        ("L [T, S] = causal()\noutput contract(TS, TN -> TN)(L, Q)", "define `ones [S] = 1` and contract with it"),
        ("L [T, S] = window(gamma)\noutput Q", "an int param is declared `param w [] : int`"),
    ],
)
def test_what_would_fit(body: str, hint: str) -> None:
    assert hint in str(refused(f"{HEAD}{body}\n")).splitlines()[-1]


# ---- several together --------------------------------------------------------------------------------------------------------


def test_all_mistakes_come_together_in_the_order_of_the_text() -> None:
    error = refused(HEAD + "Y [T, B] = Q\nZ [T] = exp(Q, 1)\nL [T, S] = decay()\noutput Q + missing, z * max(z, 1)\n")
    assert [line.split(": ")[0] for line in str(error).splitlines() if line.startswith("a.ctr")] == [
        "a.ctr:11:7",
        "a.ctr:12:9",
        "a.ctr:13:12",
        "a.ctr:14:12",
        "a.ctr:14:29",
    ]


def test_mistakes_of_all_layers_come_together() -> None:
    error = refused("layer a\ninput X [T]\noutput Y\nlayer a\ninput X [B]\noutput X\n")
    assert [mistake.message for mistake in error.mistakes] == [
        "two layers are called `a`",
        "`Y` is neither a tensor nor an axis of this layer",
        "`B` is no axis: batch is implicit everywhere",
    ]


def test_several_mistakes_in_one_expression() -> None:
    error = refused(HEAD + "output contract(TM, SN -> TP)(Q, K)\n")
    assert [mistake.message.split(" is")[0] for mistake in error.mistakes] == [
        "the axis M",
        "the axis S",
        "the axis N",
        "the axis P",
    ]


def test_a_broken_definition_is_reported_once() -> None:
    body = "k [S, N] = l2nrm(K over N)\nL [T, S] = decay(k)\nA [T, S] = softmax(k[T, N] over S under L)\n"
    error = refused(HEAD + body + "output contract(TN, SN, TS -> TN)(Q, k, L) * A * exp(k)\n")
    assert [mistake.message for mistake in error.mistakes] == ["the function `l2nrm` is not known"]


# ---- hostile specs -----------------------------------------------------------------------------------------------------------


def test_names_of_masks_do_not_multiply_without_end() -> None:
    sums = "".join(f"L{index + 1} [T, S] = L{index} + L{index}\n" for index in range(1, 200))
    products = "".join(f"L{index + 1} [T, S] = L{index} * L{index}\n" for index in range(1, 200))
    for more in (sums, products):
        start = time.perf_counter()
        error = refused(f"{HEAD}L1 [T, S] = causal()\n{more}output Q\n")
        assert "with all names written out this mask has" in str(error) and len(error.mistakes) == 1
        assert time.perf_counter() - start < 5


def test_products_of_sums_do_not_multiply_without_end() -> None:
    error = refused(f"{HEAD}L [T, S] = {' * '.join(['(causal() + full())'] * 7)}\noutput Q\n")
    assert "this mask has 128 terms" in str(error)


def test_definitions_may_be_many() -> None:
    lines = "".join(f"x{index + 1} [S] = x{index} + x{index}\n" for index in range(1000))
    (program,) = check(parse(f"layer a\ninput x0 [S]\n{lines}output x1000\n"))
    assert len(program.definitions) == 1000 and program.stateless == ""


def test_of_many_mistakes_the_first_are_shown() -> None:
    error = refused(HEAD + "".join(f"x{index} [S] = missing{index}\n" for index in range(500)) + "output Q\n")
    assert len(error.mistakes) == 51 and error.mistakes[-1].message == "and 450 more mistakes"


def test_what_no_parser_lets_through_is_refused_too() -> None:
    """Nodes built by hand: deep, wide, many, with strange numbers."""
    deep: spec.Expression = spec.Name("X")
    for _ in range(100_000):
        deep = spec.Negation(deep)
    wide = spec.Call(spec.Name("concat"), (spec.Name("X"),) * 100_000)
    for value in (deep, wide, spec.Constant(10**400), spec.Constant(float("inf")), spec.Constant(float("nan"))):
        with pytest.raises(SpecError):
            check(built(spec.Output((value,))))
    axes = tuple(spec.Name(f"N{index}") for index in range(50))
    with pytest.raises(SpecError, match="at most 40 different axes"):
        check(built(spec.Declaration("input", spec.Name("Y"), axes)))
    many = tuple(spec.Declaration("input", spec.Name(f"Y{index}"), ()) for index in range(5000))
    with pytest.raises(SpecError, match="at most 2000 statements"):
        check(built(*many))


def built(*statements: spec.Statement) -> spec.Spec:
    """A layer from nodes, with one input X [S]."""
    operand = spec.Declaration("input", spec.Name("X"), (spec.Name("S"),))
    return spec.Spec((spec.Layer(spec.Name("a", Span(6, 7)), (operand, *statements)),), "layer a\n")


def test_random_slips_are_refused_or_understood() -> None:
    """A token of a layer exchanged for another: every result is a program that can be shown, or a SpecError."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    texts = [path.read_text(encoding="utf-8") for path in SPECS]
    names = [name for text in texts for name in re.findall(r"\w+", text)]
    refusals = 0
    for _ in range(200):
        text = chance.choice(texts)
        slip = chance.choice(list(re.finditer(r"\w+", text)))
        try:
            for program in check(parse(text[: slip.start()] + chance.choice(names) + text[slip.end() :])):
                assert show(program)
        except SpecError:
            refusals += 1
    assert 0 < refusals < 200
