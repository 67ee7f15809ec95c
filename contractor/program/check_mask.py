"""Masks: the algebra of masks, and where a mask may stand. One kind with its arguments is read in `check_leaf`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from contractor.errors import Span
from contractor.program.check_leaf import read_leaf
from contractor.program.check_scope import (
    MOVE,
    TURNS,
    Broken,
    MaskSymbol,
    Read,
    Scope,
    Tensor,
    did_you_mean,
    listed,
    plural,
    shown,
)
from contractor.program.expression import (
    Axes,
    Expression,
    Flipped,
    Mask,
    MaskProduct,
    MaskSum,
    Number,
    Reversed,
    Scaled,
)
from contractor.program.masks import MASKS
from contractor.program.traits import factors_differ, is_matrix, mask_number
from contractor.text import spec

MOST_TERMS = 64
MOST_NODES = 256


@dataclass(frozen=True, slots=True)
class Found:
    """A mask that has been read, with its size once all names are written out."""

    mask: Mask
    terms: int
    nodes: int
    matrix: bool


def is_mask(scope: Scope, node: spec.Expression) -> bool:
    """True if what is written is a mask (or pretends to be one): it holds a kind, a turn or the name of one."""
    match node:
        case spec.Name():
            return isinstance(scope.symbols.get(node.text), MaskSymbol)
        case spec.Relabel():
            return isinstance(scope.symbols.get(node.name.text), MaskSymbol)
        case spec.Call():
            return node.function.text in MASKS or node.function.text in TURNS
        case spec.Negation():
            return is_mask(scope, node.operand)
        case spec.Arithmetic():
            return is_mask(scope, node.left) or is_mask(scope, node.right)
        case spec.Constant() | spec.Contraction():
            return False
        case _:
            assert_never(node)


def holds_matrix(scope: Scope, node: spec.Expression) -> bool:
    """True if a factor or term of a written mask is of a matrix kind."""
    match node:
        case spec.Name():
            symbol = scope.symbols.get(node.text)
            return isinstance(symbol, MaskSymbol) and symbol.matrix
        case spec.Call(function=spec.Name(text=called)) if called in TURNS:
            return any(holds_matrix(scope, argument) for argument in node.arguments)
        case spec.Call():
            return is_matrix(node.function.text)
        case spec.Negation():
            return holds_matrix(scope, node.operand)
        case spec.Arithmetic():
            return holds_matrix(scope, node.left) or holds_matrix(scope, node.right)
        case _:
            return False


def read_mask(scope: Scope, node: spec.Expression, extra: Axes, read: Read) -> Found | None:
    """A whole mask over [T, S, *extra]."""
    matrix = holds_matrix(scope, node)
    if matrix and len(extra) != 2:
        has = f"it has {shown(extra)}" if extra else "it has none"
        hint = "write `[T, S, N, M]`, the row (target side) before the column"
        return scope.wrong(f"a matrix mask has exactly two extra axes, {has}", node.span, hint=hint)
    before = len(scope.mistakes)
    found = algebra(scope, node, extra, matrix, read)
    if found is None:
        return None
    if found.nodes > MOST_NODES or found.terms > MOST_TERMS:
        size = f"{plural(found.terms, 'term')} and {plural(found.nodes, 'part')}"
        hint = f"at most {MOST_TERMS} terms and {MOST_NODES} parts"
        return scope.wrong(f"with all names written out this mask has {size}", node.span, hint=hint)
    if factors_differ(found.mask):
        hint = "write `shift = 1` in all of them or in none"
        return scope.wrong("all matrix factors of a product have the same shift", node.span, hint=hint)
    return found if len(scope.mistakes) == before else None


def algebra(scope: Scope, node: spec.Expression, extra: Axes, matrix: bool, read: Read) -> Found | None:
    """One node of the algebra: a name, a kind, a turn, a sum, a product."""
    match node:
        case spec.Name():
            return named(scope, node, extra, matrix)
        case spec.Call(function=spec.Name(text=called)) if called in TURNS:
            return turned(scope, node, extra, matrix, read)
        case spec.Call():
            return kind(scope, node, extra, matrix, read)
        case spec.Arithmetic(sign="*"):
            return product(scope, node, extra, matrix, read)
        case spec.Arithmetic(sign="+"):
            return total(scope, node, extra, matrix, read)
        case spec.Arithmetic():
            fits = {"-": "`L1 + (-1) * L2`", "/": "`0.5 * L`", "^": "`L * L`"}
            hint = f"masks have `+`, `*`, a number times a mask, `reverse` and `flip`; write {fits[node.sign]}"
            return scope.wrong(f"masks have no `{node.sign}`", node.span, hint=hint)
        case spec.Negation():
            return scope.wrong("masks have no sign", node.span, hint="write `(-1) * L`")
        case spec.Relabel():
            return scope.wrong("a mask is never relabelled", node.span, hint="the letters of the contraction rename its extra axes")
        case spec.Constant() | spec.Contraction():
            return scope.wrong("a mask is wanted here", node.span, hint=f"`matrix(…)` makes one of a tensor; kinds are {listed([*MASKS])}")
        case _:
            assert_never(node)


def named(scope: Scope, node: spec.Name, extra: Axes, matrix: bool) -> Found | None:
    """A mask by name: its extra axes are among those of the mask it stands in."""
    symbol = scope.symbols.get(node.text)
    if isinstance(symbol, Broken):
        return None
    if not isinstance(symbol, MaskSymbol):
        return not_a_mask(scope, node, symbol)
    own = symbol.named.axes
    missing = [axis for axis in own if axis not in extra]
    if missing:
        return scope.wrong(
            f"`{node.text}` has the extra axis {missing[0]}, which is not on the left",
            node.span,
            hint=f"add {missing[0]} to the left side",
        )
    if symbol.matrix and own != extra:
        return scope.wrong(f"`{node.text}` is a matrix over {shown(own)}, not {shown(extra)}", node.span, hint="keep row before column")
    if matrix and not symbol.matrix and len(own) > 1:
        return scope.wrong(f"beside a matrix a mask is a scalar or a diagonal; `{node.text}` has {shown(own)}", node.span)
    return Found(symbol.named, symbol.terms, symbol.nodes, symbol.matrix)


def not_a_mask(scope: Scope, node: spec.Name, symbol: Tensor | None) -> None:
    """A name in a mask's place that is none."""
    if symbol is not None:
        return scope.wrong(f"`{node.text}` is a tensor, a mask is wanted here", node.span, hint=f"write `matrix({node.text})`")
    if node.text in scope.later:
        return scope.wrong(f"`{node.text}` is used before it is defined", node.span, scope.later[node.text], hint=MOVE)
    masks = [name for name, known in scope.symbols.items() if isinstance(known, MaskSymbol)]
    return scope.unknown(node, (*masks, *MASKS), "the mask")


