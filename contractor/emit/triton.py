"""Kernel → Triton text. One statement is one line; nothing is decided here, only what no line reads is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from contractor.emit.text import ATOM, INDENT, INFIX, Line, infix, level, needed, real, signature, used
from contractor.tile.access import address, axes_of, bounds, corner, rows_at
from contractor.tile.expression import Binary, Cast, Dot, Expr, Iota, Number, Program, Reduce, Rename, Select, Size, Tile, Unary
from contractor.tile.kernel import Buffer, Carry, Full, Index, Kernel, Let, Load, Loop, Note, Statement, Store, Update
from contractor.tile.rules import ACC, BOOL, I32, I64, Axes

DTYPES = {ACC: "tl.float32", I32: "tl.int32", I64: "tl.int64", BOOL: "tl.int1"}
CALLS = {"cdiv": "tl.cdiv", "least": "tl.minimum", "most": "tl.maximum"}
FUNCTIONS = {"exp2": "tl.exp2", "log2": "tl.log2", "sqrt": "tl.sqrt", "rsqrt": "tl.rsqrt", "abs": "tl.abs"}
IMPORTS = ("import triton", "import triton.language as tl")


def emit_triton(*kernels: Kernel) -> str:
    """The text of the kernels, imports first: a module that runs alone."""
    return "\n".join(IMPORTS) + "\n\n\n" + functions(kernels)


def functions(kernels: tuple[Kernel, ...]) -> str:
    """The text of the kernels alone."""
    return "\n\n".join(function(kernel) for kernel in kernels)


@lru_cache(maxsize=1024)
def arguments(kernel: Kernel) -> tuple[str, ...]:
    """What the printed function takes, in order: buffers, then scalars, then constants; nothing that it does not read."""
    lines = body(kernel)
    return (*used(lines, (buffer.name for buffer in kernel.buffers)), *used(lines, kernel.scalars), *used(lines, kernel.constants))


def function(kernel: Kernel) -> str:
    """The text of one kernel. Real scalars are never specialised: a scale of 1 has been seen to trigger miscompilations."""
    lines = body(kernel)
    names = arguments(kernel)
    reals = [name for name in kernel.reals if name in names]
    head = f"@triton.jit(do_not_specialize=[{', '.join(map(quoted, reals))}])" if reals else "@triton.jit"
    listed = (f"{name}: tl.constexpr" if name in kernel.constants else name for name in names)
    top = (head, signature(kernel.name, listed), f'{INDENT}"""{kernel.says}"""')
    return "\n".join((*top, *(line.text for line in lines))) + "\n"


def quoted(name: str) -> str:
    """A name as a string."""
    return f'"{name}"'


@lru_cache(maxsize=1024)
def body(kernel: Kernel) -> tuple[Line, ...]:
    """The lines below the signature."""
    return tuple(needed(list(Printer(kernel).block(kernel.body, INDENT))))


@dataclass(frozen=True, slots=True)
class Printer:
    """The text of one kernel's expressions and statements."""

    kernel: Kernel

    def dtype(self, name: str) -> str:
        """A dtype: one of ours, or what a buffer holds."""
        if name in DTYPES:
            return DTYPES[name]
        return f"{name}.dtype" if self.kernel.buffer(name).via == "descriptor" else f"{name}.dtype.element_ty"

    def shape(self, axes: Axes) -> str:
        """The block sizes of some axes."""
        return ", ".join(self.kernel.extent(axis) for axis in axes)

    def view(self, x: Expr, wanted: Axes) -> str:
        """An expression broadcast to the wanted axes."""
        if not x.axes or x.axes == wanted:
            return self.text(x)
        marks = ", ".join(":" if axis in x.axes else "None" for axis in wanted)
        return f"{self.atom(x)}[{marks}]"

    def atom(self, x: Expr) -> str:
        """An expression that an index or a method may follow."""
        return self.text(x) if level(x) == ATOM else f"({self.text(x)})"

    def text(self, x: Expr) -> str:
        """An expression."""
        match x:
            case Number():
                return real(x.value)
            case Size() | Tile():
                return x.name
            case Program():
                return "tl.program_id(0)"
            case Iota():
                return f"tl.arange(0, {self.shape(x.axes)})"
            case Rename():
                return self.text(x.source)
            case Cast():
                return self.cast(x)
            case Unary():
                return f"{FUNCTIONS[x.function]}({self.text(x.source)})"
            case Binary():
                return self.binary(x)
            case Select():
                return f"tl.where({', '.join(self.view(one, x.axes) for one in (x.condition, x.first, x.second))})"
            case Reduce():
                return f"tl.{x.reduction}({self.text(x.source)}, {x.source.axes.index(x.axis)})"
            case Dot():
                return self.dot(x)
            case _:
                assert_never(x)

    def cast(self, x: Cast) -> str:
        """A conversion; a number that may be known to the compiler has no methods."""
        if not x.axes and not x.spread:
            return f"tl.cast({self.text(x.source)}, {self.dtype(x.dtype)})"
        return f"{self.atom(x.source)}.to({self.dtype(x.dtype)})"

    def binary(self, x: Binary) -> str:
        """Two operands under a sign, or as the arguments of a function."""
        left, right = self.view(x.left, x.axes), self.view(x.right, x.axes)
        if x.sign not in INFIX:
            return f"{CALLS[x.sign]}({left}, {right})"
        return infix(x, left, right, (bound(x.left, x.axes), bound(x.right, x.axes)))

    def dot(self, x: Dot) -> str:
        """A product; the shared axis comes last on the left and first on the right."""
        left = self.text(x.left) if x.left.axes[-1] == x.shared else f"tl.trans({self.text(x.left)})"
        right = self.text(x.right) if x.right.axes[0] == x.shared else f"tl.trans({self.text(x.right)})"
        more = () if x.into is None else (self.text(x.into),)
        precise = () if x.precision is None else (f"input_precision={quoted(x.precision)}",)
        return f"tl.dot({', '.join((left, right, *more, *precise))})"

    def block(self, statements: tuple[Statement, ...], pad: str) -> Iterator[Line]:
        """The lines of a block."""
        for one in statements:
            if isinstance(one, Loop):
                yield Line(f"{pad}for {one.counter.name} in range({self.text(one.stop)}):")
                yield from self.block(one.body, pad + INDENT)
            else:
                yield self.line(one, pad)

    def line(self, one: Load | Store | Let | Full | Carry | Update | Note, pad: str) -> Line:
        """The line of a statement."""
        match one:
            case Note():
                return Line(f"{pad}# {one.text}")
            case Let():
                return Line(f"{pad}{one.tile.name} = {self.text(one.value)}", one.tile.name)
            case Carry() | Update():
                return Line(f"{pad}{one.tile.name} = {self.text(one.value)}")
            case Full():
                return Line(f"{pad}{one.tile.name} = {self.full(one)}")
            case Load():
                return Line(f"{pad}{one.tile.name} = {self.load(one)}", one.tile.name)
            case Store():
                return Line(f"{pad}{self.store(one)}")
            case _:
                assert_never(one)

    def full(self, one: Full) -> str:
        """One number everywhere."""
        shape = f"[{self.shape(one.tile.axes)}]"
        return f"tl.zeros({shape}, tl.float32)" if one.value == 0 else f"tl.full({shape}, {real(one.value)}, tl.float32)"

    def load(self, one: Load) -> str:
        """A block read from memory."""
        buffer, inside = one.source, bounds(one.index, one.tile.axes)
        if buffer.via == "descriptor":
            leading = rows_at(one.index)
            read = f"{buffer.name}.load([{self.listed(corner(one.index, buffer))}])"
            block = f"{read}.reshape({self.shape(axes_of(one.index))})" if leading else read
            return block if one.tile.axes == axes_of(one.index) else f"tl.trans({block})"
        zero = "0" if buffer.dtype in (I32, I64, BOOL) else "0."
        mask = "" if inside is None else f", mask={self.view(inside, one.tile.axes)}, other={zero}"
        return f"tl.load({self.pointer(buffer, one.index, one.tile.axes)}{mask})"

    def store(self, one: Store) -> str:
        """A block written to memory."""
        buffer, inside = one.target, bounds(one.index, one.value.axes)
        if buffer.via == "descriptor":
            leading, axes = rows_at(one.index), axes_of(one.index)
            shape = ", ".join((*("1" for _ in range(leading)), self.shape(axes)))
            turned = one.value.axes != axes
            atom = f"tl.trans({self.text(one.value)})" if turned else self.atom(one.value)
            value = f"{atom}.reshape({shape})" if leading else atom if turned else self.text(one.value)
            return f"{buffer.name}.store([{self.listed(corner(one.index, buffer))}], {value})"
        mask = "" if inside is None else f", mask={self.view(inside, one.value.axes)}"
        return f"tl.store({self.pointer(buffer, one.index, one.value.axes)}, {self.text(one.value)}{mask})"

    def pointer(self, buffer: Buffer, index: Index, axes: Axes) -> str:
        """The addresses of a block."""
        offset = address(index, buffer, axes)
        return f"{buffer.name} + {self.view(offset, axes)}"

    def listed(self, parts: tuple[Expr, ...]) -> str:
        """Expressions with commas between them."""
        return ", ".join(self.text(part) for part in parts)


def bound(x: Expr, wanted: Axes) -> int:
    """How tightly an operand binds once it is broadcast: an indexed one like a name."""
    return level(x) if not x.axes or x.axes == wanted else ATOM
