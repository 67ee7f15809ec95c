"""Random Specs are shown and read back; random soups of tokens and of bytes give a Spec or a SpecError, and nothing else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contractor.errors import SpecError
from contractor.text.parse import parse
from contractor.text.show import show
from contractor.text.spec import (
    Arithmetic,
    Call,
    Constant,
    Contraction,
    Declaration,
    Definition,
    Expression,
    Layer,
    Name,
    Negation,
    Option,
    Output,
    Promise,
    Relabel,
    Spec,
)

RESERVED = {"layer", "input", "param", "output", "over", "under", "in", "complex", "int", "contract"}

identifiers = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(lambda text: text not in RESERVED)
names = st.builds(Name, identifiers)
some_names = st.lists(names, max_size=3).map(tuple)
finite = st.floats(min_value=0, allow_infinity=False).map(abs)
constants = st.builds(Constant, st.integers(0, 2**63 - 1) | finite)
leaves = names | constants | st.builds(Relabel, names, some_names)


def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, max_size=3).map(tuple)
    options = st.lists(st.builds(Option, names, inner), max_size=2).map(tuple)
    return (
        st.builds(Negation, inner)
        | st.builds(Arithmetic, st.sampled_from("+-*/^"), inner, inner)
        | st.builds(Call, names, several, options, some_names, st.none() | inner)
        | st.builds(Contraction, st.lists(names, min_size=1, max_size=3).map(tuple), st.none() | names, several)
    )


expressions = st.recursive(leaves, larger, max_leaves=12)
bounds = st.floats(allow_nan=False)
promises = st.none() | st.builds(Promise, bounds, bounds)
kinds = st.sampled_from(["real", "complex", "int"])
statements = (
    st.builds(Declaration, st.sampled_from(["input", "param"]), names, some_names, kinds, promises)
    | st.builds(Definition, names, some_names, expressions)
    | st.builds(Output, st.lists(expressions, min_size=1, max_size=3).map(tuple))
)
layers = st.builds(Layer, names, st.lists(statements, max_size=4).map(tuple))
specs = st.builds(Spec, st.lists(layers, min_size=1, max_size=3).map(tuple))


@settings(max_examples=150, deadline=None, print_blob=True)
@given(specs)
def test_round_trip(spec: Spec) -> None:
    again = parse(show(spec))
    assert again == spec
    assert repr(again) == repr(spec)
    assert show(again) == show(spec)


@settings(max_examples=150, deadline=None, print_blob=True)
@given(st.text(max_size=60) | st.binary(max_size=60))
def test_any_text(text: str | bytes) -> None:
    with pytest.raises(SpecError):
        parse(text)


SOUP = [
    *RESERVED,
    *"()[],=:+-*/^",
    "->",
    "\n",
    "\n",
    "x",
    "y",
    "TN",
    "N2",
    "inf",
    "2",
    "0.5",
    "1e999",
    "# c",
    "!",
    "é",
    "\n\nlayer a\n",
    "x [T] = ",
]


@pytest.mark.parametrize("seed", range(3))
def test_soup(seed: int) -> None:
    """A SpecError names at least one mistake, at places that lie in the text."""
    generator = random.Random(seed)
    for number in range(1000):
        text = " ".join(["layer a\n"] * (number % 2) + generator.choices(SOUP, k=generator.randint(1, 25)))
        try:
            spec = parse(text)
        except SpecError as error:
            places = [span for mistake in error.mistakes for span in mistake.spans]
            assert places, f"seed {seed}, text {text!r}"
            assert all(0 <= span.start <= span.stop <= len(text) + 1 for span in places), f"seed {seed}, text {text!r}"
        else:
            assert parse(show(spec)) == spec, f"seed {seed}, text {text!r}"


GOOD = (
    "layer a \n input X [ S , N ] : complex in [ 0 , inf ] \n "
    "Y [ T , N ] = f ( x , o = - 2 ^ x over S under L ) * contract ( TN , SN -> TS ) ( x , y [ T ] ) \n output Y , 2 \n"
)


@pytest.mark.parametrize("seed", range(3))
def test_damage(seed: int) -> None:
    """A good spec with a few tokens exchanged, removed or doubled."""
    generator = random.Random(seed)
    for _ in range(600):
        words = GOOD.split(" ")
        for place in generator.choices(range(len(words)), k=generator.randint(1, 3)):
            words[place] = generator.choice([generator.choice(SOUP), "", f"{words[place]} {words[place]}"])
        text = " ".join(words)
        try:
            spec = parse(text)
        except SpecError as error:
            assert error.mistakes, f"seed {seed}, text {text!r}"
        else:
            assert parse(show(spec)) == spec, f"seed {seed}, text {text!r}"
