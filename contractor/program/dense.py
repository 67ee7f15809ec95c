"""Any mask expression as a dense tensor, by definition: sums multiplied out, entries multiplied, matrices in order by loops.

This is the oracle's own reading of a mask: it uses no law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import lcm
from typing import assert_never

import torch
from torch import Tensor

from contractor.errors import ContractorError
from contractor.program.expression import Expression, Flipped, Leaf, Mask, MaskProduct, MaskSum, Named, Reversed, Scaled
from contractor.program.masks import MASKS
from contractor.program.masks.mask import Entries, Parameter
from contractor.program.values import Value, aligned, grouped, joint, lined_up


@dataclass(frozen=True, slots=True)
class Grid:
    """How many targets and sources there are, and what an argument of a mask is: its axes by name, float64, complex128 or int64."""

    targets: int
    sources: int
    value: Callable[[Expression], Value]


@dataclass(frozen=True, slots=True)
class Factor:
    """A leaf, read with t and s exchanged (reverse), on the mirrored sequence (flip), or both."""

    leaf: Leaf
    exchanged: bool
    mirrored: bool


@dataclass(frozen=True, slots=True)
class Product:
    """Numbers times leaves, in the order written."""

    coefficient: tuple[Expression, ...]
    factors: tuple[Factor, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """The matrices of one factor, [batch, head, S, N, N]; shift 1: the one at the target itself is left out."""

    factor: Factor
    matrices: Tensor


def dense_mask(mask: Mask, grid: Grid) -> Value:
    """L [batch, head, T, S, *mask.axes]; an extra axis over which nothing differs may be of size 1."""
    axes = ("T", "S", *mask.axes)
    found = products(mask, False, False)
    matrix = any(MASKS[factor.leaf.kind].matrix for product in found for factor in product.factors)
    values = [matrix_product(product, mask, grid) if matrix else entrywise(product, grid) for product in found]
    total = values[0]
    for value in values[1:]:
        left, right = aligned((total, value), axes)
        total = Value(left + right, axes)
    return Value(lined_up(total, axes), axes)


def products(mask: Mask, exchanged: bool, mirrored: bool) -> tuple[Product, ...]:
    """The mask as a sum of products of leaves."""
    match mask:
        case Leaf():
            return (Product((), (Factor(mask, exchanged, mirrored),)),)
        case Named():
            return products(mask.mask, exchanged, mirrored)
        case Reversed():
            return products(mask.mask, not exchanged, mirrored)
        case Flipped():
            return products(mask.mask, exchanged, not mirrored)
        case MaskSum():
            return products(mask.left, exchanged, mirrored) + products(mask.right, exchanged, mirrored)
        case Scaled():
            inner = products(mask.mask, exchanged, mirrored)
            return tuple(Product((mask.factor, *product.coefficient), product.factors) for product in inner)
        case MaskProduct():
            left, right = products(mask.left, exchanged, mirrored), products(mask.right, exchanged, mirrored)
            return tuple(Product(a.coefficient + b.coefficient, a.factors + b.factors) for a in left for b in right)
        case _:
            assert_never(mask)


# ---- one leaf -----------------------------------------------------------------------------------------------------------------


def given(factor: Factor, grid: Grid) -> Entries:
    """What the kind's definition is given."""
    leaf = factor.leaf
    values = {name: grid.value(expression) for name, expression in leaf.arguments}
    heads = lcm(*(value.heads for value in values.values()))
    parameters = [parameter for parameter in MASKS[leaf.kind].parameters if parameter.name in values]
    arguments = {one.name: grouped(argument(one, values[one.name], factor), heads) for one in parameters}
    has_position = {name: "T" in value.axes or "S" in value.axes for name, value in values.items()}
    t = torch.arange(grid.targets) + (grid.sources - grid.targets)
    extra = tuple(1 for _ in leaf.axes)
    return Entries(t, torch.arange(grid.sources), extra, arguments, has_position, leaf.shift)


