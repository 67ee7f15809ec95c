"""The oracle: a layer by definition, in float64 or complex128, dense and without a plan. Autograd follows it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from itertools import pairwise
from math import lcm
from string import ascii_letters
from typing import Literal

import torch
from torch import Tensor

from contractor.errors import ArgumentError
from contractor.program.dense import Grid, dense_mask
from contractor.program.evaluate import Reading, einsum, evaluate
from contractor.program.expression import POSITIONS, Contract, Mask, Number, Reduce
from contractor.program.program import Definition, Operand, Program
from contractor.program.reduce import masked_softmax
from contractor.program.values import Value, broadcast, from_call, grouped, to_call

DTYPES = {Number.INT: torch.int64, Number.REAL: torch.float64, Number.COMPLEX: torch.complex128}


def reference(program: Program, tensors: Mapping[str, Tensor | complex], cu_seqlens: Tensor | None = None) -> tuple[Tensor, ...]:
    """The layer's outputs, [batch, position, head, features …] each.

    program: the layer (`op.program` of an operator). tensors: every operand by name, in the layouts of `Operand`, any dtype (they are
    computed in float64, complex128 or int64); a number does for an operand without axes.
    cu_seqlens: the bounds of packed sequences [count + 1]; the batch is then 1, and T and S are one length.
    Raises ArgumentError where a tensor is missing or does not fit.
    """
    operands = {operand.name: operand_value(operand, tensors) for operand in program.operands}
    if cu_seqlens is None:
        return evaluated(program, operands)
    bounds = [int(bound) for bound in cu_seqlens]
    sizes = axis_sizes(operands)
    if not bounds or bounds[0] != 0 or bounds != sorted(bounds) or {sizes["T"], sizes["S"]} != {bounds[-1]}:
        raise ArgumentError(f"cu_seqlens must rise from 0 to T = {sizes['T']} = S, not {bounds}")
    pairs = [(start, stop) for start, stop in pairwise(bounds) if stop > start] or [(0, 0)]
    pieces = [evaluated(program, {name: cut(value, *pair) for name, value in operands.items()}) for pair in pairs]
    return tuple(joined(output.axes, tuple(piece[index] for piece in pieces)) for index, output in enumerate(program.outputs))


def operand_value(operand: Operand, tensors: Mapping[str, Tensor | complex]) -> Value:
    """An operand's tensor in the oracle's dtype."""
    if operand.name not in tensors:
        raise ArgumentError(f"{operand.name} is not given")
    given = torch.as_tensor(tensors[operand.name])
    if given.is_complex() and operand.number < Number.COMPLEX:
        raise ArgumentError(f"{operand.name} is declared {operand.number.name.lower()}, and what is given is complex")
    return from_call(operand, given.to("cpu", DTYPES[operand.number]))


# ---- packed sequences ----------------------------------------------------------------------------------------------------------


def cut(value: Value, start: int, stop: int) -> Value:
    """One sequence of a packed value."""
    tensor = value.tensor
    for index, axis in enumerate(value.axes):
        if axis in POSITIONS:
            tensor = tensor.narrow(2 + index, start, stop - start)
    return Value(tensor, value.axes)


def joined(axes: tuple[str, ...], pieces: tuple[Tensor, ...]) -> Tensor:
    """The sequences' outputs packed again; between two sequences there is nothing."""
    positions = [axis for axis in axes if axis in POSITIONS]
    if not positions:
        if len(pieces) > 1:
            raise ArgumentError("an output without T and S cannot be packed: every sequence has its own")
        return next(iter(pieces))
    if len(positions) == 1:
        return torch.cat(pieces, 1)
    total = sum(piece.shape[2] for piece in pieces)
    shape = pieces[0].shape
    whole = torch.zeros((*shape[:2], total, total, *shape[4:]), dtype=pieces[0].dtype)
    start = 0
    for piece in pieces:
        stop = start + piece.shape[2]
        whole[:, :, start:stop, start:stop] = piece
        start = stop
    return whole


# ---- one sequence -----------------------------------------------------------------------------------------------------


