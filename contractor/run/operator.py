"""What a person calls: a compiled layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from contractor.errors import ArgumentError
from contractor.plan.plan import Plan
from contractor.plan.problem import Problem
from contractor.program.expression import Number
from contractor.program.mixing import contracted
from contractor.program.program import Program
from contractor.program.show import axes_text, show
from contractor.run.given import as_working, cut, device_of, ends_of, kind, length_of, likeness, refuse_kind, stepped, working_dtype
from contractor.run.layer import Beside, Prepared, called
from contractor.run.state import State, bounds, counted, fitted, indices, zeros
from contractor.run.tune import Asked, noting, tuned_call
from contractor.run.tuned import Report

MOST_SHAPES = 256
called_without_gradients = torch.no_grad()(called)  # a pool is overwritten: what a backward would have to read is gone
OF_A_CALL = ("B", "T", "S", "packed", "initial", "final", "pooled")


class Steps(Protocol):
    """The arrows that an operator follows: how it was compiled, as data that the pipeline gives methods to."""

    def pose(self, program: Program, shapes: dict[str, tuple[int, ...]], dtype: str, **beside: Any) -> Problem:
        """Operands' shapes and dtype, and what is beside them (packed, initial, final) → the problem."""
        ...

    def size(self, program: Program, **sizes: Any) -> Problem:
        """Sizes by letter → the problem."""
        ...

    def plan(self, problem: Problem, machine: str | None) -> Plan:
        """A problem and a machine's name (None: the one compiled for, or the one at hand) → the plan."""
        ...

    def prepare(self, problem: Problem, device: torch.device) -> Prepared:
        """A problem and a device → what its calls share."""
        ...

    def source(self, plan: Plan) -> str:
        """A plan → a file that runs alone."""
        ...

    def explain(self, plan: Plan) -> str:
        """A plan → every stage as text."""
        ...