def argument(parameter: Parameter, value: Value, factor: Factor) -> Tensor:
    """An argument over [batch, head, its positions, *extra, own axis], mirrored with the sequence."""
    positions = tuple(axis for axis in ("T", "S") if axis in value.axes)
    own = tuple(axis for axis in value.axes if axis not in (*positions, *factor.leaf.axes))
    axes = (*positions, *factor.leaf.axes, *own)
    tensor = lined_up(value, axes)
    if not tensor.dim():
        tensor = tensor.reshape(1, 1, *(1 for _ in axes))
    if parameter.features != "none" and not tensor.is_complex():
        tensor = tensor.to(torch.float64)
    return tensor.flip([2 + index for index in range(len(positions))]) if factor.mirrored else tensor


def entry(factor: Factor, grid: Grid) -> Value:
    """The entries of one leaf that is no matrix, turned as it stands."""
    found = MASKS[factor.leaf.kind].entry(given(factor, grid))
    found = found.flip(2, 3) if factor.mirrored else found
    return Value(found.transpose(2, 3) if factor.exchanged else found, ("T", "S", *factor.leaf.axes))


def entrywise(product: Product, grid: Grid) -> Value:
    """The product of a product's entries."""
    return times([grid.value(number) for number in product.coefficient] + [entry(factor, grid) for factor in product.factors])


def times(values: list[Value]) -> Value:
    """The values multiplied."""
    axes = joint(values)
    total, *rest = aligned(values, axes)
    for tensor in rest:
        total = total * tensor
    return Value(total, axes)


# ---- matrices -----------------------------------------------------------------------------------------------------------------


def matrix_product(product: Product, mask: Mask, grid: Grid) -> Value:
    """A product in a matrix mask: scalars times ordered products of matrices; a diagonal with transitions is a matrix too."""
    axes = ("T", "S", *mask.axes)
    scalars = [grid.value(number) for number in product.coefficient]
    steps: list[Step] = []
    for factor in product.factors:
        if MASKS[factor.leaf.kind].matrix:
            steps.append(Step(factor, MASKS[factor.leaf.kind].entry(given(factor, grid))))
        elif is_diagonal(factor.leaf):
            steps.append(Step(factor, diagonal_steps(factor, mask, grid)))
            scalars += write_of(factor, grid)
        else:
            scalars.append(Value(entry(factor, grid).tensor.flatten(3), ("T", "S")))
    return times([Value(ordered(steps, mask, grid), axes), *scalars])


def is_diagonal(leaf: Leaf) -> bool:
    """True if a gate beside a matrix differs over the matrix' rows. Nothing else may."""
    features = {name for name, value in leaf.arguments for axis in value.axes if axis in leaf.axes}
    if features - {"gamma", "a", "log"} or (features and (not MASKS[leaf.kind].shifts or leaf.argument("left") is not None)):
        raise ContractorError(f"beside a matrix {leaf.kind}() may differ over the matrix' axes by its gates only, and with rank 1")
    return bool(features)


def diagonal_steps(factor: Factor, mask: Mask, grid: Grid) -> Tensor:
    """The transitions of a diagonal gate as matrices: what its own mask says of each position and the one before."""
    arguments = tuple((name, value) for name, value in factor.leaf.arguments if name != "write")
    plain = replace(factor, leaf=replace(factor.leaf, arguments=arguments, shift=0))
    square = replace(given(plain, grid), t=torch.arange(grid.sources))
    entries = Value(MASKS[factor.leaf.kind].entry(square), ("T", "S", *factor.leaf.axes))
    beside = lined_up(entries, ("T", "S", *mask.axes))
    crossed = beside.diagonal(-1, 2, 3).movedim(-1, 2)
    never = torch.ones_like(beside[:, :, :1].sum(3))
    return torch.diag_embed(torch.cat((never, crossed), 2).flatten(-2))


def write_of(factor: Factor, grid: Grid) -> list[Value]:
    """The write of a diagonal gate: a factor on the source (reversed: on the target)."""
    write = factor.leaf.argument("write")
    if write is None:
        return []
    return [Value(grid.value(write).tensor.exp(), ("T",) if factor.exchanged else ("S",))]


