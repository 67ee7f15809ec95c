"""One call of a layer: its values by name, its contractions by their plan, its outputs.

Expressions run as torch; each mixing is brought to normal form and evaluated in the order that the plan chose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from contractor.plan.problem import Problem
from contractor.program.dense import Grid, dense_mask
from contractor.program.elementwise import Chain, chains, norms
from contractor.program.evaluate import evaluate
from contractor.program.expression import Apply, Contract, Expression, Number, Reduce, Variable
from contractor.program.mixing import Core, Mixing, contractions, mixings, places
from contractor.program.program import Definition, Operand
from contractor.program.reduce import masked_softmax
from contractor.program.values import Value, broadcast, from_call, to_call
from contractor.run.contraction import Path, pairwise
from contractor.run.direct import Direct, direct
from contractor.run.elementwise import made
from contractor.run.frame import Frame
from contractor.run.mix import Evaluator, mixed
from contractor.run.normal import Normal, normal
from contractor.run.state import State
from contractor.schedules.parts.form import Task
from contractor.schedules.parts.scale import settled
from contractor.schedules.parts.task import task

Choose = Callable[[Core], Evaluator]
Order = Callable[[Contract], Path]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What every call at the same sizes shares: each mixing by the identity of the node that its kernels give, each order of an ordinary
    contraction by that of its node, each core's task, how it is evaluated, and its direct route if it has one by the core's name; sizes,
    operands and definitions by name. real: the dtype of reals that come of integers, float32 at least. alone: the core whose result, as
    the kernel gives it, is the layer's only output, if there is such a one. chains: of elementwise functions that have kernels, by the
    identity of their nodes; norms too."""

    problem: Problem
    mixings: dict[int, Mixing]
    paths: dict[int, Path]
    tasks: dict[str, Task]
    evaluators: dict[str, Evaluator]
    directs: dict[str, Direct]
    sizes: dict[str, int]
    real: torch.dtype
    operands: dict[str, Operand]
    definitions: dict[str, Definition]
    alone: Core | None
    chains: dict[int, Chain | Reduce]


def prepare(problem: Problem, choose: Choose, order: Order, generated: bool) -> Prepared:
    """Prepares a problem. generated: chains of elementwise functions have kernels. Raises RefusedError if a core has no order of
    evaluation."""
    program = problem.program
    found = mixings(program)
    known = {id(mixing.whole): mixing for mixing in found}
    masked = {mixing.contract for mixing in found}
    own = {mixing.contract: mixing for mixing in found if mixing.whole == mixing.contract}  # which may be written more than once
    cores = [core for mixing in found for core in mixing.terms]
    written = [expression for _, expression in places(program)] + [value for core in cores for value in core.expressions]
    nodes = [node for expression in written for node in contractions(expression)]
    tasks = {core.name: task(core, problem) for core in cores}
    routes = ((core.name, direct(core, tasks[core.name], problem)) for core in cores)
    directs = {name: route for name, route in routes if route is not None}
    definitions = {one.name: one for one in program.definitions if isinstance(one, Definition)}
    maps = {id(one.expression): replace(one, map=settled(one.map, problem.sizes)) for one in chains(program)}
    return Prepared(
        problem,
        known | {id(node): own[node] for node in nodes if node in own},
        {id(node): order(node) for node in nodes if node not in masked},
        tasks,
        {core.name: choose(core) for core in cores},
        directs,
        problem.sizes.mapping,
        torch.promote_types(getattr(torch, problem.dtype), torch.float32).to_real(),
        {operand.name: operand for operand in program.operands},
        definitions,
        alone(program.outputs, definitions, known, directs),
        {**maps, **{id(one): one for one in norms(program)}} if generated else {},
    )


