"""Kernel → torch text: all programs at once, with a leading program axis on everything that differs between programs.

Integers are 64-bit, accumulators float32 (float64 for float64 operands). Loops run to the longest program's end; programs that have
ended neither update nor store. Loads index, stores write into tensors that the caller made, so autograd can follow the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from contractor.emit.place import At, Block, Place, Whole, place
from contractor.emit.text import ATOM, INDENT, INFIX, Line, infix, level, needed, real, signature, used
from contractor.tile.expression import Binary, Cast, Dot, Expr, Iota, Number, Program, Reduce, Rename, Select, Size, Tile, Unary
from contractor.tile.kernel import Buffer, Carry, Full, Kernel, Let, Load, Loop, Note, Statement, Store, Update
from contractor.tile.rules import ACC, BOOL, I32, I64, INTEGERS, Axes

DTYPES = {ACC: "acc", I32: "torch.int64", I64: "torch.int64", BOOL: "torch.bool"}
PLAIN = {"exp2": "2.0 ** {}", "log2": "math.log2({})", "sqrt": "{} ** 0.5", "rsqrt": "{} ** -0.5", "abs": "abs({})"}
CONDITION, SUM, PRODUCT, NEGATIVE = 3, 5, 6, 8  # how tightly `&`, `+`, `@` and a leading `-` bind
HELPERS = '''\
def read(x, index, inside=None):
    """x[index], 0 where it is not inside."""
    if inside is None:
        return x[index]
    safe = tuple(i.clamp(0, max(size - 1, 0)) if torch.is_tensor(i) else i for i, size in zip(index, x.shape))
    tile = x[safe]
    free = x.dim() - sum(not isinstance(i, slice) for i in index)
    inside = inside.reshape(inside.shape + (1,) * free)
    return torch.where(inside, tile, torch.zeros((), dtype=x.dtype, device=x.device))


def write(x, index, value, inside=None):
    """x[index] = value, where it is inside."""
    if inside is None:
        x[index] = value.to(x.dtype)
        return
    inside, *places = torch.broadcast_tensors(inside, *(i for i in index if torch.is_tensor(i)))
    rest = iter(places)
    free = x.dim() - sum(not isinstance(i, slice) for i in index)
    value = value.expand(inside.shape + value.shape[value.dim() - free :])
    x[tuple(next(rest)[inside] if torch.is_tensor(i) else i for i in index)] = value[inside].to(x.dtype)


def longest(count):
    """The greatest of the programs' counts."""
    return int(count.max()) if count.numel() else 0
