"""Small programs built by hand, so that the planner is tested without the parser."""

from __future__ import annotations

import pytest

from contractor.program.expression import Apply, Concat, Contract, Expression, Leaf, Number, Outer, Relabel, Variable
from contractor.program.program import Definition, Operand, Program

REAL = Number.REAL


def tensor(name: str, *axes: str) -> Variable:
    return Variable(name, axes, REAL)


def operand(name: str, *axes: str) -> Operand:
    return Operand(name, "input", axes)


def contract(letters: str, *operands: Expression) -> Contract:
    """An ordinary contraction from its letters, one character an axis."""
    left, result = letters.split("->")
    return Contract(operands, tuple(tuple(each) for each in left.split(",")), None, (), tuple(result), REAL)


def program(operands: tuple[Operand, ...], output: Expression, *definitions: Definition, square: bool = False) -> Program:
    return Program("layer", operands, definitions, (output,), square)


@pytest.fixture
def scores() -> Program:
    """`(Q Kᵀ) V`, an ordinary contraction of three operands."""
    value = contract("TN,SN,SP->TP", tensor("Q", "T", "N"), tensor("K", "S", "N"), tensor("V", "S", "P"))
    return program((operand("Q", "T", "N"), operand("K", "S", "N"), operand("V", "S", "P")), value)


@pytest.fixture
def attention() -> Program:
    """The same under a causal mask."""
    operands = (operand("Q", "T", "N"), operand("K", "S", "N"), operand("V", "S", "P"))
    letters, causal = (("T", "N"), ("S", "N"), ("S", "P")), Leaf("causal", (), ())
    return program(operands, Contract(tuple(tensor(one.name, *one.axes) for one in operands), letters, causal, (), ("T", "P"), REAL))


@pytest.fixture
def taylor() -> Program:
    """Features 1, x and outer(x, x) of Q as F, and 1 and outer(D, D) of D [P] as G; axes without a name share a letter."""
    query, weight, one = tensor("Q", "T", "N"), tensor("D", "P"), tensor("one")
    square = Apply("abs", (Outer(query, query, "Z0", ("T", "Z0"), REAL),), ("T", "Z0"), REAL)
    phi = Concat((one, query, square), "F", ("T", "F"), REAL)
    psi = Concat((one, Outer(weight, weight, "Z0", ("Z0",), REAL)), "G", ("G",), REAL)
    renamed = Apply("abs", (Relabel(query, ("S", "M")),), ("S", "M"), REAL)
    output = contract("TF,SM,P,G->TSFMPG", tensor("phi", "T", "F"), renamed, weight, tensor("psi", "G"))
    operands = (operand("Q", "T", "N"), Operand("D", "param", ("P",)), Operand("one", "param", ()))
    definitions = (Definition("phi", ("T", "F"), phi, REAL), Definition("psi", ("G",), psi, REAL))
    return program(operands, output, *definitions, square=True)
