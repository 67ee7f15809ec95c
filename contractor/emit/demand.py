"""What a kernel asks of its sizes, read off its text, and the function that measures tensors in emitted files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, assert_never

from contractor.tile.expression import Binary, Dot, Expr, Iota, Rename, Size, Tile
from contractor.tile.kernel import Kernel, Let, Load, Span, Store, statements
from contractor.tile.shared import sources
from contractor.tile.uses import nodes, read_by

MEASURED = '''\
def measured(*tensors):
    """The size of every letter, the same in every tensor. tensors: (name, tensor, letters of its dimensions, dtype or None)."""
    sizes = {}
    _, first, _, _ = tensors[0]
    for name, tensor, letters, dtype in tensors:
        letters = letters.split()
        if tensor.dim() != len(letters):
            raise ValueError(f"{name} must be [{', '.join(letters)}], not of shape {list(tensor.shape)}")
        if dtype not in (None, tensor.dtype):
            raise TypeError(f"{name} must be {dtype}, not {tensor.dtype}")
        if tensor.device != first.device:
            raise ValueError(f"{name} is on {tensor.device}, {tensors[0][0]} on {first.device}")
        for letter, size in zip(letters, tensor.shape):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(f"{name} has {letter} = {size}, a tensor before it has {letter} = {sizes[letter]}")
    return sizes
'''


@dataclass(frozen=True, slots=True)
class Demand:
    """`size` must be a multiple of `other`, at most `other`, or a power of two (no other)."""

    kind: Literal["multiple", "most", "power"]
    size: str
    other: str = ""

    def fails(self, prefix: str, constants: dict[str, int]) -> str:
        """The condition under which it is not met, as Python."""
        other = named(self.other, prefix, constants)
        match self.kind:
            case "multiple":
                return f"{self.size} % {other}"
            case "most":
                return f"{self.size} > {other}"
            case "power":
                return f"{self.size} & ({self.size} - 1)"
            case _:
                assert_never(self.kind)

    def says(self, prefix: str, constants: dict[str, int]) -> str:
        """What is asked, as the inside of an f-string."""
        size, other = f"{self.size} = {{{self.size}}}", f"{self.other} = {{{named(self.other, prefix, constants)}}}"
        match self.kind:
            case "multiple":
                return f"{size} must be a multiple of {other}"
            case "most":
                return f"{size} must be at most {other}"
            case "power":
                return f"{size} must be a power of two"
            case _:
                assert_never(self.kind)


def named(name: str, prefix: str, constants: dict[str, int]) -> str:
    """A size as a file calls it."""
    return f"{prefix}{name}" if name in constants else name


def demands(kernel: Kernel, constants: dict[str, int], powers: bool) -> tuple[Demand, ...]:
    """Everything that a kernel asks of its sizes. powers: blocks are powers of two."""
    found = [Demand("multiple", *pair) for pair in divisors(kernel)]
    found += [Demand("most", *pair) for pair in covers(kernel)]
    if powers:
        found += [Demand("power", size) for size in blocks(kernel) if size not in constants]
    return tuple(dict.fromkeys(found))


def divisors(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """(size, other) wherever one is divided by the other and nothing may be left over."""
    pairs = (pair for x in expressions(kernel) for pair in division(x))
    return tuple(dict.fromkeys(pairs))


def division(x: Expr) -> Iterator[tuple[str, str]]:
    """The two sizes of a division without a rest."""
    if isinstance(x, Binary) and x.sign == "//" and isinstance(x.left, Size) and isinstance(x.right, Size):
        yield x.left.name, x.right.name


def covers(kernel: Kernel) -> Iterator[tuple[str, str]]:
    """(size, block) wherever one block must cover a whole dimension."""
    sizes = dict(kernel.sizes)
    counted = {one.tile.name for one in statements(kernel.body) if isinstance(one, Let) and isinstance(one.value, Iota)}
    for one in statements(kernel.body):
        if isinstance(one, Load | Store):
            buffer = one.source if isinstance(one, Load) else one.target
            spans = ((dim, span) for dim, span in zip(buffer.dims, one.index, strict=True) if isinstance(span, Span))
            yield from ((dim, sizes[span.axis]) for dim, span in spans if padded(span, counted))


def padded(span: Span, counted: set[str]) -> bool:
    """True for the one block of a dimension that it is wider than. counted: the tiles that hold 0, 1, 2, …"""
    index = span.index
    while isinstance(index, Rename):
        index = index.source
    return span.inside is not None and (isinstance(index, Iota) or (isinstance(index, Tile) and index.name in counted))


def blocks(kernel: Kernel) -> tuple[str, ...]:
    """The sizes that blocks have."""
    sizes = dict(kernel.sizes)
    axes = (axis for x in expressions(kernel) if isinstance(x, Iota) for axis in x.axes)
    return tuple(dict.fromkeys(sizes[axis] for axis in axes))


def expressions(kernel: Kernel) -> Iterator[Expr]:
    """Every expression of a kernel."""
    yield from nodes(kernel.programs)
    for one in statements(kernel.body):
        for x in read_by(one):
            yield from nodes(x)


def factors(kernel: Kernel) -> frozenset[str]:
    """The buffers whose tiles are operands of products of matrices as they are loaded."""
    lets = {one.tile: one.value for one in statements(kernel.body) if isinstance(one, Let)}
    loaded = {one.tile: one.source.name for one in statements(kernel.body) if isinstance(one, Load)}
    products = [x for x in expressions(kernel) if isinstance(x, Dot)]
    return frozenset(loaded[tile] for tile in sources(products, lets))
