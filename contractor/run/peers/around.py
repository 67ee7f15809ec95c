"""A layer evaluated as torch does it, with its one contraction left to somebody else: what a peer's user writes by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from contractor.errors import ArgumentError
from contractor.program.evaluate import Reading, einsum, evaluate
from contractor.program.expression import Contract, Expression, Reduce
from contractor.program.program import Definition
from contractor.program.values import Value, broadcast, from_call, grouped, to_call
from contractor.run.peers.structure import Structure

Mix = Callable[[tuple[Value, ...], "Around"], Tensor]


@dataclass(frozen=True, slots=True)
class Around:
    """One evaluation: operands in call layout, and the contraction as a function of its operands' values, whose result is
    [batch, T, head, P]. `known` holds the definitions' values as they are asked for."""

    structure: Structure
    tensors: Mapping[str, Tensor]
    mix: Mix
    known: dict[str, Value] = field(default_factory=dict[str, Value])

    @property
    def device(self) -> torch.device:
        """Where the operands are."""
        return next(iter(self.tensors.values())).device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of queries, keys and values."""
        return getattr(torch, self.structure.problem.dtype)

    @property
    def real(self) -> torch.dtype:
        """The dtype of gates, steps and params: float32 at least."""
        return torch.promote_types(self.dtype, torch.float32)

    def value(self, expression: Expression) -> Value:
        """An expression's value."""
        sizes = self.structure.problem.sizes.mapping
        return evaluate(expression, Reading(self.look, self.contract, unread, sizes, self.positions, self.real, self.device))

    def output(self, expression: Expression) -> Tensor:
        """An expression's value in call layout."""
        sizes = self.structure.problem.sizes
        return to_call(self.value(expression), sizes.B, sizes.H, self.device)

    def look(self, name: str) -> Value:
        """An operand or a definition by name."""
        program = self.structure.program
        if name in self.tensors:
            return from_call(program.operand(name), self.tensors[name])
        if name not in self.known:
            definition = next(one for one in program.definitions if one.name == name)
            assert isinstance(definition, Definition)
            value = self.value(definition.value)
            self.known[name] = broadcast(value, definition.axes, self.structure.problem.sizes.mapping, self.device)
        return self.known[name]

    def contract(self, contract: Contract, operands: tuple[Value, ...]) -> Value:
        """The one contraction by the peer, others as einsum."""
        if contract == self.structure.contract:
            return Value(self.mix(operands, self).transpose(1, 2), contract.axes)
        if contract.mask is not None:
            raise ArgumentError("it has a second masked contraction")
        return einsum(contract, operands)

    def positions(self, axis: Literal["T", "S"]) -> Tensor:
        """T and S are one length: both count from 0."""
        return torch.arange(self.structure.problem.sizes[axis], device=self.device)

    def rows(self, value: Value, heads: int | None = None) -> Tensor:
        """A value [batch, head, S, …] as [batch, S, head, …], with batch and heads in full (or so many heads)."""
        sizes = self.structure.problem.sizes
        count = heads or sizes.H
        spread = grouped(value.tensor, count)
        return spread.expand(sizes.B, count, *spread.shape[2:]).transpose(1, 2)

    def heads(self, value: Value) -> Tensor:
        """A value without positions as [head, …]."""
        tensor = value.tensor.to(self.device)
        spread = grouped(tensor if tensor.dim() else tensor.reshape(1, 1), self.structure.problem.sizes.H)
        return spread[0].expand(self.structure.problem.sizes.H, *spread.shape[2:]).to(self.real)


def unread(_node: Reduce, _value: Value) -> Value:
    """No peer has softmax beside its contraction."""
    raise ArgumentError("it has a softmax under a mask")


def unmixed(_values: tuple[Value, ...], _around: Around) -> Tensor:
    """For a peer that takes the contraction's operands: the contraction itself is never asked for."""
    raise AssertionError