def alone(
    outputs: tuple[Expression, ...], definitions: dict[str, Definition], known: dict[int, Mixing], directs: dict[str, Direct]
) -> Core | None:
    """The core whose result is the layer's only output as it is returned, [B, position, heads, feature]."""
    value = outputs[0]
    while isinstance(value, Variable) and value.name in definitions and value.axes == definitions[value.name].value.axes:
        value = definitions[value.name].value
    if len(outputs) > 1 or id(value) not in known or len(known[id(value)].terms) > 1:
        return None
    core = known[id(value)].terms[0]
    return core if core.name in directs and directs[core.name].axes == value.axes and len(value.axes) == 2 else None


@dataclass(frozen=True, slots=True)
class Beside:
    """What a call is given beside its operands: the state before it and, for packed sequences, their bounds, int64 [sequences + 1]; slots:
    where in the state, which is then a pool and updated in place, each sequence's is, int64 [sequences]."""

    state: State | None = None
    starts: Tensor | None = None
    slots: Tensor | None = None

    @property
    def positions(self) -> Tensor | None:
        """How many positions each sequence has had."""
        if self.state is None or self.slots is None:
            return None if self.state is None else self.state.positions
        return self.state.positions[self.slots.clamp(min=0)]


@dataclass(frozen=True, slots=True)
class Call:
    """One call, the reader of the layer's expressions: what was prepared for its sizes, its operands in call layout, the dtype and device
    of its contractions, what is beside them. `found` holds the values of operands and definitions by name, of what cores read by the
    expression's identity, as they are asked for; `finals` the states that cores have left, by name. Nothing in a call points back at
    it, so its tensors are freed as it ends."""

    prepared: Prepared
    operands: dict[str, Tensor]
    dtype: torch.dtype
    device: torch.device
    beside: Beside
    finals: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    found: dict[str | int, Value] = field(default_factory=dict[str | int, Value])

    @property
    def problem(self) -> Problem:
        """The layer at the call's sizes."""
        return self.prepared.problem

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the axes by letter."""
        return self.prepared.sizes

    @property
    def real(self) -> torch.dtype:
        """What integers become where a real result is due: float32 at least."""
        return self.prepared.real

    def look(self, name: str) -> Value:
        """An operand or a definition by name."""
        if name not in self.found:
            self.found[name] = self.operand(name) if name in self.operands else self.definition(name)
        return self.found[name]

    def operand(self, name: str) -> Value:
        """An operand as a value."""
        return from_call(self.prepared.operands[name], self.operands[name])

    def definition(self, name: str) -> Value:
        """The value of a definition over all of its axes."""
        definition = self.prepared.definitions[name]
        return broadcast(evaluate(definition.value, self), definition.axes, self.sizes, self.device)

    def find(self, expression: Expression) -> Value:
        """What a core reads: evaluated once, however many cores read it."""
        if id(expression) not in self.found:
            self.found[id(expression)] = evaluate(expression, self)
        return self.found[id(expression)]

    def positions(self, axis: Literal["T", "S"]) -> Tensor:
        """`pos(S)` = s and `pos(T)` = t + S − T, in the own sequence, and from where the state has come."""
        sizes, starts, before = self.problem.sizes, self.beside.starts, self.beside.positions
        first = sizes.S - sizes.T if axis == "T" else 0
        row = torch.arange(first, sizes.S, device=self.device)
        if starts is None:
            return row if before is None else row + before[:, None]
        sequence = torch.searchsorted(starts[1:], row, right=True).clamp(max=starts.shape[0] - 2)
        place = row - starts[sequence]
        return place if before is None else place + before[sequence]

    def contract(self, contract: Contract, operands: tuple[Value, ...]) -> Value:
        """An ordinary contraction, pair by pair."""
        return pairwise(contract, operands, self.prepared.paths[id(contract)])

    def mixing(self, expression: Contract | Apply | Reduce) -> Value | None:
        """A mixing by the plan, with what its kernels do around it."""
        mixing = self.prepared.mixings.get(id(expression))
        if mixing is None:
            return self.chained(self.prepared.chains.get(id(expression)))
        first, *rest = (self.mixed(core) for core in mixing.terms)
        total = first.tensor
        for value in rest:
            total = total + value.tensor
        return broadcast(Value(total, first.axes), expression.axes, self.sizes, self.device)

    def chained(self, chain: Chain | Reduce | None) -> Value | None:
        """A chain of elementwise functions, or a norm, by its kernel; None leaves it to torch."""
        if chain is None:
            return None
        base = evaluate(chain.value if isinstance(chain, Reduce) else chain.base, self)
        tensor = made(chain.function if isinstance(chain, Reduce) else chain.map, base.tensor)
        return None if tensor is None else Value(tensor, base.axes)

    def mixed(self, core: Core) -> Value:
        """One core of a mixing."""
        form = self.direct(core) or normal(self.frame(core), self.prepared.tasks[core.name])
        return form.restore(self.result(core, form))

    def direct(self, core: Core) -> Normal | None:
        """The tensors of a core by its direct route, if it has one and this call may take it."""
        direct = self.prepared.directs.get(core.name)
        tensors = None if direct is None else direct.tensors(self.operands, self.find, self.device)
        return None if direct is None or tensors is None else Normal(direct.task, tensors, direct.restore)

    def frame(self, core: Core) -> Frame:
        """What the tensors of a core are fitted to."""
        return Frame(core, self.problem, self.find, self.dtype, self.device)

    def result(self, core: Core, form: Normal) -> Tensor:
        """The kernel's result [B, T, heads, P]."""
        tensors = form.tensors | self.handed(core)
        outputs = mixed(form.task, self.prepared.evaluators[core.name], form.zeros, tensors)
        if "final" in outputs:
            self.finals[core.name] = outputs["final"]
        return outputs["result"]

    def handed(self, core: Core) -> dict[str, Tensor]:
        """What a core's kernel reads beside its operands."""
        starts, state, slots = self.beside.starts, self.beside.state, self.beside.slots
        found = {} if starts is None else {"starts": starts}
        if state is None:
            return found
        own = state.tensors[core.name]
        return found | ({"initial": own} if slots is None else {"pool": own, "slots": slots})

    def softmax(self, node: Reduce, value: Value) -> Value:
        """A softmax under a mask, dense."""
        assert node.under is not None
        sizes = self.problem.sizes
        return masked_softmax(node, value, dense_mask(node.under, Grid(sizes.T, sizes.S, self.exact)))

    def exact(self, expression: Expression) -> Value:
        """An argument of a mask that is formed entry by entry: in float64, integers in 64 bits."""
        value = evaluate(expression, self)
        kinds = {Number.INT: torch.int64, Number.REAL: torch.float64, Number.COMPLEX: torch.complex128}
        return Value(value.tensor.to(kinds[expression.number]), value.axes)


