"""An estimate, from above, of a program's shared memory: what the compiler keeps there for products, pipelines and stores.

Measured on sm_90: every stage holds the tiles that an innermost loop with products loads; a right operand that is computed passes through
shared memory, one at a time but for those that a loop finds made; so does a block that is stored or, taking turns with the former,
loaded through a descriptor. Tiles that no loop reads take turns with those of the loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from contractor.tile.expression import Cast, Dot, Expr, Rename, Tile
from contractor.tile.kernel import Carry, Kernel, Let, Load, Loop, Statement, Store, Update, statements
from contractor.tile.rules import ACC, BOOL, I32, I64, Axes
from contractor.tile.uses import nodes, nodes_read

WIDTH: Mapping[str, int] = {ACC: 4, I32: 4, I64: 8, BOOL: 1}
BARRIERS = 64


def shared_bytes(kernel: Kernel, sizes: Mapping[str, int], widths: Mapping[str, int], stages: int) -> int:
    """Bytes of shared memory of one program."""
    every = statements(kernel.body)
    lets = {one.tile: one.value for one in every if isinstance(one, Let)}
    products = [x for one in every for x in nodes_read(one) if isinstance(x, Dot)]
    inside = inside_loops(kernel.body, False)
    looped = {one.tile for one in inside if isinstance(one, Load)}
    piped = {one.tile for one in innermost(kernel.body) if isinstance(one, Load)}
    loaded = tuple(dict.fromkeys(sources(products, lets)))
    kept = set(sources([x for one in inside for x in nodes_read(one) if isinstance(x, Dot)], lets))

    def size(axes: Axes, dtype: str) -> int:
        return prod(sizes[kernel.extent(axis)] for axis in axes) * element_width(dtype, widths)

    during = sum(size(tile.axes, tile.dtype) * (stages if tile in piped else 1) for tile in loaded if tile in kept)
    early = piped & feeding(products, every) - kept if kept and stages > 1 else set[Tile]()
    during += sum(size(tile.axes, tile.dtype) * stages for tile in early)
    outside = sum(size(tile.axes, tile.dtype) for tile in loaded if tile not in looped)
    described = {one.tile for one in inside if isinstance(one, Load) and one.source.via == "descriptor"} - kept - early
    arriving = sum(size(tile.axes, tile.dtype) for tile in described)
    staying = sum(size(tile.axes, tile.dtype) for tile in held(kernel.body) if source(tile, lets) is None)
    computed = [size(x.right.axes, x.right.dtype) for x in products if source(x.right, lets) is None]
    stores = [size(one.value.axes, one.value.dtype) for one in every if isinstance(one, Store) and one.target.via == "descriptor"]
    return max(during, outside) + max(arriving, staying + max(computed, default=0)) + sum(stores) + BARRIERS


def feeding(products: list[Dot], every: tuple[Statement, ...]) -> set[Tile]:
    """The tiles that some product depends on: of the loads of a loop, a pipeline sends ahead for these alone."""
    values: dict[Tile, list[Expr]] = {}
    for one in every:
        if isinstance(one, Let | Carry | Update):
            values.setdefault(one.tile, []).append(one.value)
    found: set[Tile] = set()
    waiting: list[Expr] = list(products)
    while waiting:
        for x in nodes(waiting.pop()):
            if isinstance(x, Tile) and x not in found:
                found.add(x)
                waiting.extend(values.get(x, ()))
    return found


def sources(products: list[Dot], lets: Mapping[Tile, Expr]) -> Iterator[Tile]:
    """The loaded tiles that are operands of products."""
    for x in products:
        yield from (found for operand in (x.left, x.right) if (found := source(operand, lets)) is not None)


def element_width(dtype: str, widths: Mapping[str, int]) -> int:
    """Bytes of one element, as said or as usual."""
    return widths[dtype] if dtype in widths else WIDTH[dtype]


def inside_loops(body: tuple[Statement, ...], inside: bool) -> list[Statement]:
    """The statements that some loop repeats."""
    found: list[Statement] = []
    for one in body:
        if isinstance(one, Loop):
            found.extend(inside_loops(one.body, True))
        elif inside:
            found.append(one)
    return found


def held(body: tuple[Statement, ...]) -> set[Tile]:
    """The right operands that loops read and something before them has made: they stay where they are, all of them."""
    found: set[Tile] = set()
    for loop in (one for one in statements(body) if isinstance(one, Loop)):
        own = statements(loop.body)
        made = {one.tile for one in own if isinstance(one, Let)}
        rights = (x.right for one in own for x in nodes_read(one) if isinstance(x, Dot))
        roots = (x.source if isinstance(x, Rename) else x for x in rights)
        found |= {x for x in roots if isinstance(x, Tile) and x.kind == "let" and x not in made}
    return found


def innermost(body: tuple[Statement, ...]) -> list[Statement]:
    """The statements of loops that hold no other: only these are pipelined."""
    found: list[Statement] = []
    for one in body:
        if isinstance(one, Loop):
            own = [inner for inner in one.body if not isinstance(inner, Loop)]
            found.extend(own if len(own) == len(one.body) else innermost(one.body))
    return found


def source(x: Expr, lets: Mapping[Tile, Expr]) -> Tile | None:
    """The loaded tile that an operand is, under other axes perhaps; None if it is computed."""
    match x:
        case Tile():
            return x if x.kind == "load" else source(lets[x], lets) if x in lets else None
        case Rename():
            return source(x.source, lets)
        case Cast():
            return None
        case _:
            return None