def evaluated(program: Program, operands: Mapping[str, Value]) -> tuple[Tensor, ...]:
    """The outputs of one batch of sequences."""
    heads = most_heads(operands)
    sizes = axis_sizes(operands)
    known = dict(operands)
    reading = reading_of(known, sizes)
    for definition in program.definitions:
        if isinstance(definition, Definition):
            found = evaluate(definition.value, reading)
            measure(sizes, found)
            known[definition.name] = broadcast(found, definition.axes, sizes)
    batches = [value.tensor.shape[0] for value in operands.values()]
    batch = 0 if 0 in batches else max(batches, default=1)
    return tuple(to_call(evaluate(output, reading), batch, heads) for output in program.outputs)


def most_heads(operands: Mapping[str, Value]) -> int:
    """H, the most heads of any operand. Raises ArgumentError for a head count that does not divide it."""
    heads = max((value.heads for value in operands.values()), default=1)
    for name, value in operands.items():
        if value.heads < 1 or heads % value.heads:
            raise ArgumentError(f"{name} has {value.heads} heads, H is {heads}: a head count must divide it")
    return heads


def axis_sizes(operands: Mapping[str, Value]) -> dict[str, int]:
    """The size of every axis; where no operand has T (or S) it is the other's."""
    sizes: dict[str, int] = {}
    for value in operands.values():
        measure(sizes, value)
    for axis, other in (POSITIONS, POSITIONS[::-1]):
        if axis not in sizes and other in sizes:
            sizes[axis] = sizes[other]
    return sizes


def measure(sizes: dict[str, int], value: Value) -> None:
    """Adds the sizes of a value's axes."""
    for axis, size in zip(value.axes, value.tensor.shape[2:], strict=True):
        if sizes.setdefault(axis, size) != size:
            raise ArgumentError(f"the axis {axis} has the sizes {sizes[axis]} and {size}")


def reading_of(known: Mapping[str, Value], sizes: Mapping[str, int]) -> Reading:
    """How expressions are read here: masks are dense."""

    def mask(node: Mask) -> Value:
        return dense_mask(node, Grid(sizes["T"], sizes["S"], lambda argument: evaluate(argument, reading)))

    def contract(node: Contract, values: tuple[Value, ...]) -> Value:
        return einsum(node, values) if node.mask is None else mixed(node, values, mask(node.mask), sizes)

    def softmax(node: Reduce, value: Value) -> Value:
        assert node.under is not None
        weights = mask(node.under)
        return masked_softmax(node, value, weights, Value(torch.ones_like(weights.tensor, dtype=torch.bool), weights.axes))

    def positions(axis: Literal["T", "S"]) -> Tensor:
        return torch.arange(sizes[axis]) + (sizes["S"] - sizes[axis])

    reading = Reading(known.__getitem__, contract, softmax, sizes, positions, torch.float64)
    return reading


def mixed(node: Contract, values: tuple[Value, ...], mask: Value, sizes: Mapping[str, int]) -> Value:
    """A masked contraction: the mask is one more operand of the Einstein summation."""
    full = [sizes.get(axis, size) for axis, size in zip(mask.axes, mask.tensor.shape[2:], strict=True)]
    whole = Value(mask.tensor.expand(*mask.tensor.shape[:2], *full), mask.axes)
    axes = [*(operand.axes for operand in node.operands), mask.axes]
    letters = [*node.letters, ("T", "S", *node.mask_axes)]
    operands = (*values, whole)
    heads = lcm(*(operand.heads for operand in operands))
    dtype = reduce(torch.promote_types, (operand.tensor.dtype for operand in operands))
    code = dict(zip(dict.fromkeys(letter for own in letters for letter in own), ascii_letters[2:], strict=False))
    terms: list[str] = []
    for operand, declared, own in zip(operands, axes, letters, strict=True):
        renamed = dict(zip(declared, own, strict=True))
        terms.append("ab" + "".join(code[renamed[axis]] for axis in operand.axes))
    tensors = [grouped(operand.tensor, heads).to(dtype) for operand in operands]
    return Value(torch.einsum(f"{','.join(terms)}->{'ab' + ''.join(code[axis] for axis in node.axes)}", *tensors), node.axes)
