"""Random layers for the tests: a spec with its operands, evaluated by every schedule and compared with the oracle."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from contractor.errors import RefusedError
from contractor.pipeline import Options, operator, program_of
from contractor.program.program import Program
from contractor.program.reference import reference
from contractor.schedules.register import SCHEDULES

torch.set_num_threads(1)
DTYPES = {"real": torch.float64, "int": torch.int64, "complex": torch.complex128}
CHUNK = 64
LENGTHS = (0, 1, 2, 7, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3)
FLOOR = 1e-11


@dataclass
class Layer:
    """A layer being drawn: sizes, declarations and operands by name."""

    rng: random.Random
    sizes: dict[str, int]
    batch: int = 2
    heads: int = 2
    declared: dict[str, str] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    definitions: list[str] = field(default_factory=list)
    output: str = "Y"
    square: bool = False  # T ≠ S would be refused

    @property
    def text(self) -> str:
        return "\n".join(["layer random", *self.declared.values(), *self.definitions, f"output {self.output}", ""])

    def shape(self, role: str, axes: str, count: int | None = None) -> tuple[int, ...]:
        """The shape of an operand in call layout; its head count is H, 1 or a divisor, its batch now and then 1."""
        count = count or self.rng.choice([n for n in range(1, self.heads + 1) if self.heads % n == 0])
        batch = self.rng.choice((1, self.batch, self.batch))
        lengths = tuple(self.sizes[axis] for axis in axes)
        if role == "param":
            return (count, *lengths)
        if len([axis for axis in axes if axis in "TS"]) == 1:
            return (batch, lengths[0], count, *lengths[1:])
        return (batch, count, *lengths)

    def declare(self, name: str, axes: str, kind: str = "real", values: str = "normal", role: str = "", heads: int | None = None) -> str:
        """A new operand; its name."""
        role = role or ("input" if "S" in axes or "T" in axes else self.rng.choice(("input", "param")))
        ending = "" if kind == "real" else f" : {kind}"
        self.declared[name] = f"{role} {name} [{', '.join(axes)}]{ending}"
        self.tensors[name] = numbers(values, self.shape(role, axes, heads), DTYPES[kind], self.rng)
        return name

    def argument(self, axes: str, kind: str = "real", values: str = "normal") -> str:
        """An operand of a mask."""
        return self.declare(f"x{len(self.declared)}", axes, kind, values)


def numbers(values: str, shape: tuple[int, ...], dtype: torch.dtype, rng: random.Random) -> Tensor:
    """Random numbers of a kind."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    if dtype == torch.int64:
        return torch.randint(0 if values == "label" else 1, 3 if values == "label" else 6, shape, generator=generator)
    normal = torch.randn(shape, dtype=torch.float64, generator=generator)
    angle = 6.28 * torch.rand(shape, dtype=torch.float64, generator=generator)
    complex_ = dtype == torch.complex128
    match values:
        case "log":
            log = -(normal.abs() * rng.choice((0.02, 0.3, 2.0, 9.0)))
            return torch.complex(log, angle) if complex_ else log
        case "gate":
            size = (1 - 0.3 * normal.abs()).clamp(0.05, 1)
            if complex_:
                return torch.polar(size, angle)
            zero = torch.rand(shape, generator=generator) < rng.choice((0.0, 0.0, 0.1))
            return torch.where(zero, 0.0, size * torch.where(angle < rng.choice((0.0, 3.0)), -1.0, 1.0))
        case "matrix":
            small = normal / (shape[-1] ** 0.5) / 1.3
            return torch.polar(small.abs(), angle) if complex_ else small
        case _:
            return torch.complex(normal, torch.randn(shape, dtype=torch.float64, generator=generator)) if complex_ else normal


# ---- masks ----------------------------------------------------------------------------------------------------------------------


def few(layer: Layer, extra: str) -> str:
    """Some of the mask's extra axes."""
    return "".join(axis for axis in extra if layer.rng.random() < 0.6)


def real_or_complex(layer: Layer, likely: float = 0.2) -> str:
    return "complex" if layer.rng.random() < likely else "real"


def late(layer: Layer, shift: int | None) -> str:
    shift = layer.rng.choice((0, 0, 1)) if shift is None else shift
    return f", shift = {shift}" if shift else ""


