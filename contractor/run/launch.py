"""One launch of a kernel's function, built: on a GPU what Triton compiled is called again directly while nothing that it was compiled for
has changed, as binding arguments anew takes longer than starting the kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from contractor.run.descriptor import Described

ALIGNMENT = 16  # bytes


@dataclass(frozen=True, slots=True)
class Started:
    """function: of the printed text. names: its arguments in order. described: buffers that are reached through host descriptors, with
    their blocks. programs: how many run. known: what was compiled, by the device and by all that Triton specialises a kernel for: dtypes
    and alignments of tensors (sizes are the launch's own)."""

    function: Any
    names: tuple[str, ...]
    described: tuple[tuple[str, tuple[int, ...]], ...]
    programs: int
    warps: int
    stages: int
    known: dict[Any, Any] = field(default_factory=dict[Any, Any], compare=False, repr=False)
    descriptors: dict[str, Described] = field(default_factory=dict[str, Described], compare=False, repr=False)

    def on_cpu(self, values: dict[str, Any]) -> None:
        """Runs torch text."""
        self.function(*(self.programs if name == "programs" else values[name] for name in self.names))

    def on_gpu(self, values: dict[str, Any]) -> None:
        """Starts the grid on the current device."""
        given = [values[name] for name in self.names]
        kinds = (torch.cuda.current_device(), *[kind(one) for one in given])
        for name, block in self.described:
            place = self.names.index(name)
            given[place] = self.descriptor(name, block, given[place])
        start = self.known.get(kinds)
        if start is not None:
            start(*given)
            return
        named = dict(zip(self.names, given, strict=True))
        compiled = self.function[(self.programs,)](**named, num_warps=self.warps, num_stages=self.stages)
        if compiled is not None:  # in Triton's interpreter there is nothing to keep
            self.known[kinds] = compiled[(self.programs, 1, 1)]

    def descriptor(self, name: str, block: tuple[int, ...], tensor: Tensor) -> Any:
        """A tensor as the bulk copy engine reaches it."""
        known = self.descriptors.get(name)
        if known is None:
            known = self.descriptors[name] = Described.of(tensor, list(block))
        return known.over(tensor)


def kind(value: Any) -> Any:
    """What a kernel is specialised for of an argument, beside its size."""
    return (value.dtype, value.data_ptr() % ALIGNMENT == 0) if isinstance(value, Tensor) else None


def aligned(tensor: Tensor) -> Tensor:
    """A contiguous tensor that begins where the bulk copy engine can."""
    found = tensor.contiguous()
    return found if found.data_ptr() % ALIGNMENT == 0 else found.clone()
