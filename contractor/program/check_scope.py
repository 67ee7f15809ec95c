"""What a layer has declared so far and the mistakes found in it: the ledger that every part of the checker writes to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice

from contractor.errors import Mistake, Span
from contractor.program.expression import POSITIONS, Axes, Expression, Named, Variable
from contractor.program.functions import FUNCTIONS
from contractor.program.masks import MASKS
from contractor.text import spec

KEYWORDS = ("layer", "input", "param", "output", "over", "under", "in", "complex", "int", "contract")
TURNS = ("reverse", "flip")
OF_A_CALL = ("initial_state", "return_state", "cu_seqlens", "slots", "state")  # given by name beside the operands
IMPLICIT = {"B": "batch", "H": "head"}
MOST_AXES = 40
MOVE = "move its definition up"
AXIS = re.compile(r"[A-Z][0-9]*")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A declared tensor: `written` are its axes as declared, `variable` holds them positions first."""

    variable: Variable
    written: Axes
    role: str
    span: Span


@dataclass(frozen=True, slots=True)
class MaskSymbol:
    """A declared mask, and how large it is with all names written out: `terms` of a sum of products, `nodes` of the tree."""

    named: Named
    terms: int
    nodes: int
    matrix: bool
    span: Span

    @property
    def written(self) -> Axes:
        return ("T", "S", *self.named.axes)


@dataclass(frozen=True, slots=True)
class Broken:
    """A name whose definition has a mistake; its uses are not reported again."""

    span: Span


Symbol = Tensor | MaskSymbol | Broken


@dataclass(slots=True)
class Scope:
    """The state of checking one layer."""

    symbols: dict[str, Symbol] = field(default_factory=dict[str, Symbol])
    axes: dict[str, Span] = field(default_factory=dict[str, Span])
    later: dict[str, Span] = field(default_factory=dict[str, Span])
    sized: set[str] = field(default_factory=set[str])
    spare: str = "Z0"
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    self_mixing: bool = False

    def wrong(self, message: str, *spans: Span, hint: str = "") -> None:
        """Write a mistake down."""
        self.mistakes.append(Mistake(message, spans, hint))

    def unknown(self, name: spec.Name, candidates: Iterable[str], what: str) -> None:
        """A name that means nothing here."""
        self.wrong(f"{what} `{name.text}` is not known", name.span, hint=did_you_mean(name.text, candidates))


Left = Axes | None
Read = Callable[[Scope, spec.Expression, Left], Expression | None]


MOST_COMPARED = 100  # names that a wrong one is compared with: a hostile spec may hold thousands of both


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """The nearest names, as a hint; matching ignores case."""
    known = {candidate.lower(): candidate for candidate in islice(candidates, MOST_COMPARED)}
    near = get_close_matches(name.lower()[:80], known, 3, 0.6)
    return f"did you mean {listed([known[match] for match in near], 'or')}?" if near else ""


def listed(names: Sequence[str], last: str = "and") -> str:
    """Names in a sentence: `a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"


def shown(axes: Axes) -> str:
    """Axes as they are declared: [T, N]."""
    return f"[{', '.join(axes)}]"


def has(axes: Axes) -> str:
    """What a value has, in a sentence."""
    return f"has the axes {shown(axes)}" if axes else "has no axes"


def plural(count: int, noun: str) -> str:
    """`1 axis`, `2 axes`, `0 arguments`."""
    many = {"axis": "axes"}.get(noun, f"{noun}s")
    return f"{count} {noun if count == 1 else many}"


def positions_of(axes: Axes) -> Axes:
    """The positions among axes."""
    return tuple(axis for axis in axes if axis in POSITIONS)


def features_of(axes: Axes) -> Axes:
    """The feature axes among axes."""
    return tuple(axis for axis in axes if axis not in POSITIONS)


def positions_first(axes: Axes) -> Axes:
    """Positions, then features, each in the order written."""
    return positions_of(axes) + features_of(axes)


def union(*several: Axes) -> Axes:
    """All axes: T, S, then features by first appearance."""
    every = dict.fromkeys(axis for axes in several for axis in axes)
    return tuple(axis for axis in POSITIONS if axis in every) + features_of(tuple(every))


def is_axis(name: str) -> bool:
    """True for one upper-case letter with digits after it."""
    return AXIS.fullmatch(name) is not None


def read_axes(scope: Scope, names: tuple[spec.Name, ...]) -> Axes | None:
    """The letters of a bracket: axes, none twice, none implicit; None if there was a mistake."""
    before = len(scope.mistakes)
    seen: dict[str, Span] = {}
    for name in names:
        if name.text in IMPLICIT:
            implicit(scope, name.text, name.span)
        elif not is_axis(name.text):
            hint = "an axis is one upper-case letter, with digits after it: `N`, `N2`"
            scope.wrong(f"`{name.text}` is not an axis", name.span, hint=hint)
        elif name.text in seen:
            hint = "" if name.text in POSITIONS else f"give the second a letter of its own: `{name.text}2`"
            scope.wrong(f"the axis {name.text} stands here twice", seen[name.text], name.span, hint=hint)
        seen.setdefault(name.text, name.span)
    return tuple(seen) if len(scope.mistakes) == before else None


def implicit(scope: Scope, letter: str, span: Span) -> None:
    """The axes of batch and head may not be written."""
    scope.wrong(
        f"`{letter}` is no axis: {IMPLICIT[letter]} is implicit everywhere",
        span,
        hint=f"leave it out, or call a feature axis `{letter}2`",
    )


def reserved(name: str) -> str:
    """What a name already means in the language, or nothing."""
    if name in KEYWORDS:
        return "a word of the language"
    if name in FUNCTIONS:
        return "a function"
    return "a mask" if name in MASKS or name in TURNS else ""


def declare(scope: Scope, name: spec.Name, symbol: Symbol) -> None:
    """Enter a symbol, once; a name that has a meaning or is an axis too is refused where it is declared."""
    meaning = reserved(name.text)
    if name.text in OF_A_CALL and isinstance(symbol, Tensor) and symbol.role in ("input", "param"):
        meaning = "an argument of every call"
    if meaning:
        scope.wrong(f"`{name.text}` is {meaning}: it cannot name a tensor", name.span, hint="choose another name")
    elif name.text in scope.symbols:
        scope.wrong(f"`{name.text}` is declared twice", scope.symbols[name.text].span, name.span, hint="every name is declared once")
    elif name.text in scope.axes:
        clash = "the positions T and S are axes" if name.text in POSITIONS else "a letter is one or the other"
        scope.wrong(f"`{name.text}` is both a tensor and an axis", name.span, *spans_of(scope.axes[name.text]), hint=f"rename one: {clash}")
    else:
        scope.symbols[name.text] = symbol


def real_of(function: str) -> str:
    """What would fit where a complex value was refused."""
    compares = function in ("min", "max", "clamp", "relu", "sign", "softmax")
    return f"{'complex values have no order; ' if compares else ''}take `real(…)`, `imag(…)` or `abs(…)` of it"


def spans_of(span: Span) -> tuple[Span, ...]:
    """The span, unless it is empty."""
    return (span,) if span.stop > span.start else ()