def ordered(steps: list[Step], mask: Mask, grid: Grid) -> Tensor:
    """The ordered products [batch, head, T, S, N, N]; factors of opposite directions are multiplied entry by entry."""
    groups: dict[tuple[bool, bool], list[Step]] = {}
    for step in steps:
        groups.setdefault((step.factor.exchanged, step.factor.mirrored), []).append(step)
    if len({exchanged != mirrored for exchanged, mirrored in groups}) < len(groups):
        raise ContractorError("matrices of a reversed and of a flipped mask have no order among each other")
    size = steps[0].matrices.shape[-1] if steps else width(mask, grid)
    total = torch.eye(size, dtype=torch.float64).expand(1, 1, 1, 1, size, size)
    for (exchanged, mirrored), group in groups.items():
        found = ahead(group, grid) if exchanged else behind(group, grid)
        total = multiplied(total, found.flip(2, 3) if mirrored else found)
    return total


def width(mask: Mask, grid: Grid) -> int:
    """The size of a matrix mask that this product has no matrix for."""
    for product in products(mask, False, False):
        for factor in product.factors:
            if MASKS[factor.leaf.kind].matrix:
                return MASKS[factor.leaf.kind].entry(given(factor, grid)).shape[-1]
    raise AssertionError("a matrix mask holds a matrix")


def multiplied(left: Tensor, right: Tensor) -> Tensor:
    """A product of matrices over [batch, head, …], in the larger of their dtypes, heads grouped."""
    dtype = torch.promote_types(left.dtype, right.dtype)
    heads = lcm(left.shape[1], right.shape[1])
    return grouped(left, heads).to(dtype) @ grouped(right, heads).to(dtype)


def one_step(steps: list[Step]) -> Tensor:
    """The transition of every position: the factors as written, the left one applied last."""
    total = steps[0].matrices
    for step in steps[1:]:
        total = multiplied(total, step.matrices)
    return total


def last_step(steps: list[Step]) -> Tensor:
    """The transition at the end of a product: factors with shift 1 are left out."""
    late = [step for step in steps if not step.factor.leaf.shift]
    if late:
        return one_step(late)
    return torch.eye(steps[0].matrices.shape[-1], dtype=torch.float64).expand_as(steps[0].matrices)


def behind(steps: list[Step], grid: Grid) -> Tensor:
    """Products over s < j ≤ t, newest on the left (shift 1: over s < j < t, and nothing at t = s)."""
    whole, last = one_step(steps), last_step(steps)
    order = torch.arange(grid.sources).reshape(-1, 1, 1)
    identity, on_diagonal = diagonals(steps, whole)
    crossed = torch.zeros_like(whole)
    rows = [crossed]
    for t in range(grid.sources):
        rows.append(torch.where(order < t, multiplied(last[:, :, t : t + 1], crossed), torch.where(order == t, on_diagonal, 0)))
        crossed = torch.where(order < t, multiplied(whole[:, :, t : t + 1], crossed), torch.where(order == t, identity, 0))
    places = torch.arange(grid.targets) + (grid.sources - grid.targets) + 1
    return torch.stack(rows, 2)[:, :, places.clamp(min=0)]


def ahead(steps: list[Step], grid: Grid) -> Tensor:
    """Products over t < j ≤ s, the factor nearest the target on the left (shift 1: over t < j < s, and nothing at t = s)."""
    whole, last = one_step(steps), last_step(steps)
    order = torch.arange(grid.sources).reshape(-1, 1, 1)
    identity, on_diagonal = diagonals(steps, whole)
    crossed = torch.zeros_like(whole)
    rows: list[Tensor] = []
    for t in reversed(range(grid.sources)):
        if t + 1 < grid.sources:
            crossed = torch.where(order == t + 1, identity, multiplied(whole[:, :, t + 1 : t + 2], crossed))
        rows.append(torch.where(order > t, multiplied(crossed, last), torch.where(order == t, on_diagonal, 0)))
    return torch.stack(rows[::-1], 2) if rows else whole.unsqueeze(2)[:, :, :0]


def diagonals(steps: list[Step], like: Tensor) -> tuple[Tensor, Tensor]:
    """The identity, and what stands at t = s."""
    identity = torch.eye(like.shape[-1], dtype=like.dtype)
    shifted = any(step.factor.leaf.shift for step in steps)
    return identity, torch.zeros_like(identity) if shifted else identity
