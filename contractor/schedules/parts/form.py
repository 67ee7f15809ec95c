"""What a lowering is told: the form of one contraction (its kind, which fixes the text of the kernels) and its sizes.

Everything that letters and expressions can settle is settled before: operands are multiplied together, signs and phases of a transition
stand in the query and the key, all gates of one crossing are summed. What is left is
    result[t, p] = scale · Σ over s and n of L[t, s, …] · query[t, n] · key[s, n] · value[s, p] + skip · value[t, p]
for each batch element and head, with L = support · tables · row weights · exp(Σ gates crossed between s and t).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from contractor.program.expression import Expression
from contractor.program.place import Place

Side = Literal["n", "p"]
Flow = Literal["", "target", "source", "weight", "whole"]
Row = Literal["target", "source"]


@dataclass(frozen=True, slots=True)
class Gate:
    """The natural log of a scalar or diagonal transition, float32.

    fixed: one value at every position, tensor [H, *features]; else [B, S, H, *features]. features: which axes of the state it
    differs over. shift 1: the crossing of the target itself is left out. resets: it may hold −inf (or nearly), so differences of its
    sums need care. by_value: the tensor holds the transition itself and not its log. shared: a parameter enters it, whose gradient is
    one sum over all positions.
    """

    name: str
    fixed: bool = False
    features: tuple[Side, ...] = ()
    shift: int = 0
    resets: bool = True
    by_value: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix transition: "dense" (tensor [B, S, H, N, N] or fixed [H, N, N]) or "rank_one" (log, key and erase [B, S, H, N], the
    key already multiplied by beta). tied: what a rank-one step erases is what is written there, so it has no key and erase of its own: the
    first is the contraction's key times the weight, the second the key alone."""

    name: str
    kind: Literal["dense", "rank_one"]
    fixed: bool = False
    log: bool = False
    shift: int = 0
    tied: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """An entrywise factor: tensor `name` [H or B·H…, *axes], read at `index`; outside it is 0."""

    name: str
    index: tuple[Place, ...]
    batched: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """An integer argument of the support, int64: [heads], or, held at positions, [B, T, heads]."""

    name: str
    value: Expression
    held: bool


