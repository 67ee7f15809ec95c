"""Norms over features, l2norm and rmsnorm: one pass over a tensor's rows, forward and backward.

y = r x with r = 1 / max(‖x‖, least) or rsqrt(mean(x²) + least); the gradient of x from that of y, g, is r (g − y Σ share y g), where the
share is 1, or 0 where the norm is cut off, or 1 / N.
"""

from __future__ import annotations

from contractor.program.reduce import L2_LEAST, RMS_LEAST
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel, Span
from contractor.tile.ops import ACC, I64, Expr, cast, cdiv, iota, most, number, rsqrt, select, size, sqrt, total

NORMS = ("l2norm", "rmsnorm")


def norm_kernel(norm: str) -> Kernel:
    """result = the norm of each row of x [ROWS, N]."""
    k, rows, n = begun(norm, f"result = {norm} of each row of x")
    x = wide(k, "x", rows, n)
    scale, _ = scaled(k, norm, x)
    k.store(k.buffer("result", "ROWS", "N"), rows, n, value=cast(k.let("normed", x * scale), "result"))
    return k.done()


def slope_kernel(norm: str) -> Kernel:
    """result = the gradient of x from that of its norm."""
    k, rows, n = begun(f"{norm}_gradient", f"result = the gradient of x from that of its {norm}")
    x, arrived = wide(k, "x", rows, n), wide(k, "gradient", rows, n)
    scale, share = scaled(k, norm, x)
    normed = k.let("normed", x * scale)
    along = k.let("along", total(normed * arrived, "n") * share)
    k.store(k.buffer("result", "ROWS", "N"), rows, n, value=cast(k.let("sloped", (arrived - normed * along) * scale), "result"))
    return k.done()


def begun(name: str, says: str) -> tuple[Builder, Span, Span]:
    """A kernel whose programs have a block of rows each."""
    k = Builder(name, says, {"r": "ROW_BLOCK", "n": "BLOCK_N"}, scalars=("ROWS",))
    program = k.program(cdiv(size("ROWS"), size("ROW_BLOCK")))
    first = k.let("first", cast(program, I64) * size("ROW_BLOCK"))
    row = k.let("row", first + iota("r"))
    n = k.let("n", iota("n"))
    return k, Span("r", first, row, row < size("ROWS")), Span("n", number(0), n, n < size("N"))


def wide(k: Builder, name: str, rows: Span, n: Span) -> Expr:
    """A block of rows, in the accumulators' precision."""
    return k.let(f"{name}_wide", cast(k.load(f"{name}_tile", k.buffer(name, "ROWS", "N"), rows, n), ACC))


def scaled(k: Builder, norm: str, x: Expr) -> tuple[Expr, Expr | float]:
    """What each row is multiplied by, and the share of its own direction that the gradient loses."""
    squares = k.let("squares", total(x * x, "n"))
    if norm == "rmsnorm":
        count = size("N", ACC)
        return k.let("scale", rsqrt(squares / count + RMS_LEAST)), 1.0 / count
    length = k.let("length", sqrt(squares))
    return k.let("scale", 1.0 / most(length, L2_LEAST)), select(length > L2_LEAST, 1.0, 0.0)
