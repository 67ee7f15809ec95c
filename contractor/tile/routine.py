"""One pass of a layer as launches of kernels, and the tensors that only live between them."""

from __future__ import annotations

from dataclasses import dataclass

from contractor.errors import TileError
from contractor.tile.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Scratch:
    """A tensor that one launch writes and a later one reads: dims are names of sizes, dtype as in Buffer."""

    name: str
    dims: tuple[str, ...]
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One call of a kernel. rename: its buffers → tensors of the routine, those of the same name left out. constants: sizes that the
    tiling chose, by name."""

    kernel: Kernel
    rename: tuple[tuple[str, str], ...] = ()
    warps: int = 4
    stages: int = 2
    constants: tuple[tuple[str, int], ...] = ()

    def tensor(self, buffer: str) -> str:
        """The routine's tensor that stands for a buffer of the kernel."""
        return dict(self.rename).get(buffer, buffer)


@dataclass(frozen=True, slots=True, eq=False)
class Routine:
    """The launches of one pass, in order. Raises TileError if a tensor that it makes itself is read before it is written."""

    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...] = ()

    def __post_init__(self) -> None:
        made: set[str] = set()
        names = {one.name for one in self.scratch}
        for launch in self.launches:
            stored = {launch.tensor(name) for name in launch.kernel.stored}
            read = {launch.tensor(name) for name in launch.kernel.loaded}
            if early := (read & names) - made:
                raise TileError(f"{launch.kernel.name} reads {', '.join(sorted(early))} before any launch has written it")
            made |= stored

    @property
    def updated(self) -> tuple[str, ...]:
        """The tensors that the caller gives and that are changed in place."""
        return tuple(dict.fromkeys(launch.tensor(name) for launch in self.launches for name in launch.kernel.updated))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The tensors that the routine makes for its caller, in order of their first store."""
        hidden = {one.name for one in self.scratch} | set(self.updated)
        written = [launch.tensor(name) for launch in self.launches for name in launch.kernel.stored]
        return tuple(name for name in dict.fromkeys(written) if name not in hidden)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tensors that the caller gives, in order."""
        hidden = {one.name for one in self.scratch} | set(self.outputs)
        named = [launch.tensor(buffer.name) for launch in self.launches for buffer in launch.kernel.buffers]
        return tuple(name for name in dict.fromkeys(named) if name not in hidden)
