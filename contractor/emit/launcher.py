"""Routines → a whole file that runs alone: head, constants, kernels, and for each routine a plain function that checks its tensors,
makes the outputs and launches the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from contractor.emit import torch as torch_text
from contractor.emit import triton as triton_text
from contractor.emit.demand import MEASURED, demands, divisors, factors
from contractor.emit.header import header
from contractor.emit.needs import Backend, needed
from contractor.emit.text import INDENT, WIDTH, signature
from contractor.emit.torch_expression import Expressions
from contractor.errors import TileError
from contractor.tile.access import ONE, descriptor_block, descriptor_shape
from contractor.tile.kernel import Buffer, Kernel
from contractor.tile.routine import Launch, Routine
from contractor.tile.rules import ACC, BOOL, I32, I64

DESCRIPTOR = "from triton.tools.tensor_descriptor import TensorDescriptor"
DTYPES = {I32: "torch.int32", I64: "torch.int64", BOOL: "torch.bool"}


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One function of a file. says: what it returns, in lines. arguments: its tensors in the order they are taken, each with what it
    is; inputs left out follow in the routine's own order. prefix: of the names of its constants. wide: results are float32 at least.
    scale: what real scalars are where they are not given."""

    name: str
    routine: Routine
    says: tuple[str, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    prefix: str = ""
    wide: bool = False
    scale: float = 1.0


def emit_file(entries: tuple[Entry, ...], backend: Backend, title: tuple[str, ...] = ()) -> str:
    """The text of a file that needs torch (and triton) only: `name(tensors…, real scalars…)` gives the outputs, one alone or a tuple.

    Sizes that no tensor's shape tells are keywords after them. Raises TileError if two launches of one routine want one constant to
    have two values, or two kernels of different text have one name.
    """
    launches = [launch for entry in entries for launch in entry.routine.launches]
    kernels = distinct([launch.kernel for launch in launches], backend)
    makers = tuple(Launcher(entry, backend) for entry in entries)
    constants = [line for maker in makers for line in maker.settings()]
    written = triton_text.functions(kernels) if backend == "triton" else torch_text.functions(kernels)
    functions = ["\n".join(maker.function()) + "\n" for maker in makers]
    top = "\n".join(imports(kernels, backend)) + "\n\n" + "\n".join(constants) + "\n"
    return header(*title) * bool(title) + "\n\n".join((top, written, MEASURED, *functions))


def distinct(kernels: list[Kernel], backend: Backend) -> tuple[Kernel, ...]:
    """Each kernel once."""
    found: dict[str, Kernel] = {}
    for kernel in kernels:
        known = found.setdefault(kernel.name, kernel)
        if known is not kernel and printed(known, backend) != printed(kernel, backend):
            raise TileError(f"two kernels are called {kernel.name}: give them two names")
    return tuple(found.values())


def printed(kernel: Kernel, backend: Backend) -> str:
    """One kernel's text."""
    return triton_text.function(kernel) if backend == "triton" else torch_text.function(kernel)


def imports(kernels: tuple[Kernel, ...], backend: Backend) -> tuple[str, ...]:
    """The imports of a file."""
    if backend == "torch":
        return torch_text.imports(kernels)
    described = any(buffer.via == "descriptor" for kernel in kernels for buffer in kernel.buffers)
    return ("import torch", *triton_text.IMPORTS, *((DESCRIPTOR,) if described else ()))


@dataclass(frozen=True, slots=True)
class Launcher:
    """The function that launches a routine."""

    entry: Entry
    backend: Backend

    @property
    def routine(self) -> Routine:
        """What is launched."""
        return self.entry.routine

    @property
    def inputs(self) -> tuple[str, ...]:
        """The function's tensors, in order."""
        own = self.routine.inputs
        return tuple(dict.fromkeys([name for name, _ in self.entry.arguments if name in own] + list(own)))

    def constants(self) -> dict[str, int]:
        """What the tilings chose, as far as any text names it."""
        found: dict[str, int] = {}
        read = {name for launch in self.routine.launches for name in needed(launch, self.backend)}
        for name, value in (pair for launch in self.routine.launches for pair in launch.constants if pair[0] in read):
            if found.setdefault(name, value) != value:
                raise TileError(f"{name} is {found[name]} in one launch and {value} in another: give it two names")
        return found

    def settings(self) -> Iterator[str]:
        """The numbers that a reader may want to change, one a line."""
        yield from (f"{self.entry.prefix}{name} = {value}" for name, value in self.constants().items())
        if self.backend == "triton":
            for launch in self.routine.launches:
                yield f"{self.setting(launch, 'WARPS')} = {launch.warps}"
                yield f"{self.setting(launch, 'STAGES')} = {launch.stages}"

    def setting(self, launch: Launch, what: str) -> str:
        """The name of a number that belongs to one launch."""
        alone = len(self.routine.launches) == 1
        return self.entry.prefix + (what if alone else f"{launch.kernel.name.upper()}_{what}")

    def tensors(self) -> dict[str, Buffer]:
        """Every tensor of the routine, as the kernels declare it."""
        found: dict[str, Buffer] = {}
        for launch in self.routine.launches:
            for buffer in launch.kernel.buffers:
                found.setdefault(launch.tensor(buffer.name), buffer)
        return found

    def sizes(self) -> tuple[str, ...]:
        """The sizes that launches, allocations and checks name, tilings left out."""
        named = [name for launch in self.routine.launches for name in needed(launch, self.backend)]
        named += [name for launch in self.routine.launches for pair in divisors(launch.kernel) for name in pair]
        made = [dim for name in self.routine.outputs for dim in self.tensors()[name].dims]
        made += [dim for one in self.routine.scratch for dim in one.dims]
        chosen = {name for launch in self.routine.launches for name, _ in launch.constants}
        return tuple(name for name in dict.fromkeys(made + named) if name not in chosen and name not in self.reals())

    def reals(self) -> tuple[str, ...]:
        """The real scalars."""
        return tuple(dict.fromkeys(name for launch in self.routine.launches for name in launch.kernel.reals))

    def measured(self) -> set[str]:
        """The sizes that some tensor's shape tells."""
        return {dim for name in self.inputs for dim in self.tensors()[name].dims}

    def counted(self) -> bool:
        """True if packed sequences are counted by their bounds."""
        return "SEQUENCES" in self.sizes() and "BOUNDS" in self.measured()

    def function(self) -> Iterator[str]:
        """The lines of the function."""
        asked = [size for size in self.sizes() if size not in self.measured() and not (size == "SEQUENCES" and self.counted())]
        yield signature(
            self.entry.name, (*self.inputs, *(f"{real}={self.entry.scale!r}" for real in self.reals()), *(("*", *asked) if asked else ()))
        )
        yield from self.documentation()
        yield from self.checks()
        yield from self.named_constants()
        for one, dims, dtype in self.made():
            yield f"{INDENT}{one} = torch.empty({', '.join(dims)}, dtype={dtype}, device={self.inputs[0]}.device)"
        first = self.routine.outputs[0]
        yield f"{INDENT}if {first}.numel() == 0:"
        yield f"{INDENT * 2}return {', '.join(self.routine.outputs)}"
        yield from self.contiguous()
        for launch in self.routine.launches:
            yield from self.call(launch)
        yield f"{INDENT}return {', '.join(self.routine.outputs)}"

    def contiguous(self) -> Iterator[str]:
        """The lines that lay the tensors out as the kernels read them."""
        read = [name for name in self.inputs if name not in self.routine.updated]
        names = ", ".join(read)
        together = f"{INDENT}{names} = (tensor.contiguous() for tensor in ({names}))"
        if len(read) > 1 and len(together) <= WIDTH:
            yield together
        else:
            yield from (f"{INDENT}{name} = {name}.contiguous()" for name in read)

    def documentation(self) -> Iterator[str]:
        """The doc comment: what is returned, then each tensor's shape, dtype and meaning."""
        tensors, told = self.tensors(), dict(self.entry.arguments)
        yield f'{INDENT}"""{"".join(self.entry.says[:1]) or "The result."}'
        yield from (f"{INDENT}{line}".rstrip() for line in self.entry.says[1:])
        yield ""
        rows = [(name, kind(tensors[name], self.backend), told.get(name, "")) for name in self.inputs]
        rows += [(name, kind(self.output(name), self.backend), told.get(name, "")) for name in self.routine.outputs]
        rows += [(real, "number", told.get(real, "")) for real in self.reals()]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        for name, what, says in rows:
            yield f"{INDENT}{name.ljust(widths[0])}  {what.ljust(widths[1])}  {says}".rstrip()
        yield f'{INDENT}"""'

    def checks(self) -> Iterator[str]:
        """The lines that read every size off the tensors and refuse what does not fit."""
        tensors = self.tensors()
        yield f"{INDENT}size = measured("
        for name in self.inputs:
            yield f'{INDENT * 2}("{name}", {name}, "{" ".join(tensors[name].dims)}", {self.demanded(tensors[name])}),'
        yield f"{INDENT})"
        named = [size for size in self.sizes() if size in self.measured() and not (size == "SEQUENCES" and self.counted())]
        if self.counted():
            yield f'{INDENT}SEQUENCES = size["BOUNDS"] - 1'
        for name in self.routine.updated:
            yield f"{INDENT}if not {name}.is_contiguous():"
            yield f'{INDENT * 2}raise ValueError("{name} is updated in place: it must be contiguous")'
        listed = ", ".join(named)
        values = ", ".join(f'size["{name}"]' for name in named)
        if named and len(listed) + len(values) < WIDTH:
            yield f"{INDENT}{listed} = {values}"
        elif named:
            yield f'{INDENT}{listed} = (size[name] for name in "{" ".join(named)}".split())'
        for launch in self.routine.launches:
            for demand in demands(launch.kernel, dict(launch.constants), self.backend == "triton"):
                says = demand.says(self.entry.prefix, self.constants())
                yield f"{INDENT}if {demand.fails(self.entry.prefix, self.constants())}:"
                yield f'{INDENT * 2}raise ValueError(f"{says}")'

    def demanded(self, buffer: Buffer) -> str:
        """The dtype that a tensor must have, as text: any, unless it is an operand of products of matrices, whose dtypes must agree."""
        if buffer.dtype in (ACC, *DTYPES):
            return self.dtype(buffer.dtype)
        multiplied = any(buffer.name in factors(launch.kernel) for launch in self.routine.launches)
        return f"{self.like()}.dtype" if multiplied else "None"

    def named_constants(self) -> Iterator[str]:
        """Constants under the names that the text below uses, where the file's have a prefix."""
        if self.entry.prefix:
            yield from (f"{INDENT}{name} = {self.entry.prefix}{name}" for name in self.constants())

    def output(self, name: str) -> Buffer:
        """A tensor that is returned, as it is made."""
        buffer = self.tensors()[name]
        return replace(buffer, dtype=ACC) if self.entry.wide else buffer

    def made(self) -> Iterator[tuple[str, tuple[str, ...], str]]:
        """The tensors that the function makes: name, dimensions, dtype."""
        for name in self.routine.outputs:
            yield name, self.output(name).dims, self.dtype(self.output(name).dtype)
        for one in self.routine.scratch:
            yield one.name, one.dims, self.dtype(one.dtype)

    def like(self) -> str:
        """The first input that holds what it is given."""
        own = [one for one in self.inputs if self.tensors()[one].dtype not in (ACC, *DTYPES)]
        return (own or self.inputs)[0]

    def dtype(self, name: str) -> str:
        """A dtype; what an output holds follows the input that it names, or the first that holds what it is given."""
        if name == ACC:
            return "torch.float32" if self.backend == "triton" else f"torch.promote_types({self.like()}.dtype, torch.float32)"
        return DTYPES.get(name, f"{name if name in self.inputs else self.like()}.dtype")

    def call(self, launch: Launch) -> Iterator[str]:
        """The lines of one launch."""
        kernel = launch.kernel
        programs = Expressions(kernel).text(kernel.programs)
        if self.backend == "torch":
            arguments = [launch.tensor(name) for name in torch_text.arguments(kernel)[:-1]]
            yield f"{INDENT}{kernel.name}({', '.join((*arguments, f'programs={programs}'))})"
            return
        yield f"{INDENT}with torch.cuda.device_of({self.inputs[0]}):"
        yield f"{INDENT * 2}{kernel.name}[({programs},)]("
        names = triton_text.arguments(kernel)
        yield from (f"{INDENT * 3}{argument(launch, buffer)}," for buffer in kernel.buffers if buffer.name in names)
        rest = ", ".join(name for name in names if name not in {buffer.name for buffer in kernel.buffers})
        yield f"{INDENT * 3}{rest},"
        yield f"{INDENT * 3}num_warps={self.setting(launch, 'WARPS')}, num_stages={self.setting(launch, 'STAGES')},"
        yield f"{INDENT * 2})"


def kind(buffer: Buffer, backend: Backend) -> str:
    """Shape, and dtype where it is fixed."""
    wide = ", float32" if backend == "triton" else ", float32 or float64"
    fixed = {ACC: wide, **{name: f", {dtype.removeprefix('torch.')}" for name, dtype in DTYPES.items()}}
    return f"[{', '.join(buffer.dims)}]{fixed.get(buffer.dtype, '')}"


def argument(launch: Launch, buffer: Buffer) -> str:
    """A tensor as a kernel takes it: itself, or the descriptor of its rows."""
    tensor = launch.tensor(buffer.name)
    if buffer.via == "pointer":
        return tensor
    shape = ", ".join(" * ".join(dims) for dims in descriptor_shape(launch.kernel, buffer.name))
    block = ", ".join(part if part != ONE else "1" for part in descriptor_block(launch.kernel, buffer.name))
    return f"TensorDescriptor.from_tensor({tensor}.view({shape}), [{block}])"
