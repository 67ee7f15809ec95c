"""What a measurement says: a row for each order and peer, and a table for each problem."""

from __future__ import annotations

from dataclasses import dataclass

from contractor.plan.problem import Problem


@dataclass(frozen=True, slots=True)
class Row:
    """One order or peer; None: not measured.

    says, version: a peer's function, and its library's version. chosen: the planner chose the order. forward, both: milliseconds of the
    forward, and of forward and backward, by these clocks. host: microseconds of a warm forward call. memory: bytes at the peak of forward
    and backward beyond inputs, outputs and gradients. first: seconds of the first forward and the first backward. flops: arithmetic of the
    forward. errors: the worst of the outputs, then of the gradients, relative to `held_to`. wrong_forward: nothing is timed;
    wrong_backward: the forward alone is. note: why there is no time, or what else is to be said.
    """

    name: str
    says: str = ""
    version: str = ""
    ours: bool = True
    chosen: bool = False
    forward: float | None = None
    both: float | None = None
    clocks: tuple[str, ...] = ()
    host: float | None = None
    memory: int | None = None
    first: float | None = None
    flops: int | None = None
    errors: tuple[float, ...] = ()
    held_to: str = ""
    wrong_forward: bool = False
    wrong_backward: bool = False
    note: str = ""

    @property
    def wrong(self) -> bool:
        """True if anything is known to be wrong."""
        return self.wrong_forward or self.wrong_backward


@dataclass(frozen=True, slots=True)
class Table:
    """All rows at one problem. bytes_forward: inputs and outputs once; bytes_both: these, then inputs, the outputs' gradients and the
    inputs' gradients once. bandwidth: bytes/s of a copy on the machine."""

    problem: Problem
    device: str
    bandwidth: float
    bytes_forward: int
    bytes_both: int
    rows: tuple[Row, ...]

    @property
    def floor(self) -> float:
        """Milliseconds that the forward's bytes take."""
        return self.bytes_forward / self.bandwidth * 1e3

    @property
    def floor_both(self) -> float:
        """Milliseconds that the bytes of forward and backward take."""
        return self.bytes_both / self.bandwidth * 1e3

    @property
    def baseline(self) -> Row | None:
        """What others are compared with: the first of our rows that has a time."""
        return next((row for row in self.rows if row.ours and row.forward is not None), None)
