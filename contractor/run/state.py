"""What a layer carries from one call to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from contractor.errors import ArgumentError
from contractor.plan.problem import Problem
from contractor.program.mixing import mixings
from contractor.schedules.parts.form import Task
from contractor.schedules.parts.task import task


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What a layer carries past a position, for each sequence.

    tensors: for each mixing (or term of one) by name, [sequences, heads, N, P], float32 unless another dtype was asked for: what key
    and value have added up to under the mask. positions: int64 [sequences], how many positions each sequence has had. One object serves
    a whole sequence, a part of one and a single step; index it by sequence, move it, copy it, pickle it.
    """

    tensors: Mapping[str, Tensor]
    positions: Tensor

    def __len__(self) -> int:
        """How many sequences there are."""
        return int(self.positions.shape[0])

    def __getitem__(self, index: Any) -> State:
        """The state of some sequences: an index, a slice, a list or a tensor of indices; the sequence axis stays. Raises IndexError for
        an index that there is not."""
        single = isinstance(index, int) or (isinstance(index, Tensor) and index.dim() == 0)
        chosen = [int(index)] if single else index
        return self.each(lambda tensor: tensor[chosen])

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{name} {list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}" for name, tensor in self.tensors.items()
        )
        return f"<State of {len(self)} sequences: {parts or 'empty'}>"

    def each(self, change: Callable[[Tensor], Tensor]) -> State:
        """The state with every tensor changed."""
        return State({name: change(tensor) for name, tensor in self.tensors.items()}, change(self.positions))

    def to(self, *where: Any, **how: Any) -> State:
        """The state on a device or in a dtype (positions stay integers), as `Tensor.to` takes them."""
        moved = {name: tensor.to(*where, **how) for name, tensor in self.tensors.items()}
        nothing = torch.empty(0, device=self.positions.device)
        device = next((tensor.device for tensor in moved.values()), nothing.to(*where, **how).device)
        return State(moved, self.positions.to(device))

    def clone(self) -> State:
        """A copy."""
        return self.each(Tensor.clone)

    def detach(self) -> State:
        """The same without its history."""
        return self.each(Tensor.detach)

    def clear(self, index: Any) -> None:
        """Some sequences begin anew, in place: an index, a slice, a list or a tensor of indices."""
        for tensor in (*self.tensors.values(), self.positions):
            tensor[index] = 0


def zeros(problem: Problem, slots: int, device: torch.device, dtype: torch.dtype) -> State:
    """A state of zeros for so many sequences of a layer at a problem's sizes."""
    cores = [core for mixing in mixings(problem.program) for core in mixing.terms]
    shapes = {core.name: task(core, problem).dimensions for core in cores}
    tensors = {name: torch.zeros(slots, one.H, one.N, one.P, device=device, dtype=dtype) for name, one in shapes.items()}
    return State(tensors, torch.zeros(slots, dtype=torch.int64, device=device))


def fitted(state: Any, tasks: Mapping[str, Task], layer: str, device: torch.device, slots: Tensor | None = None) -> State:
    """The state that a call was given, if it is one of this layer's. A single mixing's may be given as its tensor alone. slots: where each
    sequence's is, if the state is a pool of any number of them.

    Raises ArgumentError if it is of another layer, or of other sizes, or on another device.
    """
    if slots is not None:
        return fitted_pool(state, tasks, layer, device)
    if isinstance(state, Tensor):
        state = alone(state, tasks, layer)
    if not isinstance(state, State) or set(state.tensors) != set(tasks):
        found = ", ".join(state.tensors) if isinstance(state, State) else type(state).__name__
        raise ArgumentError(f"initial_state must be a State of {layer} ({', '.join(tasks) or 'no tensors'}), not {found}")
    for name, one in tasks.items():
        refuse_tensor(name, state.tensors[name], one, device)
    counts = {one.dimensions.streams for one in tasks.values()}
    if counts and {len(state)} != counts:
        raise ArgumentError(f"the state has the positions of {len(state)} sequences, and there are {', '.join(map(str, counts))}")
    if state.positions.device != device:
        raise ArgumentError(f"the positions of the state are on {state.positions.device}, the operands on {device}")
    return state


