"""Random masks for the tests, made from the register's own parameters, and laws evaluated entry by entry in plain loops."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import torch
from torch import Tensor

from contractor.errors import ContractorError
from contractor.program.dense import Grid
from contractor.program.evaluate import Reading, einsum, evaluate
from contractor.program.expression import Axes, Constant, Expression, Leaf, Number, Variable
from contractor.program.masks import MASKS
from contractor.program.masks.mask import Dense, Fade, Law, Lookup, Parameter, RankOne, Rotation
from contractor.program.place import Place
from contractor.program.place import evaluate as place_value
from contractor.program.values import Value, grouped, lined_up

SIZES = {"N": 2, "M": 2, "P": 3, "R": 3}
HEADS = 2


@dataclass
class Case:
    """Sizes and the tensors of arguments by name."""

    targets: int
    sources: int
    rng: random.Random
    tensors: dict[str, Value] = field(default_factory=dict)
    mirrored: bool = False

    def value(self, expression: Expression) -> Value:
        sizes = {**SIZES, "T": self.targets, "S": self.sources}
        reading = Reading(self.tensors.__getitem__, einsum, None, sizes, lambda axis: torch.arange(sizes[axis]), torch.float64)
        return evaluate(expression, reading)

    def grid(self) -> Grid:
        return Grid(self.targets, self.sources, self.value)

    def variable(self, axes: Axes, tensor: Tensor, number: Number) -> Variable:
        name = f"x{len(self.tensors)}"
        self.tensors[name] = Value(tensor, axes)
        return Variable(name, axes, number)

    def shape(self, axes: Axes) -> list[int]:
        sizes = {**SIZES, "T": self.targets, "S": self.sources}
        return [self.rng.choice((1, 2)), self.rng.choice((1, HEADS)), *(sizes[axis] for axis in axes)]


def random_leaf(kind: str, case: Case, axes: Axes, plain: bool = False) -> Leaf:
    """A leaf of a kind with random arguments; whatever the kind refuses is drawn again. plain: no rank and no write."""
    while True:
        leaf = draw(kind, case, axes, plain)
        try:
            MASKS[kind].law(leaf)
        except ContractorError:
            continue
        return leaf


def draw(kind: str, case: Case, axes: Axes, plain: bool) -> Leaf:
    rng, known = case.rng, MASKS[kind]
    chosen = {rng.choice(choice) for choice in known.choices}
    choices = {name for choice in known.choices for name in choice}
    arguments = []
    for parameter in known.parameters:
        loose = parameter.keyword or parameter.optional
        if parameter.name in choices:
            wanted = parameter.name in chosen
        else:
            wanted = not loose or (rng.random() < 0.4 and not (plain and parameter.name in ("write", "left", "right")))
        if wanted:
            arguments.append((parameter.name, random_argument(parameter, case, axes, known.matrix)))
    return Leaf(kind, tuple(arguments), axes, rng.choice((0, 1)) if known.shifts else 0)


def random_argument(parameter: Parameter, case: Case, axes: Axes, matrix: bool) -> Expression:
    rng = case.rng
    if parameter.integer:
        number = rng.randint(1, case.sources + 2)
        if rng.random() < 0.5:
            return Constant(number)
        return case.variable((), torch.randint(1, case.sources + 2, (1, rng.choice((1, HEADS)))), Number.INT)
    positions = rng.choice(parameter.positions)
    few = [axis for axis in axes if rng.random() < 0.6]
    features: Axes = {
        "extra": tuple(few[:1] if matrix else few),
        "matrix": axes,
        "side": (rng.choice(axes),) if axes else (),
        "own": ("R", *few) if positions == () else ("R",),
        "none": (),
    }[parameter.features]
    own = (*positions, *features)
    if parameter.features == "none":
        return case.variable(own, torch.randint(0, 3, case.shape(own)), Number.INT)
    return case.variable(own, *random_numbers(parameter.name, case, own))


def random_numbers(name: str, case: Case, axes: Axes) -> tuple[Tensor, Number]:
    """Numbers of moderate size; now and then a gate of 0, a log of −inf, complex ones."""
    tensor = torch.randn(case.shape(axes), dtype=torch.float64)
    if name == "log":
        tensor = -tensor.abs()
        tensor[torch.rand(tensor.shape) < 0.15] = -math.inf
        return (torch.complex(tensor, torch.randn_like(tensor)), Number.COMPLEX) if case.rng.random() < 0.25 else (tensor, Number.REAL)
    tensor[torch.rand(tensor.shape) < 0.15] = 0.0
    if name in ("gamma", "a", "alpha", "A") and case.rng.random() < 0.25:
        return torch.complex(tensor, torch.randn_like(tensor)), Number.COMPLEX
    return tensor, Number.REAL


def extra_axes(kind: str, rng: random.Random) -> Axes:
    return ("N", "M") if MASKS[kind].matrix else rng.choice(((), ("N",), ("P",), ("N", "P")))


def is_square(leaf: Leaf) -> bool:
    return MASKS[leaf.kind].law(leaf).square


# ---- a law, entry by entry ---------------------------------------------------------------------------------------------------


def at(case: Case, expression: Expression, axes: Axes, places: dict[str, int]) -> Tensor:
    """An argument at given positions over [batch, head, *axes, R]; 0 outside."""
    value = case.value(expression)
    tensor = lined_up(value, ("T", "S", *axes, "R"))
    if not tensor.dim():
        return tensor.reshape(1, 1, *(1 for _ in axes), 1)
    for dim, axis in ((3, "S"), (2, "T")):
        if axis in value.axes:
            place, count = places[axis], tensor.shape[dim]
            place = count - 1 - place if case.mirrored else place
            if not 0 <= place < count:
                return torch.zeros(1, 1, *(1 for _ in axes), 1, dtype=torch.float64)
            tensor = tensor.select(dim, place)
        else:
            tensor = tensor.squeeze(dim)
    return grouped(tensor.to(torch.promote_types(tensor.dtype, torch.float64)), HEADS)


def holds(case: Case, support: Place | None, t: int, s: int) -> Tensor:
    """Does the support hold at (t, s)? [batch, head], bool."""

    def held(expression: Expression, place: int) -> Tensor:
        own = place - (case.sources - case.targets)
        return at(case, expression, (), {"T": own, "S": place}).squeeze(-1)

    if support is None:
        return torch.tensor([[True]])
    return place_value(
        support,
        torch.tensor([[t]]),
        torch.tensor([[s]]),
        torch.tensor([[case.sources]]),
        lambda value: at(case, value, (), {}).squeeze(-1),
        lambda value, place: held(value, int(place)),
        lambda a, b: a == b,
    )


def crossing(case: Case, step, axes: Axes, j: int, matrix: bool) -> Tensor:
    """One transition at position j over [batch, head, *axes, R]."""
    places = {"S": j}
    match step:
        case Fade():
            value = at(case, step.value, axes, places)
            value = value.exp() if step.log else value
            return diagonal(value) if matrix else value
        case Dense():
            return at(case, step.value, axes, places)
        case RankOne():
            beta, key, erase = (at(case, one, axes, places).flatten(2, 3) for one in (step.beta, step.key, step.erase))
            log = torch.zeros(1, 1, 1, 1) if step.log is None else at(case, step.log, axes, places)
            return diagonal(log.exp()) - ((beta * key).unsqueeze(3) * erase.unsqueeze(2))


def diagonal(value: Tensor) -> Tensor:
    """A scalar or a vector (over row or column) [batch, head, row, column, R] as a diagonal matrix."""
    if value.dim() == 4:
        value = value.unsqueeze(2)
    vector = value.flatten(2, 3).expand(-1, -1, SIZES["N"], -1)
    return torch.diag_embed(vector.movedim(-1, 2)).movedim(2, -1)


def compose(left: Tensor, right: Tensor, matrix: bool) -> Tensor:
    if not matrix:
        return left * right
    dtype = torch.promote_types(left.dtype, right.dtype)
    return torch.einsum("bhijr,bhjkr->bhikr", *(grouped(one, HEADS).to(dtype) for one in torch.broadcast_tensors(left, right)))


def law_entry(case: Case, law: Law, axes: Axes, matrix: bool, t: int, s: int, direction: str) -> Tensor:
    """L at the target t (in the sources' coordinates) and the source s, [batch, head, *axes], by the law."""
    count = case.sources
    turned = (count - 1 - s, count - 1 - t)
    here = {"past": (t, s), "future": (s, t), "flipped": turned[::-1], "turned": turned}[direction]
    mirrored = Case(case.targets, case.sources, case.rng, case.tensors, direction in ("flipped", "turned"))
    one = torch.ones(1, 1, *(1 for _ in axes), 1, dtype=torch.float64)
    if matrix:
        one = torch.eye(SIZES["N"], dtype=torch.float64)[None, None, :, :, None]
    condition = holds(mirrored, law.support, *here)
    total = one
    order = range(here[1] + 1, here[0] + 1)
    for j in reversed(order) if direction in ("future", "turned") else order:
        for step in reversed(law.steps):
            if not (step.shift and j == here[0]):
                total = compose(crossing(mirrored, step, axes, j, matrix), total, matrix)
    for weight in law.weights:
        total = total * weight_at(mirrored, weight, axes, *here)
    places = {"T": t - (case.sources - case.targets), "S": s}
    for value in law.write:
        total = total * at(case, value, axes, places).exp()
    for rank in law.ranks:
        total = total * at(case, rank.left, axes, places) * at(case, rank.right, axes, places)
    total = total.sum(-1) if law.ranks else total.squeeze(-1)
    return torch.where(condition.reshape(*condition.shape, *(1 for _ in axes)), total, 0)


def weight_at(case: Case, weight, axes: Axes, t: int, s: int) -> Tensor:
    if isinstance(weight, Rotation):
        angle = torch.tensor(-2 * math.pi * t * s / case.targets, dtype=torch.float64)
        return torch.polar(torch.ones_like(angle), angle)
    assert isinstance(weight, Lookup)
    index = [int(place_value(place, t, s, case.sources, None, None, None)) for place in weight.index]
    if weight.ahead is not None and index[0] < 0:
        return looked_up(case, weight.ahead, axes, [-index[0]])
    return looked_up(case, weight.value, axes, index)


def looked_up(case: Case, expression: Expression, axes: Axes, index: list[int]) -> Tensor:
    value = case.value(expression)
    if len(index) == 1 and value.axes == ("S",):
        return value.tensor[0, 0, index[0]]
    if value.axes[0] == "R":
        if not 0 <= index[0] < SIZES["R"]:
            return torch.zeros((), dtype=torch.float64)
        return grouped(lined_up(value, ("R", *axes))[:, :, index[0]], HEADS).unsqueeze(-1)
    own = {"T": index[0] - (case.sources - case.targets), "S": index[1]}
    return at(case, expression, axes, own)


def law_entries(case: Case, law: Law, axes: Axes, matrix: bool = False, direction: str = "past") -> Tensor:
    """Every entry: [batch, head, T, S, *axes]."""
    shape = [2, HEADS, *(SIZES[axis] for axis in axes)]
    rows = [
        torch.stack(
            [law_entry(case, law, axes, matrix, t, s, direction).expand(shape) + 0j for s in range(case.sources)] or [torch.zeros(0)],
            2,
        )
        for t in range(case.sources - case.targets, case.sources)
    ]
    return torch.stack(rows, 2) if rows else torch.zeros(2, HEADS, 0, case.sources, *shape[2:]) + 0j


def full(case: Case, value: Value, axes: Axes) -> Tensor:
    """A dense mask over all of [batch, head, T, S, *axes], complex."""
    tensor = grouped(lined_up(value, ("T", "S", *axes)), HEADS)
    return tensor.expand(2, HEADS, case.targets, case.sources, *(SIZES[axis] for axis in axes)) + 0j
