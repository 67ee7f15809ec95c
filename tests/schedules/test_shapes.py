"""Contractions of every shape: letters on either side, both positions kept or summed, several operands, contractions inside masks."""

from __future__ import annotations

import random

import pytest

from tests.schedules.layers import CHUNK, Layer, check

SIZES = {"N": 3, "P": 2, "M": 3, "R": 3, "F": 2}
OPERANDS = {"Q": "TN", "K": "SN", "V": "SP", "g": "S", "D": "SN", "W": "NP", "F1": "TP", "B1": "TSN", "E": "TS", "u": "F", "Z": "SFP"}
OPERANDS["a"] = "R"
SHAPES = {
    "keeps S": ("contract(TN, SN, TS -> TS)(Q, K, L)", "[T, S]", "semiseparable(log = g)"),
    "keeps S and features": ("contract(TN, SN, SP, TS -> TSP)(Q, K, V, L)", "[T, S, P]", "semiseparable(log = g)"),
    "keeps S alone": ("contract(TN, TP, SN, TS -> SP)(Q, F1, K, L)", "[S, P]", "semiseparable(log = g)"),
    "keeps S from the future": ("contract(TN, TP, SN, TS -> SP)(Q, F1, K, L)", "[S, P]", "toeplitz(a, ahead = a)"),
    "keeps S under channels": ("contract(TN, TP, SN, TSN -> SP)(Q, F1, K, L)", "[S, P]", "semiseparable(log = D)"),
    "keeps neither": ("contract(TN, SN, SP, TS -> P)(Q, K, V, L)", "[P]", "causal()"),
    "nothing left": ("contract(TN, SN, TS -> )(Q, K, L)", "[]", "decay(0.7)"),
    "keeps N": ("contract(TN, SN, SP, TS -> TNP)(Q, K, V, L)", "[T, N, P]", "semiseparable(log = g)"),
    "states": ("contract(SN, SP, TS -> TNP)(K, V, L)", "[T, N, P]", "semiseparable(log = g)"),
    "states under channels": ("contract(SN, SP, TSN -> TNP)(K, V, L)", "[T, N, P]", "semiseparable(log = D)"),
    "no query": ("contract(SP, TS -> TP)(V, L)", "[T, P]", "window(3)"),
    "no value": ("contract(TN, SN, TS -> T)(Q, K, L)", "[T]", "decay(0.9)"),
    "a matrix between": ("contract(TN, SN, NP, SP, TS -> TP)(Q, K, W, V, L)", "[T, P]", "causal()"),
    "a matrix behind": ("contract(TN, SN, SM, MP, TS -> TP)(Q, K, D, W, L)", "[T, P]", "causal()"),
    "a table of operands": ("contract(TN, SN, SP, TS, TS -> TP)(Q, K, V, E, L)", "[T, P]", "semiseparable(log = g)"),
    "a table of operands, reversed": ("contract(TN, SN, SP, TS, TS -> TP)(Q, K, V, E, L)", "[T, P]", "reverse(semiseparable(log = g))"),
    "a table of operands, flipped": ("contract(TN, SN, SP, TS, TS -> TP)(Q, K, V, E, L)", "[T, P]", "flip(semiseparable(log = g))"),
    "a table with features": ("contract(TSN, SN, SP, TS -> TP)(B1, K, V, L)", "[T, P]", "semiseparable(log = g)"),
    "three letters": ("contract(TN, SN, SFP, F, TS -> TPF)(Q, K, Z, u, L)", "[T, P, F]", "semiseparable(log = g)"),
    "inner letters": ("contract(TN, TP, SN, SP, TS -> T)(Q, F1, K, V, L)", "[T]", "semiseparable(log = g)"),
    "a contraction in a mask": (
        "contract(TN, SN, SP, TS -> TP)(Q, K, V, L)",
        "[T, P]",
        "semiseparable(log = -exp(contract(SN, SN -> S)(K, D)))",
    ),
    "a mixing in a mask": (
        "contract(TN, SN, SP, TS -> TP)(Q, K, V, L)",
        "[T, P]",
        "semiseparable(log = -exp(G[S]))",
        "G [T] = contract(TN, SN, TS -> T)(Q, K, causal())",
    ),
    "a contraction in a reversed write": (
        "contract(TN, SN, SP, TS -> TP)(Q, K, V, L)",
        "[T, P]",
        "reverse(semiseparable(log = g, write = contract(SN, SN -> S)(K, D)))",
    ),
    "a mask in place": ("contract(TN, SN, SP, TS -> TP)(Q, K, V, semiseparable(log = g))", "[T, P]", ""),
    "chunks": ("contract(TN, SN, SP, TS -> TP)(Q, K, V, L)", "[T, P]", "semiseparable(log = g, shift = 1)"),
}


def layer_of(contraction: str, axes: str, mask: str, *before: str, rng: random.Random, targets: int, sources: int) -> Layer:
    """A layer of one contraction, with the operands that it names."""
    layer = Layer(rng, {**SIZES, "T": targets, "S": sources})
    text = " ".join((contraction, mask, *before))
    words = set("".join(c if c.isalnum() else " " for c in text).split())
    for name, own in OPERANDS.items():
        if name in words:
            layer.declare(name, own, values="log" if name == "g" or (name == "D" and "log = D" in mask) else "normal", role="input")
    extra = "N" if "TSN ->" in contraction and "B1" not in contraction else ""
    masks = [f"L [T, S{', N' if extra else ''}] = {mask}"] if mask else []
    layer.definitions = [*before, *masks, f"Y {axes} = {contraction}"]
    return layer


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    for seed, (targets, sources) in enumerate(((5, 5), (CHUNK + 3, CHUNK + 3), (9, 4), (3, 7), (1, 1), (0, 0))):
        if targets != sources and any(word in name for word in ("reversed", "flipped", "a mixing")):
            continue
        layer = layer_of(*SHAPES[name], rng=random.Random(seed), targets=targets, sources=sources)
        if targets == 0 and name == "keeps neither":
            continue
        mistakes, refusals = check(layer.text, layer.tensors)
        assert not mistakes, f"T {targets}, S {sources}\n{layer.text}\n{mistakes}"
        assert "chosen" not in refusals, f"{layer.text}\n{refusals}"
