"""Expressions on torch tensors, by definition: what the float64 oracle and the operator share.

Broadcasting is by axis name; head counts meet as in grouped heads (head h of H reads head h // (H / count)). Numbers written in the
spec and sizes are tensors without dimensions, so that torch's promotion leaves the other operand's dtype alone.

Dtypes: elementwise functions promote as torch does; integers become `real` where a real result is due. Norms, softmax and
discretisations on a matrix are computed in float32 at least and come back in the dtype of what they were given. A contraction
promotes its operands to one dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from math import lcm
from string import ascii_letters
from typing import Literal, Protocol, assert_never

import torch
from torch import Tensor

from contractor.errors import ArgumentError
from contractor.program.expression import (
    Apply,
    Axes,
    Concat,
    Constant,
    Contract,
    Expression,
    Number,
    Outer,
    Position,
    Reduce,
    Relabel,
    Size,
    Variable,
)
from contractor.program.functions import ELEMENTWISE
from contractor.program.reduce import reduced
from contractor.program.values import Value, aligned, grouped, joint, lined_up


class Reader(Protocol):
    """How expressions are read on tensors."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes of the axes; T and S are the own sequence's."""
        ...

    @property
    def real(self) -> torch.dtype:
        """What integers become."""
        ...

    @property
    def device(self) -> torch.device | str:
        """Where numbers go."""
        ...

    def look(self, name: str, /) -> Value:
        """An operand or a definition by name."""
        ...

    def mixing(self, expression: Contract | Apply | Reduce, /) -> Value | None:
        """A contraction that finds its operands itself, or what stands around one and is made with it, or what else is made in another way
        than by definition; None leaves it to that."""
        ...

    def contract(self, contract: Contract, operands: tuple[Value, ...], /) -> Value:
        """A contraction and its operands' values, in order (without a mask: `einsum`)."""
        ...

    def softmax(self, node: Reduce, value: Value, /) -> Value:
        """A softmax under a mask and its value (`reduce.masked_softmax` does it, given the mask)."""
        ...

    def positions(self, axis: Literal["T", "S"], /) -> Tensor:
        """What `pos` gives, integers [T] or [S], with the batch in front where that matters."""
        ...


def left(expression: Contract | Apply | Reduce) -> None:
    """No contraction finds its operands itself."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reader put together of functions."""

    look: Callable[[str], Value]
    contract: Callable[[Contract, tuple[Value, ...]], Value]
    softmax: Callable[[Reduce, Value], Value]
    sizes: Mapping[str, int]
    positions: Callable[[Literal["T", "S"]], Tensor]
    real: torch.dtype = torch.float32
    device: torch.device | str = "cpu"
    mixing: Callable[[Contract | Apply | Reduce], Value | None] = left


def evaluate(expression: Expression, reading: Reader) -> Value:
    """The value of an expression, its axes in the expression's order."""
    match expression:
        case Variable():
            return in_order(reading.look(expression.name), expression.axes)
        case Apply():
            whole = reading.mixing(expression)
            if whole is not None:
                return in_order(whole, expression.axes)
            return applied(expression, [argument(one, expression.number, reading) for one in expression.arguments], reading)
        case Constant():
            return number(expression.value)
        case Size():
            return number(reading.sizes[expression.axis])
        case Position():
            positions = reading.positions(expression.axis)
            return Value((positions if positions.dim() > 1 else positions[None])[:, None], expression.axes)
        case Relabel():
            return Value(evaluate(expression.value, reading).tensor, expression.axes)
        case Reduce():
            whole = reading.mixing(expression)
            if whole is not None:
                return in_order(whole, expression.axes)
            value = argument(expression.value, expression.number, reading)
            return in_order(reading.softmax(expression, value) if expression.under else reduced(expression, value), expression.axes)
        case Concat():
            return laid_out(expression, [argument(part, expression.number, reading) for part in expression.parts], reading)
        case Outer():
            return outer(expression, [evaluate(side, reading) for side in (expression.left, expression.right)])
        case Contract():
            return in_order(reading.mixing(expression) or contraction(expression, reading), expression.axes)
        case _:
            assert_never(expression)


def number(value: float) -> Value:
    """A plain number: float64 or int64, without dimensions."""
    return Value(torch.scalar_tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64, device="cpu"), ())


def in_order(value: Value, axes: Axes) -> Value:
    """The value with its axes in the order given (a view)."""
    return value if value.axes == axes else Value(lined_up(value, axes), axes)


def argument(expression: Expression, kind: Number, reading: Reader) -> Value:
    """The value of what a node is applied to, with integers as reals, where the node's result is real or complex."""
    if isinstance(expression, Constant) and kind is not Number.INT:
        return number(float(expression.value))
    value = evaluate(expression, reading)
    tensor = value.tensor
    if kind is Number.INT or tensor.is_floating_point() or tensor.is_complex():
        return value
    return Value(tensor.to(reading.real if tensor.dim() else torch.float64), value.axes)


# ---- elementwise -----------------------------------------------------------------------------------------------------------------


def applied(node: Apply, values: list[Value], reading: Reader) -> Value:
    """An elementwise function; a complex number without dimensions has the precision of the reader's reals."""
    function = ELEMENTWISE[node.function]
    if function.matrix:
        return on_matrix(node, values)
    axes = joint(values)
    result = function.apply(*aligned(values, axes))
    if result.is_complex() and not result.dim():
        result = result.to(torch.promote_types(reading.real, torch.complex64))
    return in_order(Value(result, axes), node.axes)


