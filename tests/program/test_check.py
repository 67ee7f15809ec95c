"""Layers that are understood: their axes, numbers, lengths and states; and what is not a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from contractor.errors import SpecError
from contractor.program.check import check, check_layer
from contractor.program.expression import (
    Apply,
    Concat,
    Constant,
    Contract,
    Expression,
    Leaf,
    MaskProduct,
    Named,
    Number,
    Outer,
    Reduce,
    Relabel,
    Size,
)
from contractor.program.masks import MASKS
from contractor.program.program import Definition, MaskDefinition, Program
from contractor.program.show import expression_text, mask_text, show
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


def understood(body: str, head: str = HEAD) -> Program:
    return check(parse(head + body))[0]


def output(expression: str, before: str = "") -> Expression:
    return understood(f"{before}\noutput {expression}\n").outputs[0]


def defined(program: Program, name: str) -> Definition | MaskDefinition:
    return next(one for one in program.definitions if one.name == name)


# ---- the ten layers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_specs(path: Path) -> None:
    """Each is understood, carries a state, gives [T, P], and is read again from how it is shown."""
    (program,) = check(parse(path.read_text(encoding="utf-8"), path.name))
    assert program.name == path.stem
    assert [output.axes for output in program.outputs] == [("T", "P")] and program.outputs[0].number is Number.REAL
    assert program.stateless == ""
    assert program.self_mixing == (path.stem in ("s4d", "s6", "ssd"))
    assert check(parse(as_text(program))) == (program,)
    assert all(one.name in show(program) for one in (*program.operands, *program.definitions))


def as_text(program: Program) -> str:
    """A program as a spec, from the texts of its expressions."""
    lines = [f"layer {program.name}"]
    for one in program.operands:
        lines.append(f"{one.role} {one.name} [{', '.join(one.axes)}] : {one.number.name.lower()} in [{one.low}, {one.high}]")
    for one in program.definitions:
        extra = ("T", "S", *one.extra) if isinstance(one, MaskDefinition) else one.axes
        value = mask_text(one.mask) if isinstance(one, MaskDefinition) else expression_text(one.value)
        lines.append(f"{one.name} [{', '.join(extra)}] = {value}")
    lines.append(f"output {', '.join(expression_text(one) for one in program.outputs)}")
    return "\n".join(lines).replace(" : real", "").replace(" in [-inf, inf]", "") + "\n"


def test_check_layer_takes_one_layer_of_a_file() -> None:
    whole = parse("layer a\ninput X [T]\noutput X\nlayer b\ninput X [T]\noutput Y\n")
    assert check_layer(whole.layers[0], whole).name == "a"
    with pytest.raises(SpecError, match="`Y` is neither"):
        check_layer(whole.layers[1], whole)


# ---- expressions -----------------------------------------------------------------------------------------------------------


def test_axes_meet_by_name_positions_first() -> None:
    assert output("W * Q * g").axes == ("T", "S", "F", "N")
    assert output("Q + 1").axes == ("T", "N")
    assert understood("X [N, S] = K\noutput X * 1", HEAD).outputs[0].axes == ("S", "N")


def test_numbers_of_values() -> None:
    kinds = {
        "w + 1": Number.INT,
        "w * N": Number.INT,
        "w / 2": Number.REAL,
        "w ^ 2": Number.REAL,
        "exp(w)": Number.REAL,
        "abs(w)": Number.INT,
        "pos(T)": Number.INT,
        "z * Q": Number.COMPLEX,
        "abs(z)": Number.REAL,
        "real(z)": Number.REAL,
        "conj(z)": Number.COMPLEX,
        "polar(Q, g)": Number.COMPLEX,
        "sum(w * pos(S) over S)": Number.INT,
        "mean(pos(S) over S)": Number.REAL,
        "l2norm(z over N)": Number.COMPLEX,
        "contract(SN, SN -> S)(z, K)": Number.COMPLEX,
        "contract(S, S -> )(pos(S), pos(S))": Number.REAL,
        "contract(TN, SN, TS -> TN)(Q, K, fourier())": Number.COMPLEX,
    }
    assert {text: output(text).number for text in kinds} == kinds


def test_a_letter_alone_is_its_size() -> None:
    assert output("N") == Size("N") and output("T").axes == ()
    program = understood("input N2 []\noutput N2 * N", HEAD)
    assert expression_text(program.outputs[0]) == "N2 * N"


def test_numbers_are_folded_and_kept_exact() -> None:
    assert output("-0.25") == Constant(-0.25)
    assert output("9007199254740993") == Constant(9007199254740992.0)
    assert expression_text(output("-Q ^ -2 - (1 - Q) * (-Q)")) == "-Q ^ -2 - (1 - Q) * (-Q)"


def test_relabels() -> None:
    assert output("K[S, M]") == Relabel(output("K"), ("S", "M"))
    assert not understood("output K[S, M]").self_mixing
    assert not understood("output K[S, N]").self_mixing
    assert understood("output K[T, N]").self_mixing


def test_reductions() -> None:
    assert output("sum(W over N, F)").axes == ()
    assert output("max(Q, 0)") == Apply("max", (output("Q"), Constant(0)), ("T", "N"), Number.REAL)
    assert isinstance(output("max(Q over T, N)"), Reduce)
    assert output("l2norm(Q over N)").axes == ("T", "N")
    masked = output("softmax(g over S under causal())")
    assert isinstance(masked, Reduce) and masked.axes == ("T", "S") and isinstance(masked.under, Leaf)


def test_concat_lies_along_the_new_axis_of_the_left_side() -> None:
    program = understood("phi [T, F2] = 2 * concat(1, Q, outer(Q, Q) / sqrt(2))\noutput phi")
    value = program.definitions[0]
    assert isinstance(value, Definition) and isinstance(value.value, Apply) and value.value.axes == ("T", "F2")
    concat = value.value.arguments[1]
    assert isinstance(concat, Concat) and concat.axis == "F2" and concat.parts[0] == Constant(1)
    squares = concat.parts[2]
    assert isinstance(squares, Apply) and isinstance(squares.arguments[0], Outer)
    assert squares.axes == ("T", squares.arguments[0].axis) and squares.arguments[0].axis not in ("N", "F2")


def test_concat_and_outer_take_the_letters_of_a_contraction() -> None:
    mixed = output("contract(TM, SM -> TS)(concat(1, Q), concat(1, K))")
    assert isinstance(mixed, Contract) and mixed.letters == (("T", "M"), ("S", "M"))
    outer = output("contract(TM, SM -> TS)(outer(Q, Q), outer(K, K))")
    assert isinstance(outer, Contract) and all(isinstance(one, Outer) and one.axis == "M" for one in outer.operands)


def test_discretisations_of_a_matrix() -> None:
    before = "param A [N, M]\nparam b [M, P]\n"
    assert output("zoh_matrix(A, g)", before).axes == ("S", "N", "M")
    assert output("bilinear_matrix_input(A, b, g)", before).axes == ("S", "P", "N")


def test_a_definition_is_broadcast_to_its_left_side() -> None:
    program = understood("ones [S, P] = 1\nlate [T, S] = pos(T) - pos(S)\noutput late * g")
    ones = defined(program, "ones")
    assert isinstance(ones, Definition) and ones.axes == ("S", "P") and ones.value == Constant(1)


# ---- contractions and masks -------------------------------------------------------------------------------------------------


def test_letters_of_a_plain_name_rename_and_of_an_expression_name() -> None:
    plain = output("contract(TM, SM -> TS)(Q, K)")
    assert isinstance(plain, Contract) and plain.letters == (("T", "M"), ("S", "M"))
    turned = output("contract(NT, NS -> ST)(2 * Q, K * 1)")
    assert isinstance(turned, Contract) and turned.letters == (("T", "N"), ("S", "N")) and turned.axes == ("T", "S")
    backwards = understood("X [N, S] = K\noutput contract(MS, TM -> TS)(X, Q)").outputs[0]
    assert isinstance(backwards, Contract) and backwards.letters == (("S", "M"), ("T", "M"))


def test_a_mixing_by_name_and_in_place() -> None:
    named = output("contract(TM, SM, TSM -> T)(Q, K, L)", "L [T, S, N] = semiseparable(log = G)")
    assert isinstance(named, Contract) and isinstance(named.mask, Named) and named.mask_axes == ("M",) and len(named.operands) == 2
    placed = output("contract(TN, STN, SN -> T)(Q, 2 * semiseparable(log = G), K)")
    assert isinstance(placed, Contract) and placed.mask is not None and placed.mask.axes == placed.mask_axes == ("N",)
    kept = output("contract(TN, SN, TS -> TS)(Q, K, causal())")
    assert kept.axes == ("T", "S")
    matrix = output("contract(TN, SM, TSNM -> T)(Q, K, delta(g, K))")
    assert isinstance(matrix, Contract) and matrix.mask_axes == ("N", "M")


def test_an_ordinary_tensor_over_both_positions_makes_an_ordinary_contraction() -> None:
    found = output("contract(TS, SP -> TP)(M, V)", "input M [T, S]")
    assert isinstance(found, Contract) and found.mask is None


def test_products_of_masks_keep_their_order() -> None:
    program = understood("L [T, S, N, M] = delta(g, K) * semiseparable(log = G)\noutput contract(TN, SM, TSNM -> T)(Q, K, L)")
    mask = program.definitions[0]
    assert isinstance(mask, MaskDefinition) and isinstance(mask.mask, MaskProduct) and mask.extra == ("N", "M")
    assert [leaf.kind for leaf in (mask.mask.left, mask.mask.right) if isinstance(leaf, Leaf)] == ["delta", "semiseparable"]


@pytest.mark.parametrize(
    "mask",
    [
        "full()",
        "decay(gamma, shift = 1)",
        "decay(log = gamma)",
        "semiseparable(g, write = g)",
        "semiseparable(g, left = c, right = b)",
        "semiseparable(B2, left = c, right = b)",
        "window(8) * dilated(w) + prefix(N)",
        "toeplitz(alpha, ahead = alpha)",
        "documents(ids) * causal()",
        "documents(ids[T], ids)",
        "matrix(M)",
        "2 * reverse(flip(causal())) * gamma + (-1) * blocks(w)",
    ],
)
def test_masks_over_two_positions(mask: str) -> None:
    before = "input c [T, R]\ninput b [S, R]\ninput B2 [S, R]\nparam alpha [R]\ninput ids [S] : int\ninput M [T, S]\n"
    program = understood(f"{before}L [T, S] = {mask}\noutput contract(TN, SN, TS -> T)(Q, K, L)")
    assert isinstance(defined(program, "L"), MaskDefinition)
    assert check(parse(as_text(program))) == (program,)


@pytest.mark.parametrize(
    ("mask", "extra"),
    [
        ("semiseparable(log = G)", "N"),
        ("semiseparable(log = G) * toeplitz(W)", "N"),
        ("semiseparable(G) * decay(gamma)", "N, P"),
        ("causal()", "N"),
        ("product(A)", "N, M"),
        ("product(A) + semiseparable(log = G) * window(4)", "N, M"),
        ("delta(G, K, erase = K[S, M], log = g, shift = 1) * product(A, shift = 1)", "N, M"),
    ],
)
def test_masks_with_extra_axes(mask: str, extra: str) -> None:
    program = understood(f"param A [N, M]\nL [T, S, {extra}] = {mask}\noutput Q")
    found = defined(program, "L")
    assert isinstance(found, MaskDefinition) and ", ".join(found.extra) == extra


def test_every_kind_is_checked_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [kind for kind in MASKS if f"{kind}(" not in text] == []


# ---- lengths and states ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "same"),
    [
        ("input Q [T]\ninput K [S]\noutput Q * K", False),
        ("input K [S]\noutput K", True),
        ("input Q [T]\noutput Q", True),
        ("input M [T, S]\noutput M", False),
        ("input X [N]\noutput X", False),
        ("input Q [T]\ninput K [S]\nL [T, S] = reverse(causal())\noutput contract(T, S, TS -> T)(Q, K, L)", True),
        ("input Q [T]\ninput K [S]\noutput contract(T, S, TS -> T)(Q, K, flip(causal()))", True),
        ("input Q [T]\ninput K [S]\noutput contract(T, S, TS -> T)(Q, K, fourier())", True),
        ("input Q [T]\ninput K [S]\noutput contract(T, S, TS -> T)(Q, K, blocks(2))", True),
        ("input Q [T]\ninput K [S]\noutput contract(T, S, TS -> T)(Q, K, documents(K))", True),
        ("input Q [T]\ninput K [S]\noutput contract(T, S, TS -> T)(Q, K, documents(Q, K))", False),
    ],
)
def test_one_length(body: str, same: bool) -> None:
    assert understood(body, "layer a\n").self_mixing == same


CAUSAL = "A [T, S] = softmax(contract(TN, SN -> TS)(Q, K) over S under causal())\n"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("output Q / T", "the output reads the size T"),
        ("Y [T, N] = Q * S\noutput Y", "`Y` reads the size S"),
        ("Y [T, N] = Q * S\noutput Q", ""),
        ("output Q * N", ""),
        ("output Q * pos(T)", ""),
        ("output Q + sum(K over S)", "the output reduces over S outside a causal mask"),
        ("output mean(Q over T, N)", "the output reduces over T outside a causal mask"),
        ("output softmax(contract(TN, SN -> TS)(Q, K) over S)", "the output reduces over S outside a causal mask"),
        ("output softmax(contract(TN, SN -> TS)(Q, K) over S under prefix(2))", "the output reduces over S outside a causal mask"),
        ("output contract(SN, SP -> NP)(K, V)", "the output reduces over S outside a causal mask"),
        (CAUSAL + "output contract(TS, SP -> TP)(A, V)", ""),
        (CAUSAL + "output contract(TS, SP -> TP)(2 * A / 3 - A * g, V)", ""),
        (CAUSAL + "output contract(TS, SP -> TP)(A + 1, V)", "the output reduces over S outside a causal mask"),
        (CAUSAL + "output sum(A * g over S)", ""),
        (CAUSAL + "output sum(exp(A) over S)", "the output reduces over S outside a causal mask"),
        ("output contract(TN, SN, TS -> TS)(Q, K, causal())", ""),
        ("output contract(TN, SN, TS -> T)(Q, K, window(2))", ""),
        ("output contract(TN, SN, TS -> T)(Q, K, documents(g) * causal())", ""),
        ("output contract(TN, SN, TS -> T)(Q, K, causal() + full())", "the output reduces over S outside a causal mask"),
        ("output contract(TN, SN, TS -> T)(Q, K, blocks(2))", "the output reduces over S outside a causal mask"),
        ("output contract(TN, SN, TS -> T)(Q, K, reverse(causal()))", "the output reduces over S outside a causal mask"),
        ("output contract(TN, SN, TS -> T)(Q, K, reverse(flip(causal())))", ""),
        ("output contract(TN, SN, TS -> T)(Q, K, window(T))", "the output reads the size T"),
    ],
)
def test_states(body: str, reason: str) -> None:
    assert understood(body).stateless == reason


# ---- what is not a mistake ----------------------------------------------------------------------------------------------


def test_unused_operands_and_definitions_are_no_mistake() -> None:
    program = understood("input length [T]\nidle [T, N] = 2 * Q\noutput K")
    assert [one.name for one in program.definitions] == ["idle"]


def test_promises_are_kept() -> None:
    program = understood("input x [S] in [-5, 0]\ninput y [S] : complex in [0, 1]\ninput i [S] : int in [1, inf]\noutput x")
    bounds = {one.name: (one.low, one.high, one.number) for one in program.operands}
    assert bounds["x"] == (-5, 0, Number.REAL)
    assert bounds["y"] == (0, 1, Number.COMPLEX)
    assert bounds["i"] == (1, float("inf"), Number.INT)


def test_tensors_may_have_the_names_of_axes_that_are_not_theirs() -> None:
    program = check(parse("layer s\ninput C [T, N]\ninput B [S, N]\noutput contract(TX, SX -> TS)(C, B)\n"))[0]
    assert [one.name for one in program.operands] == ["C", "B"]


def test_show_says_what_matters() -> None:
    text = show(understood("input x [S] in [-5, 0]\nL [T, S] = semiseparable(log = x)\noutput contract(T, S, TS -> T)(pos(T), x, L)"))
    assert "input  x      [S]     real     in [-5, 0]" in text
    assert "L [T, S] = semiseparable(log = x)" in text
    assert "where lag ≥ 0; each position multiplies the state by exp(x)" in text
    assert "contract(T, S, TS -> T)(pos(T), x, L)  [T]  real" in text
