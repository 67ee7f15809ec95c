"""The sizes that a launch names: of its grid, its text and its descriptors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from contractor.emit import torch as torch_text
from contractor.emit import triton as triton_text
from contractor.tile.access import ONE, descriptor_block
from contractor.tile.expression import Expr, Size
from contractor.tile.kernel import Kernel
from contractor.tile.routine import Launch
from contractor.tile.uses import nodes

Backend = Literal["triton", "torch"]


def needed(launch: Launch, backend: Backend) -> Iterator[str]:
    """The sizes that one launch names."""
    kernel = launch.kernel
    yield from sizes_of(kernel.programs)
    names = triton_text.arguments(kernel) if backend == "triton" else torch_text.arguments(kernel)[:-1]
    yield from (name for name in names if name in kernel.constants or name in kernel.scalars)
    if backend == "triton":
        yield from described(kernel)


def described(kernel: Kernel) -> Iterator[str]:
    """The sizes that a kernel's descriptors name."""
    for buffer in kernel.buffers:
        if buffer.via == "descriptor":
            yield from buffer.dims
            yield from (part for part in descriptor_block(kernel, buffer.name) if part != ONE)


def sizes_of(x: Expr) -> tuple[str, ...]:
    """The sizes that an expression names."""
    return tuple(one.name for one in nodes(x) if isinstance(one, Size))