def turned(scope: Scope, node: spec.Call, extra: Axes, matrix: bool, read: Read) -> Found | None:
    """`reverse(L)` and `flip(L)`: T and S are one length."""
    called = node.function.text
    if len(node.arguments) != 1 or node.options or node.over or node.under is not None:
        return scope.wrong(f"{called}(L) takes one mask", node.span)
    inner = algebra(scope, node.arguments[0], extra, matrix, read)
    if inner is None:
        return None
    scope.self_mixing = True
    turn = Reversed(inner.mask, extra) if called == "reverse" else Flipped(inner.mask, extra)
    return Found(turn, inner.terms, inner.nodes + 1, inner.matrix)


def kind(scope: Scope, node: spec.Call, extra: Axes, matrix: bool, read: Read) -> Found | None:
    """One kind of mask with its arguments."""
    if node.function.text not in MASKS:
        known = node.function.text in scope.symbols
        hint = did_you_mean(node.function.text, (*MASKS, *TURNS)) or f"masks are {listed([*MASKS, *TURNS])}"
        message = f"`{node.function.text}` is a tensor, a mask is wanted here" if known else f"`{node.function.text}` is not a mask"
        return scope.wrong(message, node.function.span, hint=hint)
    leaf = read_leaf(scope, node, extra, matrix, read)
    return None if leaf is None else Found(leaf, 1, 1, is_matrix(leaf.kind))


def product(scope: Scope, node: spec.Arithmetic, extra: Axes, matrix: bool, read: Read) -> Found | None:
    """`mask * mask`, or a scalar and a mask."""
    if is_mask(scope, node.left) and is_mask(scope, node.right):
        left, right = algebra(scope, node.left, extra, matrix, read), algebra(scope, node.right, extra, matrix, read)
        if left is None or right is None:
            return None
        mask = MaskProduct(left.mask, right.mask, extra)
        return Found(mask, left.terms * right.terms, left.nodes + right.nodes + 1, left.matrix or right.matrix)
    factor, rest = (node.right, node.left) if is_mask(scope, node.left) else (node.left, node.right)
    value, inner = read(scope, factor, None), algebra(scope, rest, extra, matrix, read)
    if value is None or inner is None or not is_scalar(scope, value, factor.span):
        return None
    return Found(Scaled(value, inner.mask, extra), inner.terms, inner.nodes + 1, inner.matrix)


def is_scalar(scope: Scope, value: Expression, span: Span) -> bool:
    """True if a mask may be multiplied by it: a number or a scalar without positions."""
    if value.axes:
        hint = "a factor over [T, S] is `matrix(…)`; one over S or T multiplies an operand of the contraction"
        scope.wrong(f"a mask is multiplied by a number or a scalar; this has the axes {shown(value.axes)}", span, hint=hint)
    return not value.axes


def total(scope: Scope, node: spec.Arithmetic, extra: Axes, matrix: bool, read: Read) -> Found | None:
    """`mask + mask`."""
    for part in (node.left, node.right):
        if not is_mask(scope, part) and not isinstance(part, spec.Name):
            return scope.wrong("a mask is added to a mask only", part.span, hint="write `c * full()` for a constant")
    left, right = algebra(scope, node.left, extra, matrix, read), algebra(scope, node.right, extra, matrix, read)
    if left is None or right is None:
        return None
    mask = MaskSum(left.mask, right.mask, extra)
    return Found(mask, left.terms + right.terms, left.nodes + right.nodes + 1, left.matrix or right.matrix)


def mask_under(scope: Scope, node: spec.Expression, read: Read) -> Mask | None:
    """The mask after `under`: over [T, S] alone, and real."""
    if isinstance(node, spec.Name) and isinstance(scope.symbols.get(node.text), Broken):
        return None
    symbol = scope.symbols.get(node.text) if isinstance(node, spec.Name) else None
    if isinstance(symbol, MaskSymbol) and symbol.named.axes:
        extra = shown(symbol.named.axes)
        return scope.wrong(f"softmax goes under a mask over [T, S]; `{symbol.named.name}` has the extra axes {extra}", node.span)
    found = read_mask(scope, node, (), read)
    if found is None:
        return None
    if mask_number(found.mask) is Number.COMPLEX:
        return scope.wrong("softmax goes under a real mask; this one is complex", node.span)
    return found.mask
