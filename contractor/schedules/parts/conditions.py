"""The support of a mask as a kernel takes it: its direction, what else must hold, and which numbers in that are read from tensors."""

from __future__ import annotations

from collections.abc import Iterator

from contractor.program.expression import Constant, Expression
from contractor.program.place import LAG, Binary, Given, Held, Place, conjuncts
from contractor.schedules.parts.form import Argument


def direction(support: Place | None) -> tuple[bool, bool, Place | None]:
    """(a source is never after its target, nor at it, what else must hold)."""
    parts = list(conjuncts(support))
    rest = [part for part in parts if part not in (LAG >= 0, LAG >= 1)]
    joined: Place | None = None
    for part in rest:
        joined = part if joined is None else Binary("&", joined, part)
    return len(rest) < len(parts), (LAG >= 1) in parts, joined


def arguments(support: Place | None) -> tuple[Argument, ...]:
    """The arguments of a support that are read from tensors: all but numbers."""
    found: dict[Expression, bool] = {}
    for node in nodes(support):
        if isinstance(node, Held):
            found[node.value] = True
        elif isinstance(node, Given) and not isinstance(node.value, Constant):
            found[node.value] = False
    names = [("labels" if held else "bound") for held in found.values()]
    unique = [name if names.count(name) == 1 else f"{name}_{names[:index].count(name) + 1}" for index, name in enumerate(names)]
    return tuple(Argument(name, value, held) for name, (value, held) in zip(unique, found.items(), strict=True))


def nodes(place: Place | None) -> Iterator[Place]:
    """Every node of a place."""
    if place is None:
        return
    yield place
    match place:
        case Binary():
            yield from nodes(place.left)
            yield from nodes(place.right)
        case Held():
            yield from nodes(place.at)
        case _:
            return