@dataclass(frozen=True, slots=True)
class Form:
    """One kind of contraction. Two problems of one form print the same kernels.

    steps: the transitions, left applied last. future: everything is read with t and s exchanged (a transposed mask). directed: a
    source is not after its target; strict: lag 0 is left out too. support: what else an entry must satisfy. grouped: buffers with
    fewer than H heads. shifted: there are fewer sources than positions, so places of the support count from the scalar `offset` on.
    stateless: why the mask carries no state, in the user's words ("" if it does).
    packed: sequences lie end to end, bounded by `starts` [SEQUENCES + 1]. initial, final: the state before the first position that is
    walked over is read, the one after the last is stored, [SEQUENCES, H, N, P];
    pooled: both are one tensor [SLOTS, H, N, P], and `slots` says where each sequence's is (below 0: it has none).
    flow: what the pass does for a gate's gradient, of which both sides' passes make a half, or for a weight's (see `parts.flow`);
    "whole": the pass is the backward, and makes the gradient of every operand from `arrived`, the result's (see `parts.reverse`).
    weights: buffers [B, T, heads] whose numbers multiply the rows of all targets or of all sources.
    skip: the value at the target's own place is added, times `skip` [heads]. own: each row's own score is stored, of which a skip's
    gradient is the sum.
    """

    steps: tuple[Gate | Matrix, ...] = ()
    tables: tuple[Table, ...] = ()
    arguments: tuple[Argument, ...] = ()
    support: Place | None = None
    directed: bool = True
    future: bool = False
    strict: bool = False
    grouped: tuple[str, ...] = ()
    shifted: bool = False
    stateless: str = ""
    packed: bool = False
    initial: bool = False
    final: bool = False
    pooled: bool = False
    flow: Flow = ""
    weights: tuple[tuple[str, Row], ...] = ()
    skip: bool = False
    own: bool = False

    @property
    def gates(self) -> tuple[Gate, ...]:
        """The scalar and diagonal transitions."""
        return tuple(step for step in self.steps if isinstance(step, Gate))

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """The matrix transitions."""
        return tuple(step for step in self.steps if isinstance(step, Matrix))

    @property
    def scalar(self) -> bool:
        """True if every transition is one number for the whole state."""
        return not self.matrices and all(not gate.features for gate in self.gates)

    def weighing(self, row: Row) -> tuple[str, ...]:
        """The buffers that multiply the rows of targets, or of sources."""
        return tuple(name for name, own in self.weights if own == row)

    @property
    def spanned(self) -> bool:
        """True if a pass walks span by span, for a gate's gradient."""
        return self.flow in ("target", "source")

    @property
    def walked(self) -> str:
        """Why only an order that walks along the sequence with a state may evaluate the form, in the user's words; "" if others may."""
        if self.initial or self.final:
            return "no state enters or leaves it: it reads every source at its own place"
        return "it would compare every pair of positions, of all packed sequences" if self.packed else ""


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The sizes of one contraction in normal form: B batch, T positions, H heads (batch letters folded in), N inner, P outer; the
    head count of each buffer that has fewer than H. offset: how many positions there are before the first source. sequences: how many
    are packed, 0 where each batch element is one."""

    B: int
    T: int
    H: int
    N: int
    P: int
    heads: tuple[tuple[str, int], ...] = ()
    offset: int = 0
    sequences: int = 0

    @property
    def streams(self) -> int:
        """How many sequences there are: packed ones, or the batch."""
        return self.sequences or self.B

    @property
    def mapping(self) -> dict[str, int]:
        """Sizes by the names that kernels use."""
        counts = {heads_name(buffer): count for buffer, count in self.heads}
        own = {"B": self.B, "T": self.T, "H": self.H, "N": self.N, "P": self.P, "offset": self.offset}
        return {**own, "SEQUENCES": self.streams, "BOUNDS": self.streams + 1, **counts}


def heads_name(buffer: str) -> str:
    """The constant that holds the head count of a grouped buffer."""
    return f"{buffer.upper()}_HEADS"


@dataclass(frozen=True, slots=True)
class Task:
    """One contraction to be evaluated: its form, its sizes and the dtype of its operands. careful: its result is part of a long sum of
    differences (a gate's gradient), so 16-bit operands must not cost it the digits that a 16-bit state would. scale: of the result, not
    of a state."""

    form: Form
    dimensions: Dimensions
    dtype: str
    careful: bool = False
    scale: float = 1.0


FORWARD: dict[str, str] = {"query": "query", "key": "key", "value": "value"}
DQUERY: dict[str, str] = {"query": "result", "key": "value", "value": "key"}
DKEY: dict[str, str] = {"query": "value", "key": "result", "value": "query"}
DVALUE: dict[str, str] = {"query": "key", "key": "query", "value": "result"}


def permuted(task: Task, roles: dict[str, str]) -> Task:
    """The contraction with its roles permuted: each role is played by the forward's tensor that `roles` names ("result": its gradient).

    dQuery[t, n] = f(dResult, value, key; L), dKey = f(value, dResult, query; Lᵀ), dValue = f(key, query, dResult; Lᵀ). What a source is
    weighted by weights the targets of the last two; only the value's gradient has a skip.
    """
    old = dict(task.dimensions.heads)
    heads = tuple((role, old[source]) for role, source in roles.items() if source in old)
    heads += tuple((name, count) for name, count in task.dimensions.heads if name not in ROLES)
    form = replace(
        task.form,
        grouped=tuple(name for name, _ in heads),
        future=task.form.future != (roles is not DQUERY),
        initial=False,
        final=False,
        weights=task.form.weights if roles is DQUERY else tuple((name, TURNED[row]) for name, row in task.form.weights),
        skip=task.form.skip and roles is DVALUE,
    )
    dimensions = replace(task.dimensions, heads=heads)
    if roles is DVALUE:
        return replace(task, form=form, dimensions=dimensions)
    steps = tuple(exchanged(step) for step in form.steps)
    sizes = replace(dimensions, N=dimensions.P, P=dimensions.N)
    return replace(task, form=replace(form, steps=steps), dimensions=sizes)


def exchanged(step: Gate | Matrix) -> Gate | Matrix:
    """The step with the axes n and p exchanged."""
    if isinstance(step, Matrix):
        raise ValueError("a matrix transition has no gradient by roles: its gradient goes through the printed text")
    return replace(step, features=tuple(SWAP[side] for side in step.features))


ROLES = ("query", "key", "value")
TURNED: dict[Row, Row] = {"source": "target", "target": "source"}
WEIGHTS: dict[Row, str] = {"target": "target_weight", "source": "source_weight"}
SWAP: dict[Side, Side] = {"n": "p", "p": "n"}
