"""Facts about a mask that are seen from its tree: its leaves, the kind of its numbers, the axes that something in it has."""

from __future__ import annotations

from typing import assert_never

from contractor.program.expression import Axes, Expression, Flipped, Leaf, Mask, MaskProduct, MaskSum, Named, Number, Reversed, Scaled
from contractor.program.masks import MASKS
from contractor.program.masks.mask import Rotation


def is_matrix(kind: str) -> bool:
    """True if the entries of this kind are matrices."""
    return kind in MASKS and MASKS[kind].matrix


def inside(mask: Mask) -> tuple[Mask, ...]:
    """The masks directly inside a mask."""
    match mask:
        case Leaf():
            return ()
        case MaskProduct() | MaskSum():
            return (mask.left, mask.right)
        case Scaled() | Reversed() | Flipped() | Named():
            return (mask.mask,)
        case _:
            assert_never(mask)


def arguments(mask: Mask) -> list[Expression]:
    """The expressions inside a mask: the arguments of its kinds and the scalars that multiply it."""
    own = [mask.factor] if isinstance(mask, Scaled) else []
    given = [value for _, value in mask.arguments] if isinstance(mask, Leaf) else []
    return [*own, *given, *(value for part in inside(mask) for value in arguments(part))]


def leaves(mask: Mask) -> list[Leaf]:
    """Every leaf of a mask, from left to right."""
    return [mask] if isinstance(mask, Leaf) else [leaf for inner in inside(mask) for leaf in leaves(inner)]


def factors_differ(mask: Mask) -> bool:
    """True if a product holds matrix factors of different shifts."""
    if isinstance(mask, MaskProduct):
        return len({leaf.shift for leaf in leaves(mask) if is_matrix(leaf.kind)}) > 1
    return any(factors_differ(inner) for inner in inside(mask))


def mask_number(mask: Mask) -> Number:
    """The kind of number of a mask's entries: real unless an argument, a factor or the kind itself is complex."""
    if isinstance(mask, Leaf):
        rotates = any(isinstance(weight, Rotation) for weight in MASKS[mask.kind].law(mask).weights)
        return max([Number.COMPLEX if rotates else Number.REAL] + [value.number for _, value in mask.arguments])
    own = mask.factor.number if isinstance(mask, Scaled) else Number.REAL
    return max([own] + [mask_number(inner) for inner in inside(mask)])


def bare_extra(mask: Mask, extra: Axes) -> Axes:
    """The extra axes that nothing in the mask has."""
    held = {axis for leaf in leaves(mask) for _, value in leaf.arguments for axis in value.axes}
    return tuple(axis for axis in extra if axis not in held | named_axes(mask))


def named_axes(mask: Mask) -> set[str]:
    """The extra axes of the names in a mask."""
    own = set(mask.axes) if isinstance(mask, Named) else set[str]()
    return own.union(*(named_axes(inner) for inner in inside(mask)))