'''


def emit_torch(*kernels: Kernel) -> str:
    """The text of the kernels, imports first: a module that runs alone."""
    return "\n".join(imports(kernels)) + "\n\n\n" + functions(kernels)


def imports(kernels: tuple[Kernel, ...]) -> tuple[str, ...]:
    """The imports of the kernels' text."""
    return ("import math", "", "import torch") if "math." in functions(kernels) else ("import torch",)


def functions(kernels: tuple[Kernel, ...]) -> str:
    """The text of the kernels and of what they call."""
    return f"{HELPERS}\n\n" + "\n\n".join(function(kernel) for kernel in kernels)


@lru_cache(maxsize=1024)
def arguments(kernel: Kernel) -> tuple[str, ...]:
    """What the printed function takes, in order: buffers, scalars, constants, and `programs`; nothing that it does not read."""
    lines = body(kernel)
    named = ((buffer.name for buffer in kernel.buffers), kernel.scalars, kernel.constants)
    return (*(name for names in named for name in used(lines, names)), "programs")


def function(kernel: Kernel) -> str:
    """The text of one kernel."""
    top = (signature(kernel.name, arguments(kernel)), f'{INDENT}"""{kernel.says}"""')
    return "\n".join((*top, *(line.text for line in body(kernel)))) + "\n"


@lru_cache(maxsize=1024)
def body(kernel: Kernel) -> tuple[Line, ...]:
    """The lines below the signature."""
    own = [buffer.name for buffer in kernel.buffers if buffer.dtype == buffer.name and buffer.name not in kernel.stored]
    like = next(iter([*own, *(buffer.name for buffer in kernel.buffers if buffer.dtype not in (*INTEGERS, BOOL))]))
    top = [
        Line(f"{INDENT}acc = torch.promote_types({like}.dtype, torch.float32)", "acc"),
        Line(f"{INDENT}device = {like}.device", "device"),
    ]
    return tuple(needed([*top, *Printer(kernel).block(kernel.body, INDENT, "")]))


@dataclass(frozen=True, slots=True)
class Printer:
    """The text of one kernel's expressions and statements. A uniform number is a number of Python's, everything else a tensor."""

    kernel: Kernel

    def dtype(self, name: str) -> str:
        """A dtype: one of ours, or what a buffer holds."""
        return DTYPES.get(name) or f"{name}.dtype"

    def shape(self, axes: Axes) -> str:
        """The block sizes of some axes."""
        return ", ".join(self.kernel.extent(axis) for axis in axes)

    def view(self, x: Expr, wanted: Axes) -> str:
        """An expression broadcast to the wanted axes."""
        if x.axes == wanted or plain(x):
            return self.text(x)
        leading = ("...",) if x.spread else ()
        marks = ", ".join((*leading, *(":" if axis in x.axes else "None" for axis in wanted)))
        return f"{self.atom(x)}[{marks}]"

    def atom(self, x: Expr) -> str:
        """An expression that an index or a method may follow."""
        return self.text(x) if self.level(x) == ATOM else f"({self.text(x)})"

    def text(self, x: Expr) -> str:
        """An expression."""
        match x:
            case Number():
                return real(x.value)
            case Size() | Tile():
                return x.name
            case Program():
                return "torch.arange(programs, device=device)"
            case Iota():
                return f"torch.arange({self.shape(x.axes)}, device=device)"
            case Rename():
                return self.text(x.source)
            case Cast():
                return self.cast(x)
            case Unary():
                return self.unary(x)
            case Binary():
                return self.binary(x)
            case Select():
                return self.select(x)
            case Reduce():
                name = "amax" if x.reduction == "max" else x.reduction
                return f"{self.atom(x.source)}.{name}({x.source.axes.index(x.axis) - len(x.source.axes)})"
            case Dot():
                return self.dot(x)
            case _:
                assert_never(x)

    def cast(self, x: Cast) -> str:
        """A conversion; nothing between integers, nor for a number of Python's."""
        same = x.dtype in INTEGERS and x.source.dtype in INTEGERS
        return self.text(x.source) if same or plain(x) else f"{self.atom(x.source)}.to({self.dtype(x.dtype)})"

    def unary(self, x: Unary) -> str:
        """A function."""
        if plain(x):
            return f"({PLAIN[x.function].format(self.atom(x.source))})"
        return f"torch.{x.function}({self.text(x.source)})"

    def binary(self, x: Binary) -> str:
        """Two operands under a sign, or as the arguments of a function."""
        left, right = self.operand(x.left, x), self.operand(x.right, x)
        levels = (self.bound(x.left, x), self.bound(x.right, x))
        if x.sign in INFIX:
            return infix(x, left, right, levels)
        if x.sign == "cdiv":
            return f"-(-{left if levels[0] == ATOM else f'({left})'} // {right if levels[1] == ATOM else f'({right})'})"
        if plain(x):
            return f"{'min' if x.sign == 'least' else 'max'}({left}, {right})"
        return self.extreme(x, left, right)

    def extreme(self, x: Binary, left: str, right: str) -> str:
        """The lesser or greater of two, one of which is a tensor."""
        name = "minimum" if x.sign == "least" else "maximum"
        bounded = "max" if x.sign == "least" else "min"
        if plain(x.right):
            return f"{left if self.bound(x.left, x) == ATOM else f'({left})'}.clamp({bounded}={right})"
        if plain(x.left):
            return f"{right if self.bound(x.right, x) == ATOM else f'({right})'}.clamp({bounded}={left})"
        return f"torch.{name}({left}, {right})"

    def operand(self, one: Expr, x: Binary) -> str:
        """One operand, broadcast, and widened where the rules widen."""
        shown = self.view(one, x.axes)
        if not widened(one, x):
            return shown
        return f"{shown if self.viewed(one, x.axes) == ATOM else f'({shown})'}.to(acc)"

    def bound(self, one: Expr, x: Binary) -> int:
        """How tightly a printed operand binds."""
        return ATOM if widened(one, x) else self.viewed(one, x.axes)

    def viewed(self, x: Expr, wanted: Axes) -> int:
        """How tightly an expression binds once it is broadcast."""
        return self.level(x) if x.axes == wanted or plain(x) else ATOM

    def level(self, x: Expr) -> int:
        """How tightly an expression binds as torch text, where conversions between integers and products print otherwise."""
        match x:
            case Cast() if plain(x) or (x.dtype in INTEGERS and x.source.dtype in INTEGERS):
                return self.level(x.source)
            case Rename():
                return self.level(x.source)
            case Dot():
                return PRODUCT if x.into is None else SUM
            case Binary(sign="cdiv"):
                return NEGATIVE
            case _:
                return level(x)

    def select(self, x: Select) -> str:
        """One of two; numbers of Python's have no dtype of ours."""
        condition, first, second = (self.view(one, x.axes) for one in (x.condition, x.first, x.second))
        if plain(x):
            return f"({first} if {condition} else {second})"
        both = plain(x.first) and plain(x.second)
        return f"torch.where({condition}, {first}, {second})" + (f".to({self.dtype(x.dtype)})" if both else "")

    def dot(self, x: Dot) -> str:
        """A product of accumulators' precision."""
        left = self.factor(x.left) + ("" if x.left.axes[-1] == x.shared else ".mT")
        right = self.factor(x.right) + ("" if x.right.axes[0] == x.shared else ".mT")
        return f"{left} @ {right}" if x.into is None else f"{self.text(x.into)} + {left} @ {right}"

    def factor(self, x: Expr) -> str:
        """An operand of a product."""
        return self.atom(x) if x.dtype == ACC else f"{self.atom(x)}.to(acc)"

    def block(self, statements: tuple[Statement, ...], pad: str, alive: str) -> Iterator[Line]:
        """The lines of a block. alive: the name of what says which programs are still in the loop; "" where all are."""
        for one in statements:
            if isinstance(one, Loop):
                yield from self.loop(one, pad, alive)
            else:
                yield self.line(one, pad, alive)

    def loop(self, one: Loop, pad: str, alive: str) -> Iterator[Line]:
        """A loop; where counts differ it runs to the longest, and says which programs are still in it."""
        name, count = one.counter.name, self.text(one.stop)
        if not one.stop.spread:
            yield Line(f"{pad}for {name} in range({count}):")
            yield from self.block(one.body, pad + INDENT, alive)
            return
        inner = f"{name}_alive"
        yield Line(f"{pad}for {name} in range(longest({count})):")
        ended = f"{name} < {self.atom(one.stop)}"
        yield Line(f"{pad}{INDENT}{inner} = " + (f"{alive} & ({ended})" if alive else ended))
        yield from self.block(one.body, pad + INDENT, inner)

    def line(self, one: Load | Store | Let | Full | Carry | Update | Note, pad: str, alive: str) -> Line:
        """The line of a statement."""
        match one:
            case Note():
                return Line(f"{pad}# {one.text}")
            case Let():
                return Line(f"{pad}{one.tile.name} = {self.text(one.value)}", one.tile.name)
            case Carry():
                return Line(f"{pad}{one.tile.name} = {self.tensor(one.value)}")
            case Update():
                return Line(f"{pad}{one.tile.name} = {self.update(one, alive)}")
            case Full():
                shape = ", ".join(("programs", *(self.kernel.extent(axis) for axis in one.tile.axes))) + ("" if one.tile.axes else ",")
                return Line(f"{pad}{one.tile.name} = torch.full(({shape}), {real(float(one.value))}, dtype=acc, device=device)")
            case Load():
                return Line(f"{pad}{one.tile.name} = {self.load(one, alive)}", one.tile.name)
            case Store():
                return Line(f"{pad}{self.store(one, alive)}")
            case _:
                assert_never(one)

    def update(self, one: Update, alive: str) -> str:
        """The new value, for programs that are still in the loop."""
        new = self.tensor(one.value)
        return f"torch.where({shown_alive(alive, len(one.tile.axes))}, {new}, {one.tile.name})" if alive else new

    def tensor(self, x: Expr) -> str:
        """An expression as a tensor, even if it is a number of Python's."""
        return f"torch.full((programs,), {self.text(x)}, dtype={self.dtype(x.dtype)}, device=device)" if plain(x) else self.text(x)

    def load(self, one: Load, alive: str) -> str:
        """A block read. Programs that have ended may stand anywhere: their places are brought back inside."""
        found = place(self.kernel, one.source, one.index, one.tile.axes)
        inside = self.inside(found, alive if found.inside is None else "")
        read = f"read({self.indexed(one.source, found)}{inside})"
        return f"{read}.mT" if found.transposed else read

    def store(self, one: Store, alive: str) -> str:
        """A block written."""
        found = place(self.kernel, one.target, one.index, one.value.axes)
        value = f"{self.atom(one.value)}.mT" if found.transposed else self.tensor(one.value)
        return f"write({self.indexed(one.target, found)}, {value}{self.inside(found, alive)})"

    def inside(self, found: Place, alive: str) -> str:
        """The last argument of an access: which elements take part."""
        terms: list[str] = []
        if found.inside is not None:
            shown = self.view(found.inside, found.indexed)
            terms.append(f"torch.tensor({shown}, device=device)" if plain(found.inside) else shown)
        if alive:
            bracketed = found.inside is not None and self.viewed(found.inside, found.indexed) < CONDITION
            terms = [f"({term})" if bracketed else term for term in terms] + [shown_alive(alive, len(found.indexed))]
        return f", {' & '.join(terms)}" if terms else ""

    def indexed(self, buffer: Buffer, found: Place) -> str:
        """The tensor and its index."""
        name, places = buffer.name, list[str]()
        for one in found.dimensions:
            match one:
                case Whole():
                    places.append("slice(None)")
                case Block():
                    name += f".unflatten({len(places)}, (-1, {one.constant}))"
                    places += [self.view(one.number, found.indexed), "slice(None)"]
                case At():
                    places.append(self.view(one.places, found.indexed))
                case _:
                    assert_never(one)
        while places and places[-1] == "slice(None)":
            places.pop()
        return f"{name}, ({', '.join(places)}{',' if len(places) == 1 else ''})"



def plain(x: Expr) -> bool:
    """True for a number of Python's: one value for all programs."""
    return not x.axes and not x.spread


def widened(one: Expr, x: Binary) -> bool:
    """True if an operand must be brought to the accumulators' dtype by hand, where torch would not widen it."""
    return x.dtype == ACC and one.dtype not in (ACC, BOOL) and not plain(one)


def shown_alive(alive: str, axes: int) -> str:
    """Which programs are still in the loop, broadcast to a block."""
    return f"{alive}[..., {', '.join(['None'] * axes)}]" if axes else alive
