"""Ordinary contractions: two operands at a time, in the order that the planner found."""

from __future__ import annotations

from functools import reduce
from math import lcm

import opt_einsum
import torch
from torch import Tensor

from contractor.program.evaluate import einsum
from contractor.program.expression import Contract
from contractor.program.values import Value, grouped

Path = tuple[tuple[int, ...], ...]


def pairwise(contract: Contract, operands: tuple[Value, ...], path: Path) -> Value:
    """The contraction along a path of opt_einsum's kind: each step names the operands that it joins, the result comes last."""
    if len(operands) <= 2:
        return einsum(contract, operands)
    heads = lcm(*(operand.heads for operand in operands))
    dtype = reduce(torch.promote_types, (operand.tensor.dtype for operand in operands))
    tensors = [grouped(dimensioned(operand, letters), heads).to(dtype) for operand, letters in zip(operands, contract.letters, strict=True)]
    full = [spread(tensor, tensors) for tensor in tensors]
    names = dict.fromkeys(letter for own in contract.letters for letter in own)
    code = dict(zip(names, (opt_einsum.get_symbol(index + len(BATCH_HEAD)) for index in range(len(names))), strict=True))
    terms = [BATCH_HEAD + "".join(code[letter] for letter in letters) for letters in contract.letters]
    result = BATCH_HEAD + "".join(code[letter] for letter in contract.axes)
    joined = opt_einsum.contract(f"{','.join(terms)}->{result}", *full, optimize=[tuple(step) for step in path])
    return Value(joined, contract.axes)


BATCH_HEAD = "ab"  # the first two symbols of opt_einsum


def dimensioned(operand: Value, letters: tuple[str, ...]) -> Tensor:
    """The operand's tensor; a plain number with batch and head of size 1."""
    return operand.tensor if operand.tensor.dim() else operand.tensor.reshape((1,) * (2 + len(letters)))


def spread(tensor: Tensor, others: list[Tensor]) -> Tensor:
    """The tensor with batch and heads in full (a view)."""
    batch = max(other.shape[0] for other in others)
    heads = max(other.shape[1] for other in others)
    return tensor.expand(batch, heads, *tensor.shape[2:])