def positive(layer: Layer) -> str:
    """A positive integer: a number, or an int param."""
    return layer.rng.choice((str(layer.rng.randint(1, 9)), "")) or layer.declare(f"x{len(layer.declared)}", "", "int", role="param")


def leaf(layer: Layer, kind: str, extra: str, matrix: bool, shift: int | None = None) -> str:
    """One kind of mask with random arguments. matrix: it stands in a matrix mask, where a gate is a scalar or a diagonal."""
    rng = layer.rng
    own = few(layer, extra)[:1] if matrix else few(layer, extra)
    layer.square |= kind in SQUARE
    match kind:
        case "full" | "causal" | "fourier":
            return f"{kind}()"
        case "decay":
            log = rng.random() < 0.5
            gamma = layer.argument(own, real_or_complex(layer), "log" if log else "gate")
            return f"decay({'log = ' if log else ''}{gamma}{late(layer, shift)})"
        case "semiseparable":
            return semiseparable(layer, own, matrix, shift)
        case "product":
            gate = layer.argument(rng.choice(("S", "")) + extra, real_or_complex(layer), "matrix")
            return f"product({gate}{late(layer, shift)})"
        case "delta":
            return delta(layer, extra, shift)
        case "toeplitz":
            features = "" if matrix else own
            ahead = f", ahead = {layer.argument('R' + features)}" if rng.random() < 0.5 else ""
            return f"toeplitz({layer.argument('R' + features, real_or_complex(layer))}{ahead})"
        case "window" | "dilated" | "blocks" | "prefix":
            return f"{kind}({positive(layer)})"
        case "documents":
            apart = f", {layer.argument('S', 'int', 'label')}" if rng.random() < 0.5 else ""
            layer.square |= not apart
            return f"documents({layer.argument('T' if apart else 'S', 'int', 'label')}{apart})"
        case "matrix":
            return f"matrix({layer.argument('TS' + ('' if matrix else own), real_or_complex(layer))})"
        case _:
            raise AssertionError(kind)


def semiseparable(layer: Layer, own: str, matrix: bool, shift: int | None) -> str:
    log = layer.rng.random() < 0.6
    gate = layer.argument("S" + own, real_or_complex(layer), "log" if log else "gate")
    more = ""
    if layer.rng.random() < 0.3:
        more = f", write = {layer.argument('S' + ('' if matrix else own))}"
    if not matrix and layer.rng.random() < 0.3 and "left" not in "".join(layer.definitions):
        more += f", left = {layer.argument('TR')}, right = {layer.argument('SR')}"
        layer.definitions.append("# left")
    return f"semiseparable({'log = ' if log else ''}{gate}{more}{late(layer, shift)})"


def delta(layer: Layer, extra: str, shift: int | None) -> str:
    rng = layer.rng
    feature = rng.choice(extra)
    more = f", log = {layer.argument('S' + rng.choice(extra), values='log')}" if rng.random() < 0.4 else ""
    more += f", erase = {layer.argument('S' + rng.choice(extra), values='matrix')}" if rng.random() < 0.4 else ""
    beta = layer.argument(rng.choice(("S", "S" + rng.choice(extra))), values="gate")
    return f"delta({beta}, {layer.argument('S' + feature, values='matrix')}{more}{late(layer, shift)})"


SQUARE = ("fourier", "blocks")  # T ≠ S is refused
KINDS = ("full", "causal", "decay", "semiseparable", "toeplitz", "window", "dilated", "blocks", "prefix", "documents", "matrix", "fourier")
MATRICES = ("product", "delta")


def mask(layer: Layer, extra: str, depth: int = 2, kinds: tuple[str, ...] = KINDS) -> str:
    """A random mask expression."""
    rng = layer.rng
    form = rng.choice(("leaf", "leaf", "product", "product", "sum", "scaled", "reverse", "flip")) if depth else "leaf"
    match form:
        case "product" | "sum":
            sign = "*" if form == "product" else "+"
            return f"({mask(layer, extra, depth - 1, kinds)} {sign} {mask(layer, extra, depth - 1, kinds)})"
        case "scaled":
            factor = rng.choice(("0.5", "(-2)", "")) or layer.argument("", real_or_complex(layer))
            return f"{factor} * {mask(layer, extra, depth - 1, kinds)}"
        case "reverse" | "flip":
            layer.square = True
            return f"{form}({mask(layer, extra, depth - 1, kinds)})"
        case _:
            return leaf(layer, rng.choice(kinds), extra, False)


