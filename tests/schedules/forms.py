"""The kinds of contraction that the tests of printed kernels go through: spec lines → the task that a schedule is asked to lower."""

from __future__ import annotations

from functools import lru_cache

from contractor.pipeline import program_of
from contractor.plan.plan import Tiling
from contractor.plan.sizes import problem_from_sizes
from contractor.program.mixing import mixings
from contractor.schedules.parts.form import Dimensions, Task
from contractor.schedules.parts.task import task as lowered

PLAIN = "input Q [T, N]\ninput K [S, N]\ninput V [S, P]"
MATRIX = PLAIN.replace("K [S, N]", "K [S, M]")

MASKS: dict[str, tuple[str, str]] = {
    "causal": ("", "causal()"),
    "fixed": ("param g []", "decay(g)"),
    "fixed shift": ("param g []", "decay(g, shift = 1)"),
    "gate": ("input G [S]", "semiseparable(log = G)"),
    "promised gate": ("input G [S] in [-50, 0]", "semiseparable(log = G)"),
    "gate shift": ("input G [S]", "semiseparable(log = G, shift = 1)"),
    "gate n": ("input G [S, N]", "semiseparable(log = G)"),
    "gate p": ("input G [S, P]", "semiseparable(log = G)"),
    "gate n p": ("input G [S, N, P]", "semiseparable(log = G)"),
    "window": ("", "window(7)"),
    "prefix": ("", "prefix(5)"),
    "documents": ("input ids [S] : int", "causal() * documents(ids)"),
    "toeplitz": ("param a [R]", "toeplitz(a)"),
    "matrix": ("input M [T, S]", "matrix(M)"),
    "gated window": ("input G [S]", "semiseparable(log = G) * window(20)"),
    "rank one": ("input beta [S]", "delta(beta, K)"),
    "gated rank one": ("input beta [S]\ninput G [S]", "semiseparable(log = G) * delta(beta, K)"),
    "delta rule": ("input beta [S]\ninput G [S]", "semiseparable(log = G) * delta(beta, K)"),
    "dense": ("input A [S, N, M]", "product(A)"),
}
EXTRA = {"gate n": "N", "gate p": "P", "gate n p": "NP", "rank one": "NM", "gated rank one": "NM", "delta rule": "NM", "dense": "NM"}
WRITTEN = {"delta rule": "beta * K"}


def text(name: str) -> str:
    """The layer of one mask."""
    declared, mask = MASKS[name]
    extra = EXTRA.get(name, "")
    matrix = extra == "NM"
    letters = f"contract(TN, {'SM' if matrix else 'SN'}, SP, TS{extra} -> TP)"
    lines = ["layer tested", MATRIX if matrix else PLAIN, declared, f"L [T, S{''.join(f', {one}' for one in extra)}] = {mask}"]
    return "\n".join([*lines, f"output {letters}(Q, {WRITTEN.get(name, 'K')}, V, L)", ""])


@lru_cache
def task(name: str, shape: tuple[int, int, int, int, int], dtype: str = "bfloat16", **heads: int) -> Task:
    """The task of one mask at B, T, H, N, P; heads: of operands that have fewer than H."""
    batch, length, count, inner, outer = shape
    program = program_of(text(name))
    more = {"R": 9} if "[R]" in text(name) else {"M": inner} if EXTRA.get(name) == "NM" else {}
    problem = problem_from_sizes(program, dtype=dtype, heads=heads, B=batch, T=length, H=count, N=inner, P=outer, **more)
    return lowered(mixings(program)[0].terms[0], problem)


def blocks(shape: Dimensions, via: str, rows: int = 16, columns: int = 16) -> Tiling:
    """Small blocks, so that short sequences have several."""
    width = 1 << (shape.N - 1).bit_length()
    return Tiling((("CHUNK", rows), ("BLOCK_N", width), ("BLOCK_P", columns)), 4, 1, via)
