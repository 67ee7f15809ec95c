"""Run by itself, with Triton's interpreter on: Triton text in float32 against torch text in float64. Prints one line a case."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from contractor.emit import torch as torch_text
from contractor.emit import triton as triton_text
from contractor.tile.access import descriptor_block
from contractor.tile.count import programs_of
from contractor.tile.kernel import Kernel
from tests.tile.kernels import gathered, one_pass, packed, running, transition, window

torch.set_num_threads(1)
FOLDER = Path(tempfile.mkdtemp())


def function(text: str, name: str) -> Callable[..., None]:
    """A function of a text, from a file: the interpreter reads its source."""
    path = FOLDER / f"{name}_{len(list(FOLDER.iterdir()))}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def interpreted(kernel: Kernel, tensors: dict[str, Tensor], sizes: dict[str, float]) -> None:
    """Runs a kernel's Triton text."""
    given: dict[str, object] = {**sizes, **tensors}
    for buffer in kernel.buffers:
        if buffer.via == "descriptor":
            block = [int(sizes.get(part, 1)) for part in descriptor_block(kernel, buffer.name)]
            given[buffer.name] = TensorDescriptor.from_tensor(tensors[buffer.name].flatten(2), block)
    grid = function(triton_text.emit_triton(kernel), kernel.name)[(programs_of(kernel, sizes),)]
    grid(*(given[name] for name in triton_text.arguments(kernel)))


def exact(kernel: Kernel, tensors: dict[str, Tensor], sizes: dict[str, float]) -> None:
    """Runs a kernel's torch text."""
    given = {**sizes, **tensors, "programs": programs_of(kernel, sizes)}
    function(torch_text.emit_torch(kernel), kernel.name)(*(given[name] for name in torch_text.arguments(kernel)))


def compare(name: str, kernel: Kernel, shapes: dict[str, tuple[int, ...]], sizes: dict[str, float], **more: Tensor) -> None:
    """Prints the relative error of what a kernel stores."""
    made = torch.Generator().manual_seed(len(name))
    wide = {buffer: torch.randn(*shape, generator=made, dtype=torch.float64) for buffer, shape in shapes.items()} | more
    narrow = {buffer: one.float() if one.is_floating_point() else one.clone() for buffer, one in wide.items()}
    for tensors, dtype in ((wide, torch.float64), (narrow, torch.float32)):
        for buffer in kernel.stored:
            tensors[buffer] = torch.full(shapes[buffer], torch.nan, dtype=dtype)
    exact(kernel, wide, sizes)
    interpreted(kernel, narrow, sizes)
    for buffer in kernel.stored:
        error = (narrow[buffer].double() - wide[buffer]).norm() / wide[buffer].norm()
        print(f"{name} {buffer} {float(error):.3e}", flush=True)


def main() -> None:
    """Every case."""
    length, sizes = 21, {"B": 2, "T": 21, "H": 2, "N": 16, "P": 32, "CHUNK": 16, "BLOCK_P": 16, "scale": 0.25}
    rows = {name: (2, length, 2, width) for name, width in (("q", 16), ("k", 16), ("v", 32), ("y", 32))}
    compare("one_pass", one_pass(), rows, sizes)
    compare("described", one_pass("descriptor"), rows, sizes)
    compare("gated", one_pass(gated=True, precision="tf32x3"), rows, sizes, gate=-torch.rand(2, length, 2, dtype=torch.float64))
    offsets = torch.tensor([0, 0, 17, 18, 34]).int()
    compare("packed", packed(), {"x": (34, 8), "y": (34, 8), "sums": (4, 8)}, {"S": 4, "N": 8, "CHUNK": 16}, offsets=offsets)
    whole = {"begin": (2, 4, 8), "A": (2, 5, 8, 8), "u": (2, 5, 8, 4), "end": (2, 4, 8)}
    compare("transition", transition(), whole, {"B": 2, "T": 5, "N": 8, "P": 4})
    compare("window", window(), {"x": (50,), "y": (50,)}, {"T": 50, "W": 20, "CHUNK": 16})
    compare("gathered", gathered(), {"table": (9,), "x": (37,), "y": (37,)}, {"T": 37, "LAGS": 9, "CHUNK": 16})
    for extent in (1, 37):
        compare(f"running {extent}", running(), {"x": (2, extent), "y": (2, extent)}, {"B": 2, "T": extent, "CHUNK": 16})


if __name__ == "__main__":
    sys.exit(main())
