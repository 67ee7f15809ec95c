"""Contractions: letters of operands and result, and the one mask that may stand among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contractor.errors import Span
from contractor.program.check_mask import is_mask, read_mask
from contractor.program.check_scope import (
    AXIS,
    IMPLICIT,
    MOST_AXES,
    MaskSymbol,
    Read,
    Scope,
    Tensor,
    features_of,
    implicit,
    plural,
    shown,
    union,
)
from contractor.program.expression import POSITIONS, Axes, Contract, Expression, Mask, Number
from contractor.program.traits import bare_extra, mask_number
from contractor.text import spec

Letters = Mapping[str, Span]


@dataclass(frozen=True, slots=True)
class Factor:
    """One operand that has been read: a tensor with its letters in its own axis order, or the mask with its extra letters."""

    value: Expression | None
    mask: Mask | None
    letters: Axes


def contraction(scope: Scope, node: spec.Contraction, read: Read) -> Contract | None:
    """`contract(TN, SN, SP, TS -> TP)(Q, K, V, L)`."""
    before = len(scope.mistakes)
    if len(node.operands) != len(node.arguments):
        count = plural(len(node.operands), "operand")
        return scope.wrong(f"the contraction names {count} and is given {len(node.arguments)}", *(name.span for name in node.operands))
    letters = [split(scope, name) for name in node.operands]
    result = split(scope, node.result) if node.result is not None else {}
    factors = [factor(scope, *pair, read) for pair in zip(letters, node.arguments, strict=True)]
    masked = [argument.span for argument, one in zip(node.arguments, factors, strict=True) if one is not None and one.mask is not None]
    if len(masked) > 1:
        return scope.wrong("a contraction has at most one mask", *masked, hint="multiply them into one: `L [T, S] = L1 * L2`")
    if result is None or len(scope.mistakes) > before:
        return None
    known = [one for one in factors if one is not None]
    return contracted(scope, node, known, [one for one in letters if one is not None], result) if len(known) == len(factors) else None


def split(scope: Scope, name: spec.Name) -> Letters | None:
    """`TN2` as its axes T and N2, each with its place; none twice."""
    found: dict[str, Span] = {}
    matches = list(AXIS.finditer(name.text))
    if "".join(match[0] for match in matches) != name.text:
        return scope.wrong(f"`{name.text}` is not a row of axes", name.span, hint="write one upper-case letter for each axis, as in `TN`")
    for match in matches:
        span = Span(name.span.start + match.start(), name.span.start + match.end())
        if match[0] in IMPLICIT:
            return implicit(scope, match[0], span)
        if match[0] in found:
            return scope.wrong(
                f"the axis {match[0]} stands twice in `{name.text}`", found[match[0]], span, hint="a diagonal cannot be taken"
            )
        found[match[0]] = span
    return found


def factor(scope: Scope, letters: Letters | None, argument: spec.Expression, read: Read) -> Factor | None:
    """One operand under its letters."""
    if is_mask(scope, argument):
        return None if letters is None else mask_factor(scope, letters, argument, read)
    value = read(scope, argument, None if letters is None else tuple(letters))
    if value is None or letters is None:
        return None
    symbol = scope.symbols.get(argument.text) if isinstance(argument, spec.Name) else None
    if isinstance(symbol, Tensor) and isinstance(argument, spec.Name):
        renamed = rename(scope, argument, symbol.written, letters)
        return None if renamed is None else Factor(value, None, tuple(renamed[axis] for axis in value.axes))
    if set(letters) != set(value.axes):
        message = f"the letters {''.join(letters)} do not name the axes {shown(value.axes)} of this operand"
        hint = "the letters of an expression are its axes, once each, in any order; only a plain name is renamed"
        return scope.wrong(message, argument.span, *letters.values(), hint=hint)
    return Factor(value, None, value.axes)


def rename(scope: Scope, name: spec.Name, written: Axes, letters: Letters) -> dict[str, str] | None:
    """A plain name's axes in order under the contraction's letters; positions keep theirs."""
    if len(letters) != len(written):
        has = f"`{name.text}` has {plural(len(written), 'axis')} {shown(written)}"
        message = f"{has}, the contraction gives it {len(letters)}: {''.join(letters)}"
        return scope.wrong(message, *letters.values(), name.span)
    for old, (new, span) in zip(written, letters.items(), strict=True):
        if old != new and (old in POSITIONS or new in POSITIONS):
            turn = (
                "`reverse(…)` exchanges T and S of a mask" if old in POSITIONS and is_mask(scope, name) else f"or relabel: `{name.text}[…]`"
            )
            hint = f"its axes in order are {shown(written)}, and a position keeps its letter; {turn}"
            return scope.wrong(f"the axis {old} of `{name.text}` cannot be called {new}", span, name.span, hint=hint)
    return dict(zip(written, letters, strict=True))


def mask_factor(scope: Scope, letters: Letters, argument: spec.Expression, read: Read) -> Factor | None:
    """The mask: by name its letters rename its axes in order; in place they are its axes, the extra ones in the order written."""
    symbol = scope.symbols.get(argument.text) if isinstance(argument, spec.Name) else None
    if isinstance(symbol, MaskSymbol) and isinstance(argument, spec.Name):
        renamed = rename(scope, argument, symbol.written, letters)
        return None if renamed is None else Factor(None, symbol.named, tuple(renamed[axis] for axis in symbol.named.axes))
    extra = features_of(tuple(letters))
    if not set(POSITIONS) <= set(letters):
        return scope.wrong("a mask stands over T and S", *letters.values(), hint="its letters are T, S and its extra axes")
    found = read_mask(scope, argument, extra, read)
    if found is None:
        return None
    bare = bare_extra(found.mask, extra)
    if bare and not found.matrix:
        return scope.wrong(f"this mask has no axis {bare[0]}", letters[bare[0]], argument.span, hint="define it on its own to broadcast it")
    return Factor(None, found.mask, extra)


def contracted(scope: Scope, node: spec.Contraction, factors: list[Factor], letters: list[Letters], result: Letters) -> Contract | None:
    """The node, once every axis is in two operands, or in one and the result."""
    before = len(scope.mistakes)
    holders = {axis: [place for place, one in enumerate(letters) if axis in one] for one in letters for axis in one}
    if len(holders) > MOST_AXES:
        return scope.wrong(f"a contraction has at most {MOST_AXES} axes", node.span)
    for axis, span in result.items():
        if axis not in holders:
            scope.wrong(f"the axis {axis} is in the result, but in no operand", span)
    for axis, places in holders.items():
        if len(places) == 1 and axis not in result:
            alone(scope, axis, letters[places[0]][axis], node.arguments[places[0]].span, factors[places[0]].mask is not None)
    if len(scope.mistakes) > before:
        return None
    scope.sized |= set(result)
    operands = [(one.value, one.letters) for one in factors if one.value is not None]
    mask, mask_axes = next(((one.mask, one.letters) for one in factors if one.mask is not None), (None, ()))
    numbers = [value.number for value, _ in operands] + ([] if mask is None else [mask_number(mask)])
    return Contract(
        operands=tuple(value for value, _ in operands),
        letters=tuple(own for _, own in operands),
        mask=mask,
        mask_axes=mask_axes,
        axes=union(tuple(result)),
        number=max([*numbers, Number.REAL]),
    )


def alone(scope: Scope, axis: str, span: Span, operand: Span, masked: bool) -> None:
    """An axis that is in one operand only: most often a slip."""
    hint = f"sum it beforehand, `sum(… over {axis})`, or name it in the result"
    if masked:
        hint = f"give it to another operand, or to the result; for row sums of a mask, define `ones [{axis}] = 1` and contract with it"
    scope.wrong(f"the axis {axis} is in one operand only, and not in the result", span, operand, hint=hint)