@dataclass(frozen=True, slots=True)
class Met:
    """What calls share whose operands are alike in shape, dtype and device: what was prepared, the working dtype, where they are, and
    the names of those that are given as numbers. They have been found to fit."""

    prepared: Prepared
    dtype: torch.dtype
    device: torch.device
    numbers: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Operator:
    """A compiled layer: call it with its operands by name, or by position in the order declared.

    Inputs with a position are [batch, position, head, features…], inputs over [T, S] are [batch, head, T, S, …], params are [head,
    features…] or [features…]; a number does for an operand without axes. An operand's heads are H (the most that any has) or a divisor
    of H: head h reads head h // (H / count). Batch is the whole batch or 1. Returns the output [batch, position, head, features…],
    several as a tuple. Differentiable in every operand that is not an int. Operators can be printed, copied and pickled.

    Dtypes may be mixed. Contractions are computed, and outputs come back, in the dtype that the inputs with feature axes that enter
    them promote to; what only stands inside a mask does not count. Products of bfloat16 add up in float32, float32 is never rounded to
    TF32. Gates, step sizes and params may be more precise and are read as they are; what stands inside a mask is computed in float32 at
    least.
    """

    program: Program
    steps: Steps
    known: dict[Any, Met] = field(default_factory=dict[Any, Met], compare=False)
    contracted: tuple[str, ...] = field(default=(), init=False, compare=False)
    names: tuple[str, ...] = field(default=(), init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "contracted", contracted(self.program))
        object.__setattr__(self, "names", tuple(operand.name for operand in self.program.operands))

    def __str__(self) -> str:
        return show(self.program)

    def __repr__(self) -> str:
        taken = ", ".join(f"{operand.name} {axes_text(operand.axes)}" for operand in self.program.operands)
        return f"<Operator {self.program.name}: {taken}>"

    def __reduce__(self) -> tuple[type[Operator], tuple[Program, Steps]]:
        return Operator, (self.program, self.steps)

    def __call__(
        self,
        /,
        *positional: Any,
        initial_state: State | Tensor | None = None,
        return_state: bool | Sequence[int] = False,
        cu_seqlens: Tensor | None = None,
        slots: Tensor | None = None,
        **named: Any,
    ) -> Any:
        """The layer's outputs: a tensor, or several as a tuple; with `return_state`, (outputs, the State after the last position), or,
        where it is a list of rising positions, (outputs, the States after so many each), for prefix caches and for going back.

        initial_state: the State that an earlier call returned, after which this one's positions come (or its tensor, float32 [batch, head,
        N, P], where there is one mixing); None is a state of zeros. Both states are differentiable; a whole sequence is the same as its
        parts, one after the other. cu_seqlens: int32 or int64 [sequences + 1], on either device: sequences lie end to end in a batch of
        1, cu_seqlens[i] to cu_seqlens[i + 1] is one of them, which may be empty; there is a state for each. On a GPU it is not looked at,
        as that would make the host wait: it must rise from 0 to T. slots: int32 or int64 [sequences]: initial_state is a pool of states
        (`op.pool`), of which sequence i has the one at slots[i] (below 0: none, as padding has none); they are updated in place, the pool
        is what comes back, and outputs have no gradients. No two sequences may have one slot; on a GPU slots are not looked at either.
        Raises ArgumentError if an operand is missing, unknown, given twice, of the wrong kind of number, on another device, or does not
        fit: it names operand, axis and both sizes; and where the layer has no state or takes no packed sequences, with the reason.
        Raises RefusedError if no order of evaluation may be used.
        """
        given = self.bound(positional, named)
        if not isinstance(return_state, bool):
            return self.in_parts(given, return_state, initial_state, cu_seqlens, slots)
        packed = counted(cu_seqlens)
        if slots is not None and initial_state is None:
            raise ArgumentError("slots are of a pool of states: give it as initial_state")
        met = self.met(given, (packed, initial_state is not None, return_state, slots is not None))
        tensors = with_numbers(given, met) if met.numbers else given
        starts = None if cu_seqlens is None else bounds(cu_seqlens, met.prepared.problem.sizes.T, met.device)
        where = indices(slots, initial_state, packed or met.prepared.problem.sizes.B, met.device)
        state = None if initial_state is None else fitted(initial_state, met.prepared.tasks, self.program.name, met.device, where)
        call = called if where is None else called_without_gradients
        found, final = call(met.prepared, tensors, met.dtype, Beside(state, starts, where))
        outputs = tuple(as_working(output, met.dtype) for output in found)
        answer = outputs[0] if len(outputs) == 1 else outputs
        return (answer, final) if return_state else answer

    def in_parts(self, given: dict[str, Any], wanted: Any, state: Any, cu_seqlens: Any, slots: Any) -> tuple[Any, list[State]]:
        """The outputs, and the states after so many positions each."""
        length = length_of(self.program.operands, given)
        ends = ends_of(wanted, length)
        if cu_seqlens is not None or slots is not None:
            raise ArgumentError("states at positions are of whole sequences: neither packed ones nor a pool's")
        parts: list[Any] = []
        states: list[State] = []
        for first, end in zip((0, *ends), (*ends, length), strict=True):
            part = {one.name: cut(one, given[one.name], first, end) for one in self.program.operands}
            found, state = self(**part, initial_state=state, return_state=True)
            parts.append(found if isinstance(found, tuple) else (found,))
            states.append(state)
        outputs = tuple(torch.cat(pieces, 1) for pieces in zip(*parts, strict=True))
        return outputs[0] if len(outputs) == 1 else outputs, states[:-1]

    def step(self, /, state: State | Tensor | None = None, *positional: Any, slots: Tensor | None = None, **named: Any) -> Any:
        """One position more: (outputs, the State after it).

        state: from a call, or from an earlier step; None before the first position. Operands with a position are given without it,
        [batch, head, features…] (or with one of size 1, [batch, 1, head, features…]); outputs come back in the same way. slots: as in a
        call.
        """
        given = self.bound(positional, named)
        taken = {operand.name: stepped(operand, given[operand.name]) for operand in self.program.operands}
        found, final = self(**{name: tensor for name, (tensor, _) in taken.items()}, initial_state=state, return_state=True, slots=slots)
        if all(long for _, long in taken.values() if long is not None):
            return found, final
        outputs = tuple(output.squeeze(1) for output in (found if isinstance(found, tuple) else (found,)))
        return (outputs if isinstance(found, tuple) else outputs[0]), final

    def pool(self, slots: int, device: torch.device | str | None = None, dtype: torch.dtype = torch.float32, **sizes: int) -> State:
        """A pool of states for serving: zeros for so many sequences. sizes: `H=32, N=128, P=128, …`; dtype: what states are kept in (they
        are computed in float32), bfloat16 for half the memory. `pool[[3]]` reads one, `pool[[3]] = state` puts one there, and
        `pool.clear([3])` makes slots new again.

        Raises ArgumentError for sizes that the layer has not, and if it carries no state.
        """
        if others := [name for name in sizes if name in OF_A_CALL]:
            raise ArgumentError(f"{', '.join(others)}: a pool is for calls of any length; its sizes are H and the layer's features")
        problem = self.steps.size(self.program, T=1, B=1, pooled=True, **sizes)
        return zeros(problem, slots, torch.device(device) if device is not None else torch.get_default_device(), dtype)

    def tune(
        self, /, *positional: Any, initial_state: Any = None, return_state: Any = False, cu_seqlens: Tensor | None = None, **named: Any
    ) -> Report:
        """Measures the best tilings of every kernel that such a call runs, and of its backward if an operand wants gradients; keeps the
        fastest whose numbers hold, on the disk, for all lengths. Takes what a call takes (but no pool), and seconds to minutes.

        Candidates for a GPU run in another process, as some may fault; it wants the GPU for itself. The report prints as a table.
        """
        if not isinstance(return_state, bool):
            raise ArgumentError(f"what is tuned is a whole call: return_state must be True or False, not {return_state!r}")
        noted: list[Asked] = []
        given, watched = self.bound(positional, named), Operator(self.program, self.steps)
        met = watched.met(given, (counted(cu_seqlens), initial_state is not None, return_state, False))
        for key in tuple(watched.known):
            watched.known[key] = replace(met, prepared=noting(met.prepared, noted))
        beside: dict[str, Any] = {"initial_state": initial_state, "return_state": return_state, "cu_seqlens": cu_seqlens}
        return tuned_call(lambda: watched(**given, **beside), (*given.values(), initial_state), noted)

    def met(self, given: dict[str, Any], beside: tuple[int | None, bool, bool, bool]) -> Met:
        """What calls with such operands share, prepared at the first of them."""
        key = (torch.get_default_dtype(), beside, *(likeness(value) for value in given.values()))
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= MOST_SHAPES:
                self.known.clear()
            found = self.known[key] = self.meet(given, *beside)
        return found

    def meet(self, given: dict[str, Any], packed: int | None, initial: bool, final: bool, pooled: bool) -> Met:
        """The first call with such operands: raises ArgumentError if they do not fit."""
        for operand in self.program.operands:
            refuse_kind(operand, given[operand.name])
        dtype, device = working_dtype(self.contracted, given), device_of(given)
        shapes = {name: tuple(value.shape) if isinstance(value, Tensor) else () for name, value in given.items()}
        kind = str(dtype).removeprefix("torch.")
        problem = self.steps.pose(self.program, shapes, kind, packed=packed, initial=initial, final=final, pooled=pooled)
        numbers = tuple(name for name, value in given.items() if not isinstance(value, Tensor))
        return Met(self.steps.prepare(problem, device), dtype, device, numbers)

    def plan(self, machine: str | None = None, **sizes: Any) -> Plan:
        """Every order of evaluation at the given sizes (`B=4, T=4096, H=32, N=128, …, dtype="bfloat16", heads={"K": 8}`; `packed=8`
        sequences, a state handed in (`initial=True`) or out (`final=True`), or both in a pool (`pooled=True`)): flops, bytes, milliseconds
        and what bounds it, or why it was refused. Needs no tensors and no GPU."""
        return self.steps.plan(self.steps.size(self.program, **sizes), machine)

    def source(self, machine: str | None = None, **sizes: Any) -> str:
        """The text of the kernels that the plan chooses: Triton for a GPU, torch for a CPU."""
        return self.steps.source(self.plan(machine, **sizes))

    def explain(self, machine: str | None = None, **sizes: Any) -> str:
        """Every stage from the spec to the kernels, one under the other."""
        return self.steps.explain(self.plan(machine, **sizes))

    def bound(self, positional: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The operands by name, in the order declared."""
        names = self.names
        given = dict(zip(names, positional, strict=False)) | named
        if len(positional) + len(named) != len(names) or not all(name in given for name in names):
            raise ArgumentError(self.mistaken(positional, named))
        return {name: given[name] for name in names}

    def mistaken(self, positional: tuple[Any, ...], named: dict[str, Any]) -> str:
        """What is wrong with the names or the number of operands, in words."""
        names = self.names
        before = names[: len(positional)]
        if len(positional) > len(names):
            return f"{self.program.name} takes {len(names)} operands ({', '.join(names)}), not {len(positional)}"
        if twice := [name for name in named if name in before]:
            return f"{', '.join(twice)} given twice: by position and by name"
        if unknown := [name for name in named if name not in names]:
            return f"{self.program.name} has no operand {', '.join(unknown)}; it has {', '.join(names)}"
        missing = [name for name in names if name not in (*before, *named)]
        return f"{self.program.name} needs {', '.join(missing)} too; its operands are {', '.join(names)}"


def with_numbers(given: dict[str, Any], met: Met) -> dict[str, Tensor]:
    """Numbers as tensors beside the tensors, in float32 at least."""
    real = torch.promote_types(met.dtype, torch.float32)
    kinds = {Number.INT: torch.int64, Number.REAL: real, Number.COMPLEX: real.to_complex()}
    made = {name: torch.tensor(given[name], device=met.device, dtype=kinds[kind(given[name])]) for name in met.numbers}
    return given | made
