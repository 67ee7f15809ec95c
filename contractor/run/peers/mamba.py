"""mamba_ssm: the state-space duality layer of Mamba-2, with its step, its skip and one head of B and C for each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from contractor.plan.problem import Problem
from contractor.program.expression import Apply, Expression
from contractor.run.peers.around import Around, unmixed
from contractor.run.peers.fitted import Fitted, chunked_flops
from contractor.run.peers.structure import Structure, gates, same, structure

try:
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined  # pyright: ignore[reportMissingImports]
except ImportError:
    mamba_chunk_scan_combined: Any = None

CHUNK = 256


class Mamba:
    """The adapter."""

    module: ClassVar[str] = "mamba_ssm"

    def absent(self) -> str:
        """What to install."""
        return "" if mamba_chunk_scan_combined is not None else "not installed: pip install mamba-ssm"

    def fit(self, problem: Problem) -> Fitted | str:
        """One gate exp(A · step) from the input, a value step · X, and Y or Y + D · X as the output."""
        found = structure(problem)
        if isinstance(found, str):
            return found
        layer = layer_of(found)
        if isinstance(layer, str):
            return layer
        return Fitted(layer.says, layer.call, chunked_flops(problem, found.inner, found.outer, CHUNK))


@dataclass(frozen=True, slots=True)
class Layer:
    """The arguments of one call, as expressions. softplus: the step is the softplus of `step` (+ bias)."""

    structure: Structure
    rate: Expression
    step: Expression
    bias: Expression | None
    softplus: bool
    source: Expression
    skip: Expression | None

    @property
    def says(self) -> str:
        """The function."""
        return f"mamba_chunk_scan_combined, chunk {CHUNK}"

    def call(self, **operands: Tensor) -> Tensor:
        """The layer."""
        around = Around(self.structure, operands, unmixed)
        sides = [around.value(self.structure.contract.operands[one]) for one in (self.structure.query, self.structure.key)]
        heads = max(side.heads for side in sides)
        query, key = (around.rows(side, heads).to(around.dtype) for side in sides)
        bias, skip = (None if one is None else around.heads(around.value(one)) for one in (self.bias, self.skip))
        step, rate = around.rows(around.value(self.step)), around.heads(around.value(self.rate))
        source = around.rows(around.value(self.source)).to(around.dtype)
        return mamba_chunk_scan_combined(source, step, rate, key, query, CHUNK, D=skip, dt_bias=bias, dt_softplus=self.softplus)


def layer_of(found: Structure) -> Layer | str:
    """The layer, or the first thing in it that this function does not have."""
    steps = gates(found)
    if isinstance(steps, str):
        return steps
    if len(steps) != 1 or steps[0].value.axes != ("S",) or not steps[0].log:
        return "its gate is not the exp of something at each position"
    written = found.factors(found.contract.operands[found.value], "*")
    if written is None:
        return "its value is not the gate's step times an input"
    step, source = written if written[0].axes == ("S",) else written[::-1]
    held = rate(found, steps[0].value, step)
    if held is None:
        return "the log of its gate is not a rate of each head times the step that its value is multiplied by"
    skip = skipped(found, source)
    if isinstance(skip, str):
        return skip
    before, bias, soft = stepped(found, step)
    return Layer(found, held, before, bias, soft, source, skip)


def rate(found: Structure, gate: Expression, step: Expression) -> Expression | None:
    """A, if the gate is A · step."""
    resolved = found.resolved(gate)
    if isinstance(resolved, Apply) and resolved.function == "negate":
        inside = rate(found, resolved.arguments[0], step)
        return None if inside is None else Apply("negate", (inside,), inside.axes, inside.number)
    left, right = found.factors(gate, "*") or (None, None)
    if left is None or right is None:
        return None
    for one, other in ((left, right), (right, left)):
        if not one.axes and same(found, other, step):
            return one
    return None


def stepped(found: Structure, step: Expression) -> tuple[Expression, Expression | None, bool]:
    """What the step is the softplus of, its bias, and whether it is one."""
    resolved = found.resolved(step)
    if not (isinstance(resolved, Apply) and resolved.function == "softplus"):
        return step, None, False
    (inside,) = resolved.arguments
    left, right = found.factors(inside, "+") or (None, None)
    if left is not None and right is not None and {left.axes, right.axes} == {("S",), ()}:
        return (left, right, True) if right.axes == () else (right, left, True)
    return inside, None, True


def skipped(found: Structure, source: Expression) -> Expression | str | None:
    """D, if the output is Y + D · X; None if it is Y."""
    if found.is_main(found.output):
        return None
    sides = found.factors(found.output, "+") or (found.output, found.output)
    others = [one for one in sides if not found.is_main(one)]
    product = found.factors(others[0], "*") if len(others) == 1 else None
    for one, other in (product, product[::-1]) if product else ():
        if same(found, other, source) and len(one.axes) < 2 and "T" not in one.axes and "S" not in one.axes:
            return one
    return "its output is not the contraction, or that and D times its input"


PEER = Mamba()
