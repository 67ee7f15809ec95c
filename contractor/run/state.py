"""What a layer carries from one call to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, SupportsIndex

import torch
from torch import Tensor

from contractor.errors import ArgumentError
from contractor.plan.problem import Problem
from contractor.program.mixing import mixings
from contractor.schedules.parts.form import Task
from contractor.schedules.parts.task import task

KEPT = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What a layer carries past a position, for each sequence.

    tensors: for each mixing (or term of one) by name, [sequences, heads, N, P], float32 unless another dtype was asked for: what key
    and value have added up to under the mask. positions: int64 [sequences], how many positions each sequence has had. One object serves
    a whole sequence, a part of one and a single step; index it by sequence (`pool[[3]] = state` puts one into a pool), move it, copy it,
    pickle it.
    """

    tensors: Mapping[str, Tensor]
    positions: Tensor

    def __len__(self) -> int:
        """How many sequences there are."""
        return int(self.positions.shape[0])

    def __getitem__(self, index: Any) -> State:
        """The state of some sequences: an index, a slice, a list or a tensor of indices; the sequence axis stays. Raises IndexError for
        an index that there is not, ArgumentError for what is none."""
        chosen = rows(index)
        return self.each(lambda tensor: tensor[chosen])

    def __setitem__(self, index: Any, state: Any) -> None:
        """Some sequences go on from other states, in place, in the dtype that is here and without gradients: as many, or one for all.
        Raises ArgumentError if it is no state of this layer at these sizes."""
        if not isinstance(state, State) or set(state.tensors) != set(self.tensors):
            raise ArgumentError(f"what is put into {self!r} must be a State of the same layer, not {state!r}")
        chosen = rows(index)
        count = len(self.positions[chosen])
        if len(state) not in (1, count):
            raise ArgumentError(f"the states of {len(state)} sequences are put in place of {count}")
        for name, tensor in self.tensors.items():
            if tensor.shape[1:] != state.tensors[name].shape[1:]:
                found, wanted = list(state.tensors[name].shape[1:]), list(tensor.shape[1:])
                raise ArgumentError(f"the state of {name} must be [sequence, head, N, P] with {wanted}, not {found}, for each sequence")
        for name, tensor in self.tensors.items():
            tensor[chosen] = state.tensors[name].detach().to(tensor)
        self.positions[chosen] = state.positions.to(self.positions)

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{name} {list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}" for name, tensor in self.tensors.items()
        )
        return f"<State of {len(self)} sequence{'' if len(self) == 1 else 's'}: {parts or 'empty'}>"

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
        chosen = rows(index)
        for tensor in (*self.tensors.values(), self.positions):
            tensor[chosen] = 0


def rows(index: Any) -> Any:
    """What picks sequences and keeps their axis. Raises ArgumentError for what picks none."""
    if isinstance(index, slice):
        return index  # pyright: ignore[reportUnknownVariableType]
    if isinstance(index, Sequence) and not len(index):
        return []
    if isinstance(index, SupportsIndex) and not isinstance(index, bool) and getattr(index, "ndim", 0) == 0:
        return [int(index)]
    try:
        picked = None if isinstance(index, str | bool | type(None)) else torch.as_tensor(index)
    except (TypeError, ValueError, RuntimeError):
        picked = None
    if picked is None or picked.dim() != 1 or picked.is_floating_point():
        raise ArgumentError(f"sequences are picked by an index, a slice, or a list or tensor of indices, not {index!r}")
    return picked


def zeros(problem: Problem, slots: int, device: torch.device, dtype: torch.dtype) -> State:
    """A state of zeros for so many sequences of a layer at a problem's sizes. Raises ArgumentError if there can be none."""
    if type(slots) is not int or slots < 0:
        raise ArgumentError(f"a pool has a whole number of slots, not {slots!r}")
    if dtype not in KEPT:
        kinds = ", ".join(str(one).removeprefix("torch.") for one in KEPT)
        raise ArgumentError(f"states are kept in {kinds}, not {dtype!r}")
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


def indices(slots: Any, pool: Any, sequences: int, device: torch.device) -> Tensor | None:
    """The slots of a pool as kernels read them, int64 on the device. Raises ArgumentError for what is no list of as many indices as there
    are sequences.

    They are looked at where they are on the CPU, as that needs no waiting: none may be beyond the pool, and none may be there twice.
    """
    if slots is None:
        return None
    if not isinstance(slots, Tensor) or slots.dim() != 1 or slots.dtype not in (torch.int32, torch.int64):
        raise ArgumentError("slots must be a tensor of int32 or int64: for each sequence the index of its state in the pool, or -1")
    if len(slots) != sequences:
        raise ArgumentError(f"slots has {len(slots)} indices, and there are {sequences} sequences: each has one, or -1")
    if slots.device.type == "cpu" and isinstance(pool, State):
        taken = sorted(slot for slot in slots.tolist() if slot >= 0)
        if taken and taken[-1] >= len(pool):
            raise ArgumentError(f"slots has {taken[-1]}, and the pool has {len(pool)} slots")
        twice = next((slot for slot, later in pairwise(taken) if slot == later), None)
        if twice is not None:
            raise ArgumentError(f"slots has {twice} twice: no two sequences may have one state")
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
