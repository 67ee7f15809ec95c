"""Walks over expressions and statements: what a kernel names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import assert_never

from contractor.tile.expression import Binary, Cast, Dot, Expr, Iota, Number, Program, Reduce, Rename, Select, Size, Tile, Unary
from contractor.tile.kernel import Carry, Full, Index, Let, Load, Loop, Note, Span, Statement, Store, Update, statements
from contractor.tile.rules import ACC


def operands(x: Expr) -> tuple[Expr, ...]:
    """What an expression is made of."""
    match x:
        case Number() | Size() | Program() | Iota() | Tile():
            return ()
        case Rename() | Cast() | Unary() | Reduce():
            return (x.source,)
        case Binary():
            return (x.left, x.right)
        case Select():
            return (x.condition, x.first, x.second)
        case Dot():
            return (x.left, x.right) if x.into is None else (x.left, x.right, x.into)
        case _:
            assert_never(x)


def nodes(x: Expr) -> Iterator[Expr]:
    """An expression and everything in it, as often as it is written."""
    yield x
    for one in operands(x):
        yield from nodes(one)


@lru_cache(maxsize=1 << 14)
def nodes_read(one: Statement) -> tuple[Expr, ...]:
    """Every node of what a statement reads: found once, as each tiling of a kernel is counted by them."""
    return tuple(x for part in read_by(one) for x in nodes(part))


def indexed(index: Index) -> Iterator[Expr]:
    """The expressions of an access."""
    for one in index:
        if isinstance(one, Span):
            yield from (part for part in (one.first, one.index, one.inside, one.block) if part is not None)
        else:
            yield one


def read_by(one: Statement) -> tuple[Expr, ...]:
    """The expressions that a statement reads, those of a loop's body left out."""
    match one:
        case Load():
            return tuple(indexed(one.index))
        case Store():
            return (*indexed(one.index), one.value)
        case Let() | Carry() | Update():
            return (one.value,)
        case Loop():
            return (one.stop,)
        case Full() | Note():
            return ()
        case _:
            assert_never(one)


def named_sizes(body: tuple[Statement, ...], sizes: dict[str, str]) -> set[str]:
    """Every size that some text of the statements may name: in expressions, addresses and shapes."""
    found: set[str] = set()
    for one in statements(body):
        for x in (inner for part in read_by(one) for inner in nodes(part)):
            found |= {x.name} if isinstance(x, Size) else set()
            found |= {sizes[axis] for axis in x.axes if axis in sizes} if isinstance(x, Iota | Tile) else set()
        match one:
            case Load(source=buffer, index=index) | Store(target=buffer, index=index):
                found |= set(buffer.dims[1:]) | {sizes[axis] for span in index if isinstance(span, Span) for axis in span.axes}
            case Full():
                found |= {sizes[axis] for axis in one.tile.axes}
            case _:
                pass
    return found


def real_sizes(body: tuple[Statement, ...]) -> set[str]:
    """The sizes that are only ever read as real numbers."""
    read = [x for one in statements(body) for part in read_by(one) for x in nodes(part) if isinstance(x, Size)]
    return {x.name for x in read if x.dtype == ACC} - {x.name for x in read if x.dtype != ACC}
