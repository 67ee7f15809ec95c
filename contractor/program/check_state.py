"""Can a layer carry a state past a position? If not, the reason in a sentence, for whoever asks for a state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from contractor.program.expression import (
    POSITIONS,
    Apply,
    Concat,
    Constant,
    Contract,
    Expression,
    Flipped,
    Leaf,
    Mask,
    MaskProduct,
    MaskSum,
    Named,
    Outer,
    Position,
    Reduce,
    Relabel,
    Reversed,
    Scaled,
    Size,
    Variable,
    children,
)
from contractor.program.masks import MASKS
from contractor.program.place import LAG, Binary, Place, Whole
from contractor.program.program import Definition, MaskDefinition

KEEP_ZERO = ("negate", "abs", "sign", "real", "imag", "conj", "relu", "square", "sqrt", "tanh", "sin", "erf", "log1p")


def stateless(definitions: tuple[Definition | MaskDefinition, ...], outputs: tuple[Expression, ...]) -> str:
    """Why no state can be carried past a position, "" if one can: only what the outputs read counts."""
    values = {one.name: one.value for one in definitions if isinstance(one, Definition)}
    reached = reachable(values, outputs)
    causal: set[str] = set()
    for name, value in values.items():
        if zero_ahead(value, causal):
            causal.add(name)
    seen: set[int] = set()
    named = [(f"`{name}`", value) for name, value in values.items() if name in reached]
    for place, value in (*named, *(("the output", value) for value in outputs)):
        for node in every(value, seen):
            if reason := reads_ahead(node, causal):
                return f"{place} {reason}"
    return ""


def reachable(values: dict[str, Expression], outputs: tuple[Expression, ...]) -> set[str]:
    """The definitions that the outputs read, directly or not."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting = list(outputs)
    while waiting:
        names = {node.name for node in every(waiting.pop(), seen) if isinstance(node, Variable) and node.name in values}
        waiting += [values[name] for name in names - found]
        found |= names
    return found


def every(expression: Expression, seen: set[int]) -> Iterator[Expression]:
    """All nodes of an expression, those in the arguments of its masks and the tensors behind relabels among them.

    seen: masks that were entered before; they are shared between names, and each is entered once.
    """
    yield expression
    for child in children(expression):
        yield from every(child, seen)
    if isinstance(expression, Contract) and expression.mask is not None:
        yield from arguments(expression.mask, seen)
    elif isinstance(expression, Reduce) and expression.under is not None:
        yield from arguments(expression.under, seen)


def arguments(mask: Mask, seen: set[int]) -> Iterator[Expression]:
    """All nodes in the arguments and factors of a mask that was not entered before."""
    if id(mask) in seen:
        return
    seen.add(id(mask))
    match mask:
        case Leaf():
            for _, value in mask.arguments:
                yield from every(value, seen)
        case MaskProduct() | MaskSum():
            yield from arguments(mask.left, seen)
            yield from arguments(mask.right, seen)
        case Scaled():
            yield from every(mask.factor, seen)
            yield from arguments(mask.mask, seen)
        case Reversed() | Flipped() | Named():
            yield from arguments(mask.mask, seen)
        case _:
            assert_never(mask)


def reads_ahead(node: Expression, causal: set[str]) -> str:
    """What in this node needs positions that are not there yet, or ""."""
    match node:
        case Size(axis="T" | "S"):
            return f"reads the size {node.axis}"
        case Reduce() if node.under is None:
            over = [axis for axis in node.over if axis in POSITIONS]
            ahead = over and not (over == ["S"] and zero_ahead(node.value, causal) and node.function == "sum")
            return f"reduces over {over[0]} outside a causal mask" if ahead else ""
        case Reduce():
            over = [axis for axis in node.over if axis in POSITIONS]
            causally = over == ["S"] and node.under is not None and is_causal(node.under)
            return "" if causally else f"reduces over {over[0]} outside a causal mask"
        case Contract():
            summed = {axis for own in node.letters for axis in own if axis in POSITIONS} | set(POSITIONS if node.mask else ())
            over = sorted(summed - set(node.axes))
            return f"reduces over {over[0]} outside a causal mask" if over and not mixes_causally(node, over, causal) else ""
        case _:
            return ""


def mixes_causally(node: Contract, summed: list[str], causal: set[str]) -> bool:
    """True if a contraction sums over S alone and something in it is zero ahead of the target."""
    return summed == ["S"] and "T" in node.axes and is_zero_ahead(node, causal)


def is_zero_ahead(node: Contract, causal: set[str]) -> bool:
    """True if the mask or an operand is zero for sources ahead of the target."""
    return (node.mask is not None and is_causal(node.mask)) or any(zero_ahead(operand, causal) for operand in node.operands)


def zero_ahead(value: Expression, causal: set[str]) -> bool:
    """True if a value over [T, S] is known to be 0 wherever the source is ahead of the target."""
    if not set(POSITIONS) <= set(value.axes):
        return False
    match value:
        case Variable():
            return value.name in causal
        case Reduce():
            kept = not set(value.over) & set(POSITIONS) and value.function in ("sum", "mean", "l2norm", "rmsnorm")
            masked = value.under is not None and is_causal(value.under)
            return masked or (kept and zero_ahead(value.value, causal))
        case Contract():
            return is_zero_ahead(value, causal)
        case Apply(function="*"):
            return any(zero_ahead(argument, causal) for argument in value.arguments)
        case Apply(function="+" | "-"):
            return all(zero_ahead(argument, causal) for argument in value.arguments)
        case Apply(function="/"):
            return zero_ahead(value.arguments[0], causal)
        case Apply():
            return value.function in KEEP_ZERO and zero_ahead(value.arguments[0], causal)
        case Concat():
            return all(zero_ahead(part, causal) for part in value.parts)
        case Outer():
            return zero_ahead(value.left, causal) or zero_ahead(value.right, causal)
        case Relabel() | Constant() | Size() | Position():
            return False
        case _:
            assert_never(value)


def is_causal(mask: Mask, future: bool = False) -> bool:
    """True if the mask is zero for sources ahead of the target (future: behind it)."""
    match mask:
        case Leaf():
            law = MASKS[mask.kind].law(mask)
            return not future and (bool(law.steps) or (law.support is not None and implies_causal(law.support)))
        case MaskProduct():
            return is_causal(mask.left, future) or is_causal(mask.right, future)
        case MaskSum():
            return is_causal(mask.left, future) and is_causal(mask.right, future)
        case Scaled() | Named():
            return is_causal(mask.mask, future)
        case Reversed() | Flipped():
            return is_causal(mask.mask, not future)
        case _:
            assert_never(mask)


def implies_causal(place: Place) -> bool:
    """True if a condition can hold for lag ≥ 0 only, seen from its form."""
    match place:
        case Binary(sign="&"):
            return implies_causal(place.left) or implies_causal(place.right)
        case Binary(sign="|"):
            return implies_causal(place.left) and implies_causal(place.right)
        case Binary(sign=">=", right=Whole(value=least)):
            return place.left == LAG and least >= 0
        case _:
            return False