def matrix_mask(layer: Layer) -> str:
    """A mask of matrices over N and M."""
    rng = layer.rng
    shift = rng.choice((0, 0, 1))
    text = leaf(layer, rng.choice(MATRICES), "NM", True, shift)
    for _ in range(rng.choice((0, 0, 1, 2))):
        other = leaf(layer, rng.choice(("decay", "semiseparable", "causal", "delta", "product")), "NM", True, shift)
        text = f"{text} * {other}" if rng.random() < 0.5 else f"{other} * {text}"
    if rng.random() < 0.3:
        kind = rng.choice(("window", "documents", "prefix", "blocks", "dilated", "toeplitz", "matrix", "fourier"))
        text = f"{text} * {leaf(layer, kind, 'NM', True)}"
    if rng.random() < 0.2:
        text = f"({text} + 0.5 * decay({layer.argument('', values='gate')}))"
    turn = rng.choice(("", "", "reverse", "flip"))
    layer.square |= bool(turn)
    return f"{turn}({text})" if turn else text


# ---- layers ---------------------------------------------------------------------------------------------------------------------


def drawn(rng: random.Random, matrix: bool = False) -> Layer:
    """A random mixing in a layer."""
    length = rng.choice(LENGTHS)
    sizes = {"T": length, "S": length, "N": rng.randint(1, 3), "P": rng.randint(1, 3), "R": rng.randint(1, 4)}
    sizes["M"] = sizes["N"]
    if matrix and length > CHUNK:
        sizes |= {"T": 9, "S": 9}
    layer = Layer(rng, sizes, batch=rng.choice((1, 2)), heads=rng.choice((1, 2, 4)))
    extra = "NM" if matrix else rng.choice(("", "", "N", "P", "NP"))
    text = matrix_mask(layer) if matrix else mask(layer, extra)
    if rng.random() < 0.35 and not layer.square:
        layer = redrawn_apart(layer, rng)
    kind = real_or_complex(layer, 0.15)
    layer.declare("Q", "TN", kind)
    layer.declare("K", "SM" if matrix else "SN", real_or_complex(layer, 0.1))
    layer.declare("V", "SP", real_or_complex(layer, 0.1), heads=layer.heads)
    key = "SM" if matrix else "SN"
    layer.definitions = [f"L [T, S{''.join(', ' + axis for axis in extra)}] = {text}"]
    key_text, value_text = weighted(layer, "K"), weighted(layer, "V")
    layer.definitions.append(f"Y [T, P] = contract(TN, {key}, SP, TS{extra} -> TP)(Q, {key_text}, {value_text}, L)")
    layer.output = around(layer)
    return layer


def weighted(layer: Layer, name: str) -> str:
    """An operand, now and then times one number a source, sometimes under a name of its own."""
    if layer.rng.random() < 0.6:
        return name
    product = f"{layer.declare(f'x{len(layer.declared)}', 'S', role='input')} * {name}"
    if name == "K" or layer.rng.random() < 0.5:
        return product
    layer.definitions.append(f"weighted_V [S, P] = {product}")
    return "weighted_V"


def around(layer: Layer) -> str:
    """The output: the contraction, now and then at another scale, weighted row by row and with its value's own row."""
    rng = layer.rng
    text = rng.choice(("Y", "Y", "Y * rsqrt(N)", "-0.5 * Y / sqrt(N)", "Y / 3"))
    if rng.random() < 0.3:
        row = layer.declare(f"x{len(layer.declared)}", "T", role="input")
        text = rng.choice((f"{text} / (1 + {row}^2)", f"{row} * {text}"))
    if layer.sizes["T"] != layer.sizes["S"] or rng.random() < 0.5:
        return text
    layer.square = True
    share = rng.choice(("", f"{layer.declare(f'x{len(layer.declared)}', '', role='param')} * "))
    return rng.choice((f"{text} + {share}V[T, P]", f"{share}V[T, P] + {text}"))


def redrawn_apart(layer: Layer, rng: random.Random) -> Layer:
    """The layer with T ≠ S: every operand over T drawn anew."""
    layer.sizes["T"] = rng.choice((1, 3, CHUNK, CHUNK + 5))
    for name, line in layer.declared.items():
        axes = line.split("[")[1].split("]")[0].replace(", ", "")
        if "T" in axes:
            kind = line.rpartition(" : ")[2] if " : " in line else "real"
            layer.declare(name, axes, kind, "label" if kind == "int" else "normal", role="input")
    return layer