def called(prepared: Prepared, tensors: dict[str, Tensor], dtype: torch.dtype, beside: Beside) -> tuple[tuple[Tensor, ...], State | None]:
    """The outputs of a layer for tensors in call layout and, where it is asked for, the state after them."""
    device = next(iter(tensors.values())).device
    call = Call(prepared, tensors, dtype, device, beside)
    whole = None if prepared.alone is None else call.direct(prepared.alone)
    if prepared.alone is not None and whole is not None:
        outputs = (call.result(prepared.alone, whole),)
    else:
        sizes, wanted = prepared.problem.sizes, prepared.problem.program.outputs
        outputs = tuple(to_call(evaluate(output, call), sizes.B, sizes.H, device) for output in wanted)
    return outputs, left(call) if prepared.problem.final else None


def left(call: Call) -> State:
    """The state after a call; a pool is the same one, with the positions of its slots counted on."""
    starts, state, slots, sizes = call.beside.starts, call.beside.state, call.beside.slots, call.problem.sizes
    now = torch.full((sizes.B,), sizes.T, device=call.device) if starts is None else starts.diff()
    if state is None or slots is None:
        return State(call.finals, now if state is None else state.positions + now)
    state.positions.index_add_(0, slots.clamp(min=0), torch.where(slots < 0, 0, now))
    return state
