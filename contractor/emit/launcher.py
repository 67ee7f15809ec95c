"""Routine → a whole file that runs alone: head, kernels, and a plain function that makes the outputs and launches the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from contractor.emit import torch as torch_text
from contractor.emit import triton as triton_text
from contractor.emit.header import header
from contractor.emit.text import INDENT, signature
from contractor.errors import TileError
from contractor.tile.access import ONE, descriptor_block, descriptor_shape
from contractor.tile.expression import Expr, Size
from contractor.tile.kernel import Buffer, Kernel
from contractor.tile.routine import Launch, Routine
from contractor.tile.rules import ACC, BOOL, I32, I64
from contractor.tile.uses import nodes

Backend = Literal["triton", "torch"]
DESCRIPTOR = "from triton.tools.tensor_descriptor import TensorDescriptor"
DTYPES = {I32: "torch.int32", I64: "torch.int64", BOOL: "torch.bool"}


def emit_file(routine: Routine, backend: Backend, name: str = "forward", title: tuple[str, ...] = ()) -> str:
    """The text of a file that needs torch (and triton) only: `name(inputs…, real scalars…)` gives the outputs, one alone or a tuple.

    Inputs come in the order of `routine.inputs`; sizes that no input's shape tells are keywords after them.
    Raises TileError if two launches want one constant to have two values.
    """
    kernels = tuple({launch.kernel.name: launch.kernel for launch in routine.launches}.values())
    printed = triton_text.functions(kernels) if backend == "triton" else torch_text.functions(kernels)
    made = Launcher(routine, backend)
    top = "\n".join((*imports(kernels, backend), "", *made.settings()))
    return (header(*title) if title else "") + f"{top}\n\n\n{printed}\n\n" + "\n".join(made.function(name)) + "\n"


def imports(kernels: tuple[Kernel, ...], backend: Backend) -> tuple[str, ...]:
    """The imports of a file."""
    if backend == "torch":
        return torch_text.imports(kernels)
    described = any(buffer.via == "descriptor" for kernel in kernels for buffer in kernel.buffers)
    return ("import torch", *triton_text.IMPORTS, *((DESCRIPTOR,) if described else ()))


@dataclass(frozen=True, slots=True)
class Launcher:
    """The function that launches a routine."""

    routine: Routine
    backend: Backend

    def constants(self) -> dict[str, int]:
        """What the tilings chose."""
        found: dict[str, int] = {}
        for name, value in (pair for launch in self.routine.launches for pair in launch.constants):
            if found.setdefault(name, value) != value:
                raise TileError(f"{name} is {found[name]} in one launch and {value} in another: give it two names")
        return found

    def settings(self) -> Iterator[str]:
        """The numbers that a reader may want to change, one a line."""
        yield from (f"{name} = {value}" for name, value in self.constants().items())
        if self.backend == "triton":
            for launch in self.routine.launches:
                yield f"{setting(launch, 'WARPS')} = {launch.warps}"
                yield f"{setting(launch, 'STAGES')} = {launch.stages}"

    def tensors(self) -> dict[str, Buffer]:
        """Every tensor of the routine, as the kernels declare it."""
        found: dict[str, Buffer] = {}
        for launch in self.routine.launches:
            for buffer in launch.kernel.buffers:
                found.setdefault(launch.tensor(buffer.name), buffer)
        return found

    def sources(self) -> dict[str, str]:
        """Where each size is read: the shape of the first input that has it."""
        found: dict[str, str] = {}
        tensors = self.tensors()
        for name in self.routine.inputs:
            for position, dim in enumerate(tensors[name].dims):
                found.setdefault(dim, f"{name}.shape[{position}]")
        return found

    def sizes(self) -> tuple[str, ...]:
        """The sizes that launches and allocations name, tilings left out."""
        named = [name for launch in self.routine.launches for name in needed(launch, self.backend)]
        made = [dim for name in self.routine.outputs for dim in self.tensors()[name].dims]
        made += [dim for one in self.routine.scratch for dim in one.dims]
        return tuple(name for name in dict.fromkeys(named + made) if name not in self.constants() and name not in self.reals())

    def reals(self) -> tuple[str, ...]:
        """The real scalars."""
        return tuple(dict.fromkeys(name for launch in self.routine.launches for name in launch.kernel.reals))

    def function(self, name: str) -> Iterator[str]:
        """The lines of the function."""
        sources = self.sources()
        asked = [size for size in self.sizes() if size not in sources]
        inputs = self.routine.inputs
        yield signature(name, (*inputs, *(f"{real}=1.0" for real in self.reals()), *(("*", *asked) if asked else ())))
        yield f'{INDENT}"""{self.says()}"""'
        for one in inputs:
            yield f"{INDENT}{one} = {one}.contiguous()"
        yield from self.read_sizes()
        for one, dims, dtype in self.made():
            yield f"{INDENT}{one} = torch.empty({', '.join(dims)}, dtype={dtype}, device={inputs[0]}.device)"
        for launch in self.routine.launches:
            yield from self.call(launch)
        yield f"{INDENT}return {', '.join(self.routine.outputs)}"

    def read_sizes(self) -> Iterator[str]:
        """The lines that read sizes from shapes: whole shapes where they tell several."""
        sources, wanted = self.sources(), self.sizes()
        for name in self.routine.inputs:
            told = [dim if sources[dim].startswith(f"{name}.") and dim in wanted else "_" for dim in self.tensors()[name].dims]
            fresh = [dim for dim in told if dim != "_"]
            if len(fresh) > 1:
                yield f"{INDENT}{', '.join(told)} = {name}.shape"
            elif fresh:
                yield f"{INDENT}{fresh[0]} = {sources[fresh[0]]}"

    def says(self) -> str:
        """The tensors' shapes."""
        return f"{self.shapes(self.routine.inputs)} → {self.shapes(self.routine.outputs)}"

    def shapes(self, names: tuple[str, ...]) -> str:
        """Some tensors with their dimensions."""
        return ", ".join(f"{name} [{', '.join(self.tensors()[name].dims)}]" for name in names)

    def made(self) -> Iterator[tuple[str, tuple[str, ...], str]]:
        """The tensors that the function makes: name, dimensions, dtype."""
        for name in self.routine.outputs:
            buffer = self.tensors()[name]
            yield name, buffer.dims, self.dtype(buffer.dtype)
        for one in self.routine.scratch:
            yield one.name, one.dims, self.dtype(one.dtype)

    def dtype(self, name: str) -> str:
        """A dtype; what an output holds follows the first input that holds what it is given."""
        own = [one for one in self.routine.inputs if self.tensors()[one].dtype not in (ACC, *DTYPES)]
        like = name if name in own else (own or self.routine.inputs)[0]
        if name == ACC:
            return "torch.float32" if self.backend == "triton" else f"torch.promote_types({like}.dtype, torch.float32)"
        return DTYPES.get(name, f"{like}.dtype")

    def call(self, launch: Launch) -> Iterator[str]:
        """The lines of one launch."""
        kernel = launch.kernel
        printer = torch_text.Printer(kernel)
        programs = printer.text(kernel.programs)
        if self.backend == "torch":
            arguments = [launch.tensor(name) for name in torch_text.arguments(kernel)[:-1]]
            yield f"{INDENT}{kernel.name}({', '.join((*arguments, programs))})"
            return
        yield f"{INDENT}{kernel.name}[({programs},)]("
        names = triton_text.arguments(kernel)
        for buffer in kernel.buffers:
            if buffer.name in names:
                yield f"{INDENT * 2}{argument(launch, buffer)},"
        rest = ", ".join(name for name in names if name not in {buffer.name for buffer in kernel.buffers})
        yield f"{INDENT * 2}{rest}," if rest else f"{INDENT * 2}# no sizes"
        yield f"{INDENT * 2}num_warps={setting(launch, 'WARPS')}, num_stages={setting(launch, 'STAGES')},"
        yield f"{INDENT})"


def setting(launch: Launch, what: str) -> str:
    """The name of a number that belongs to one launch."""
    return f"{launch.kernel.name.upper()}_{what}"


def argument(launch: Launch, buffer: Buffer) -> str:
    """A tensor as a kernel takes it: itself, or the descriptor of its rows."""
    tensor = launch.tensor(buffer.name)
    if buffer.via == "pointer":
        return tensor
    shape = ", ".join(" * ".join(dims) for dims in descriptor_shape(launch.kernel, buffer.name))
    block = ", ".join(part if part != ONE else "1" for part in descriptor_block(launch.kernel, buffer.name))
    return f"TensorDescriptor.from_tensor({tensor}.view({shape}), [{block}])"


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
