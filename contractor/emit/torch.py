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
from contractor.emit.text import INDENT, Line, needed, real, signature, used
from contractor.emit.torch_expression import CONDITION, Expressions, plain
from contractor.tile.kernel import Buffer, Carry, Full, Kernel, Let, Load, Loop, Note, Statement, Store, Update
from contractor.tile.rules import BOOL, INTEGERS

READ = '''\
def read(x, index, inside=None):
    """x[index], 0 where it is not inside."""
    if inside is None:
        return x[index]
    safe = tuple(i.clamp(0, max(size - 1, 0)) if torch.is_tensor(i) else i for i, size in zip(index, x.shape))
    free = x.dim() - sum(not isinstance(i, slice) for i in index)
    inside = inside.reshape(inside.shape + (1,) * free)
    return torch.where(inside, x[safe], torch.zeros((), dtype=x.dtype, device=x.device))
'''
WRITE = '''\
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
'''
LONGEST = '''\
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
    printed = "\n\n".join(function(kernel) for kernel in kernels)
    called = [text for name, text in (("read", READ), ("write", WRITE), ("longest", LONGEST)) if f"{name}(" in printed]
    return "\n\n".join((*called, printed))


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
    return tuple(needed([*top, *Printer(kernel, Expressions(kernel)).block(kernel.body, INDENT, "")]))


@dataclass(frozen=True, slots=True)
class Printer:
    """The text of one kernel's statements."""

    kernel: Kernel
    words: Expressions

    def block(self, statements: tuple[Statement, ...], pad: str, alive: str) -> Iterator[Line]:
        """The lines of a block. alive: the name of what says which programs are still in the loop; "" where all are."""
        for one in statements:
            if isinstance(one, Loop):
                yield from self.loop(one, pad, alive)
            else:
                yield self.line(one, pad, alive)

    def loop(self, one: Loop, pad: str, alive: str) -> Iterator[Line]:
        """A loop; where counts differ it runs to the longest, and says which programs are still in it."""
        name, count = one.counter.name, self.words.text(one.stop)
        if not one.stop.spread:
            yield Line(f"{pad}for {name} in range({count}):")
            yield from self.block(one.body, pad + INDENT, alive)
            return
        inner = f"{name}_alive"
        yield Line(f"{pad}for {name} in range(longest({count})):")
        ended = f"{name} < {self.words.atom(one.stop)}"
        yield Line(f"{pad}{INDENT}{inner} = " + (f"{alive} & ({ended})" if alive else ended))
        yield from self.block(one.body, pad + INDENT, inner)

    def line(self, one: Load | Store | Let | Full | Carry | Update | Note, pad: str, alive: str) -> Line:
        """The line of a statement."""
        match one:
            case Note():
                return Line(f"{pad}# {one.text}")
            case Let():
                return Line(f"{pad}{one.tile.name} = {self.words.text(one.value)}", one.tile.name)
            case Carry():
                return Line(f"{pad}{one.tile.name} = {self.words.tensor(one.value)}")
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
        new = self.words.tensor(one.value)
        return f"torch.where({shown_alive(alive, len(one.tile.axes))}, {new}, {one.tile.name})" if alive else new

    def load(self, one: Load, alive: str) -> str:
        """A block read. Programs that have ended may stand anywhere: their places are brought back inside."""
        found = place(self.kernel, one.source, one.index, one.tile.axes)
        inside = self.inside(found, alive if found.inside is None else "")
        read = f"read({self.indexed(one.source, found)}{inside})"
        return f"{read}.mT" if found.transposed else read

    def store(self, one: Store, alive: str) -> str:
        """A block written."""
        found = place(self.kernel, one.target, one.index, one.value.axes)
        value = f"{self.words.atom(one.value)}.mT" if found.transposed else self.words.tensor(one.value)
        return f"write({self.indexed(one.target, found)}, {value}{self.inside(found, alive)})"

    def inside(self, found: Place, alive: str) -> str:
        """The last argument of an access: which elements take part."""
        terms: list[str] = []
        if found.inside is not None:
            shown = self.words.view(found.inside, found.indexed)
            terms.append(f"torch.tensor({shown}, device=device)" if plain(found.inside) else shown)
        if alive:
            bracketed = found.inside is not None and self.words.viewed(found.inside, found.indexed) < CONDITION
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
                    places += [self.words.view(one.number, found.indexed), "slice(None)"]
                case At():
                    places.append(self.words.view(one.places, found.indexed))
                case _:
                    assert_never(one)
        while places and places[-1] == "slice(None)":
            places.pop()
        return f"{name}, ({', '.join(places)}{',' if len(places) == 1 else ''})"


def shown_alive(alive: str, axes: int) -> str:
    """Which programs are still in the loop, broadcast to a block."""
    return f"{alive}[..., {', '.join(['None'] * axes)}]" if axes else alive