# ---- agreement ------------------------------------------------------------------------------------------------------------------


@dataclass
class Answer:
    """What one schedule did with a layer: its outputs and gradients by operand, or why it refused."""

    schedule: str
    outputs: tuple[Tensor, ...] = ()
    gradients: dict[str, Tensor] = field(default_factory=dict)
    refusal: str = ""


def floating(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: one for name, one in tensors.items() if one.is_floating_point() or one.is_complex()}


def leaves(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as leaves that want gradients."""
    return {name: one.detach().clone().requires_grad_(name in floating(tensors)) for name, one in tensors.items()}


def differentiated(outputs: tuple[Tensor, ...], given: dict[str, Tensor], along: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """The gradients of every operand that has one; zeros where an output does not depend on it."""
    wanted = {name: one for name, one in given.items() if one.requires_grad}
    pairs = [(one, way) for one, way in zip(outputs, along, strict=True) if one.requires_grad]
    if not wanted or not pairs:
        return {name: torch.zeros_like(one) for name, one in wanted.items()}
    found = torch.autograd.grad([one for one, _ in pairs], list(wanted.values()), [way for _, way in pairs], allow_unused=True)
    return {name: torch.zeros_like(wanted[name]) if one is None else one for name, one in zip(wanted, found, strict=True)}


def expected(program: Program, tensors: dict[str, Tensor], along: tuple[Tensor, ...] | None = None) -> tuple[Answer, tuple[Tensor, ...]]:
    """The oracle's answer, and the directions that gradients are taken along."""
    given = leaves(tensors)
    outputs = reference(program, given)
    if along is None:
        generator = torch.Generator().manual_seed(7)
        along = tuple(torch.randn(one.shape, dtype=one.dtype, generator=generator) for one in outputs)
    return Answer("oracle", outputs, differentiated(outputs, given, along)), along


def answered(program: Program, tensors: dict[str, Tensor], along: tuple[Tensor, ...], schedule: str | None) -> Answer:
    """One schedule's answer."""
    given = leaves(tensors)
    try:
        found = operator(program, Options(schedule=schedule, backend="torch"))(**given)
    except RefusedError as refused:
        return Answer(schedule or "chosen", refusal=str(refused))
    outputs = found if isinstance(found, tuple) else (found,)
    ways = tuple(way.to(one.dtype) for way, one in zip(along, outputs, strict=True))
    return Answer(schedule or "chosen", outputs, differentiated(outputs, given, ways))


def wrong(answer: Answer, oracle: Answer, forward: float = 1e-10, backward: float = 1e-10) -> Iterator[str]:
    """Where an answer differs from the oracle's, in words."""
    for index, (one, other) in enumerate(zip(answer.outputs, oracle.outputs, strict=True)):
        if problem := difference(one, other, forward):
            yield f"{answer.schedule}: output {index} {problem}"
    for name, gradient in oracle.gradients.items():
        if problem := difference(answer.gradients[name], gradient, backward):
            yield f"{answer.schedule}: gradient of {name} {problem}"


def difference(one: Tensor, other: Tensor, tolerance: float) -> str:
    if one.shape != other.shape:
        return f"has shape {tuple(one.shape)}, not {tuple(other.shape)}"
    one, other = one.detach(), other.detach()
    distance, size = float((one - other).abs().square().sum().sqrt()), float(other.abs().square().sum().sqrt())
    if distance <= tolerance * size + FLOOR * tolerance / 1e-10:
        return ""
    return f"is off by {distance:.2e} of {size:.2e}"


def check(text: str, tensors: dict[str, Tensor]) -> tuple[list[str], dict[str, str]]:
    """What is wrong with each schedule's answer to a layer in float64, and why the others refuse. Where all do (a sum of masks may want
    a schedule for each of its parts), what the planner chooses is asked too."""
    program = program_of(text)
    oracle, along = expected(program, tensors)
    answers = [answered(program, tensors, along, schedule) for schedule in SCHEDULES]
    if all(answer.refusal for answer in answers):
        answers.append(answered(program, tensors, along, None))
    mistakes = [mistake for answer in answers if not answer.refusal for mistake in wrong(answer, oracle)]
    return mistakes, {answer.schedule: answer.refusal for answer in answers if answer.refusal}