def on_matrix(node: Apply, values: list[Value]) -> Value:
    """A discretisation: the matrix A [..., N, M], its input [..., M], the step [..., 1, 1]."""
    function = ELEMENTWISE[node.function]
    row, column = values[0].axes[-2:]
    rows, columns = values[0].tensor.shape[-2:]
    if rows != columns:
        raise ArgumentError(f"{node.function}(): the matrix is square; {row} is {rows} and {column} is {columns}")
    rest = tuple(axis for axis in joint(values) if axis not in (row, column))
    matrix, *middle, step = aligned(values, (*rest, row, column))
    fed = [one.squeeze(-2) for one in middle]
    result = function.apply(matrix, *fed, step)
    axes = (*rest, row) if function.columns is not None else (*rest, row, column)
    return in_order(Value(result, axes), node.axes)


# ---- concat and outer ---------------------------------------------------------------------------------------------------------


def laid_out(node: Concat, parts: list[Value], reading: Reader) -> Value:
    """Parts end to end along the last of the node's axes."""
    common = tuple(axis for axis in node.axes if axis != node.axis)
    renamed = [
        Value(value.tensor, tuple(axis if axis in common else node.axis for axis in value.axes)) if value.tensor.dim() else value
        for value in parts
    ]
    tensors = aligned(renamed, (*common, node.axis))
    dtype = result_type(tensors, reading.real)
    device = next((one.device for one in tensors if one.dim()), reading.device)
    filled = [(one if one.dim() else one.reshape((1,) * (len(node.axes) + 2))).to(device, dtype) for one in tensors]
    shape = torch.broadcast_shapes(*(one.shape[:-1] for one in filled))
    return in_order(Value(torch.cat([one.expand(*shape, one.shape[-1]) for one in filled], -1), (*common, node.axis)), node.axes)


def result_type(tensors: list[Tensor], real: torch.dtype) -> torch.dtype:
    """The dtype in which tensors meet, by torch's rules; of plain numbers alone, `real`."""
    if not any(tensor.dim() for tensor in tensors):
        return torch.promote_types(real, torch.complex64) if any(tensor.is_complex() for tensor in tensors) else real
    sized = [tensor.dtype for tensor in tensors if tensor.dim()]
    due = reduce(torch.promote_types, sized)
    return reduce(lambda found, tensor: torch.result_type(torch.empty(1, dtype=found), tensor), tensors, due)


def outer(node: Outer, sides: list[Value]) -> Value:
    """The outer product over all features of both sides, row-major, the right one fastest."""
    positions = tuple(axis for axis in joint(sides) if axis in ("T", "S"))
    flat = [flattened(side, positions, node.axis) for side in sides]
    left, right = aligned(flat, (*positions, node.axis))
    product = left.unsqueeze(-1) * right.unsqueeze(-2) if left.dim() and right.dim() else left * right
    if not product.dim():
        product = product.reshape(1, 1, 1)
    joined = product.flatten(-2) if left.dim() and right.dim() else product
    return in_order(Value(joined, (*positions, node.axis)), node.axes)


def flattened(side: Value, positions: Axes, axis: str) -> Value:
    """All features of a side as one axis."""
    if not side.tensor.dim():
        return side
    own = tuple(letter for letter in side.axes if letter in positions)
    features = tuple(letter for letter in side.axes if letter not in positions)
    tensor = lined_up(side, (*own, *features))
    leading = 2 + len(own)
    return Value(tensor.reshape(*tensor.shape[:leading], tensor.shape[leading:].numel()), (*own, axis))


# ---- contractions -------------------------------------------------------------------------------------------------------------


def contraction(node: Contract, reading: Reader) -> Value:
    """A contraction of its operands' values."""
    operands = (argument(operand, node.number, reading) for operand in node.operands)
    return reading.contract(node, tuple(operands))


def einsum(node: Contract, operands: tuple[Value, ...]) -> Value:
    """An ordinary contraction (its mask, if any, is not read): Einstein summation with grouped heads, in one dtype.

    Raises ArgumentError where two operands give a letter different sizes (1 and another size too).
    """
    heads = lcm(*(operand.heads for operand in operands))
    dtype = reduce(torch.promote_types, (operand.tensor.dtype for operand in operands))
    names = dict.fromkeys(letter for own in node.letters for letter in own)
    code = dict(zip(names, ascii_letters[2:], strict=False))
    sizes: dict[str, int] = {}
    terms: list[str] = []
    tensors: list[Tensor] = []
    for operand, expression, letters in zip(operands, node.operands, node.letters, strict=True):
        renamed = dict(zip(expression.axes, letters, strict=True))
        for axis, size in zip(operand.axes, operand.tensor.shape[2:], strict=True):
            if sizes.setdefault(renamed[axis], size) != size:
                raise ArgumentError(f"the axis {renamed[axis]} of a contraction has the sizes {sizes[renamed[axis]]} and {size}")
        terms.append("ab" + "".join(code[renamed[axis]] for axis in operand.axes))
        tensors.append(grouped(operand.tensor, heads).to(dtype))
    result = "ab" + "".join(code[axis] for axis in node.axes)
    return Value(torch.einsum(f"{','.join(terms)}->{result}", *tensors), node.axes)
