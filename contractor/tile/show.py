"""Kernel → short text, every line of it an expression or statement of Python's grammar; `read` gives the kernel back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from contractor.tile.expression import Binary, Cast, Dot, Expr, Iota, Number, Program, Reduce, Rename, Select, Size, Tile, Unary
from contractor.tile.kernel import Buffer, Carry, Full, Index, Kernel, Let, Load, Loop, Note, Span, Statement, Store, Update
from contractor.tile.read import read
from contractor.tile.rules import ACC, Axes

__all__ = ["read", "show"]

INDENT = "    "
FUNCTIONS = ("cdiv", "least", "most")


def show(kernel: Kernel) -> str:
    """The text of a kernel; two kernels are equal if their texts are."""
    return "\n".join((*head(kernel), "", *block(kernel.body, ""))) + "\n"


def head(kernel: Kernel) -> Iterator[str]:
    """What a kernel declares."""
    yield f"kernel({kernel.name}, {kernel.says!r})"
    yield f"axes({', '.join(f'{axis}={constant}' for axis, constant in kernel.sizes)})"
    yield f"scalars({', '.join(kernel.scalars)})"
    for buffer in kernel.buffers:
        yield declared(buffer)
    yield f"programs({text(kernel.programs)})"


def declared(buffer: Buffer) -> str:
    """A buffer: its dimensions, dtype and how it is reached."""
    return f"{buffer.name} = buffer({', '.join((*buffer.dims, f'dtype={buffer.dtype}', f'via={buffer.via}'))})"


def block(body: tuple[Statement, ...], pad: str) -> Iterator[str]:
    """The lines of a block."""
    for one in body:
        if isinstance(one, Loop):
            yield f"{pad}for {one.counter.name} in range({text(one.stop)}):"
            yield from block(one.body, pad + INDENT)
        else:
            yield pad + line(one)


def line(one: Load | Store | Let | Full | Carry | Update | Note) -> str:
    """The line of a statement."""
    match one:
        case Note():
            return f"note({one.text!r})"
        case Let():
            return f"{one.tile.name} = {text(one.value)}"
        case Full():
            return f"{one.tile.name} = fill({', '.join((*one.tile.axes, f'value={literal(float(one.value))}'))})"
        case Carry():
            return f"{one.tile.name} = carry({text(one.value)})"
        case Update():
            return f"{one.tile.name} = update({text(one.value)})"
        case Load():
            return f"{one.tile.name} = load({one.source.name}, {accessed(one.index)}, order={tuple_of(one.tile.axes)})"
        case Store():
            return f"store({one.target.name}, {accessed(one.index)}, value={text(one.value)})"
        case _:
            assert_never(one)


def accessed(index: Index) -> str:
    """The dimensions of an access."""
    return ", ".join(span(one) if isinstance(one, Span) else text(one) for one in index)


def span(one: Span) -> str:
    """A block of a dimension."""
    named = (("inside", one.inside), ("block", one.block))
    more = "".join(f", {name}={text(value)}" for name, value in named if value is not None)
    return f"span({tuple_of(one.axes)}, {text(one.first)}, {text(one.index)}{more})"


def tuple_of(axes: Axes) -> str:
    """Axes as a tuple."""
    return f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"


def literal(value: float) -> str:
    """A number as it is read back; infinity is written out of range."""
    return repr(value).replace("inf", "1e999")


def text(x: Expr) -> str:
    """An expression: every operation between brackets."""
    match x:
        case Number():
            return literal(x.value)
        case Size():
            return f"real({x.name})" if x.dtype == ACC else x.name
        case Tile():
            return x.name
        case Program():
            return "program_id()"
        case Iota():
            return f"iota({x.axes[0]})"
        case Rename():
            return f"rename({text(x.source)}, {', '.join(f'{old}={new}' for old, new in x.names)})"
        case Cast():
            return f"cast({text(x.source)}, {x.dtype})"
        case Unary():
            return f"{x.function}({text(x.source)})"
        case Binary():
            left, right = text(x.left), text(x.right)
            return f"{x.sign}({left}, {right})" if x.sign in FUNCTIONS else f"({left} {x.sign} {right})"
        case Select():
            return f"select({text(x.condition)}, {text(x.first)}, {text(x.second)})"
        case Reduce():
            return f"{x.reduction}({text(x.source)}, {x.axis})"
        case Dot():
            into = "" if x.into is None else f", into={text(x.into)}"
            precise = "" if x.precision is None else f", precision={x.precision}"
            return f"dot({text(x.left)}, {text(x.right)}{into}{precise})"
        case _:
            assert_never(x)