def fitted_pool(state: Any, tasks: Mapping[str, Task], layer: str, device: torch.device) -> State:
    """The pool of states that a call was given, if it is one of this layer's and can be updated where it is."""
    if not isinstance(state, State) or set(state.tensors) != set(tasks):
        raise ArgumentError(f"slots are of a pool: initial_state must be a State of {layer} ({', '.join(tasks)}), as op.pool(…) makes it")
    for name, one in tasks.items():
        refuse_tensor(name, state.tensors[name], one, device, len(state))
        if not state.tensors[name].is_contiguous():
            raise ArgumentError(f"the pool's tensor of {name} is updated in place, so it must be contiguous")
        if torch.is_grad_enabled() and state.tensors[name].requires_grad:
            raise ArgumentError(f"the pool's tensor of {name} is updated in place, so it can have no gradient")
    return state


def indices(slots: Any, device: torch.device) -> Tensor | None:
    """The slots of a pool as kernels read them, int64 on the device. Raises ArgumentError for what is no list of indices."""
    if slots is None:
        return None
    if not isinstance(slots, Tensor) or slots.dim() != 1 or slots.dtype not in (torch.int32, torch.int64):
        raise ArgumentError("slots must be a tensor of int32 or int64: for each sequence the index of its state in the pool, or -1")
    return slots.to(device, torch.int64, non_blocking=True)


def alone(tensor: Tensor, tasks: Mapping[str, Task], layer: str) -> State:
    """The state of a layer whose single mixing's tensor is given, as before its first position."""
    if len(tasks) != 1:
        raise ArgumentError(f"{layer} carries {len(tasks)} tensors ({', '.join(tasks)}): give the State that a call returned")
    ((name, task),) = tasks.items()
    return State({name: tensor}, torch.zeros(task.dimensions.streams, dtype=torch.int64, device=tensor.device))


def refuse_tensor(name: str, tensor: Any, task: Task, device: torch.device, slots: int | None = None) -> None:
    """Raises ArgumentError for what is no state of a mixing's task, or no pool of so many."""
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"the state of {name} must be a tensor, not {type(tensor).__name__}")
    shape = task.dimensions
    wanted = (shape.streams if slots is None else slots, shape.H, shape.N, shape.P)
    if tuple(tensor.shape) != wanted:
        first = "slot" if slots is not None else "sequence" if task.form.packed else "batch"
        raise ArgumentError(f"the state of {name} must be [{first}, head, N, P] = {list(wanted)}, not {list(tensor.shape)}")
    if tensor.device != device:
        raise ArgumentError(f"the state of {name} is on {tensor.device}, the operands on {device}")
    if not tensor.is_floating_point():
        raise ArgumentError(f"the state of {name} must be real, not {tensor.dtype}")


def bounds(cu_seqlens: Any, length: int, device: torch.device) -> Tensor:
    """The bounds of packed sequences as kernels read them, int64 on the device.

    They are looked at where they are on the CPU, as that needs no waiting: raises ArgumentError unless they begin at 0, never fall and end
    at the length.
    """
    if cu_seqlens.device.type == "cpu":
        values: list[int] = cu_seqlens.tolist()
        if values[0] != 0 or values[-1] != length or any(later < earlier for earlier, later in pairwise(values)):
            shown = f"{values[:6]}{'…' if len(values) > 6 else ''}, ending at {values[-1]}"
            raise ArgumentError(f"cu_seqlens must rise from 0 to T = {length}, not {shown}")
    return cu_seqlens.to(device, torch.int64, non_blocking=True)


def counted(cu_seqlens: Any) -> int | None:
    """How many sequences are packed; None where there are none. Raises ArgumentError for what is no list of bounds."""
    if cu_seqlens is None:
        return None
    integers = (torch.int32, torch.int64)
    if not isinstance(cu_seqlens, Tensor) or cu_seqlens.dim() != 1 or cu_seqlens.dtype not in integers or len(cu_seqlens) < 2:
        raise ArgumentError("cu_seqlens must be a tensor of int32 or int64: 0, the end of each sequence, so T last")
    return len(cu_seqlens) - 1
