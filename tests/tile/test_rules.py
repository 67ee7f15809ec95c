"""Kernels that must be refused: each rule of the tile language by a kernel that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from contractor.errors import TileError
from contractor.tile.build import Builder
from contractor.tile.check import check
from contractor.tile.kernel import Kernel, Loop, Update, statements
from contractor.tile.names import spelled, usable
from contractor.tile.ops import ACC, BOOL, I32, Expr, Span, cast, dot, exp2, iota, number, rename, select, size, total
from contractor.tile.routine import Launch, Routine, Scratch
from tests.tile.kernels import KERNELS, one_pass, small_dot

Wrong = Callable[[Builder], object]


def builder() -> Builder:
    """A kernel that has a program, its axes and nothing else."""
    k = Builder("kernel", "", {"t": "CHUNK", "s": "CHUNK", "n": "N", "p": "BLOCK_P", "m": "N"}, scalars=("scale", "T"))
    k.program(size("B"))
    return k


def tile(k: Builder, name: str, *axes: str, dtype: str | None = None) -> Expr:
    """A loaded tile over some axes."""
    dims = {"t": "T", "s": "T", "n": "N", "m": "N", "p": "P"}
    spans = [Span(axis, number(0), iota(axis), iota(axis) < size(dims[axis])) for axis in axes]
    return k.load(f"{name}_tile", k.buffer(name, *(dims[axis] for axis in axes), dtype=dtype), *spans)


def transposed_product(k: Builder) -> Expr:
    scores = k.let("scores", dot(tile(k, "a", "t", "n"), tile(k, "b", "s", "n")))
    return dot(cast(scores, "a"), cast(tile(k, "v", "t", "p"), "a"))


def transposed_accumulator(k: Builder) -> Kernel:
    a, state = tile(k, "a", "t", "n"), k.full("state", "n", "p")
    k.update(state, dot(a, tile(k, "b", "t", "p"), into=state))
    k.let("wrong", dot(cast(state, "a"), tile(k, "c", "n", "t", dtype="a")))
    return k.done()


def out_of_scope(k: Builder) -> Kernel:
    y = k.buffer("y", "B", dtype=I32)
    with k.loop("step", size("T")) as step:
        inner = k.let("inner", step + 1)
        k.store(y, number(0), value=inner)
    k.store(y, number(0), value=inner)
    return k.done()


def idle_loop(k: Builder) -> Kernel:
    with k.loop("step", size("T")) as step:
        k.let("inner", step + 1)
    return k.done()


def unbounded(k: Builder) -> Kernel:
    k.load("x_tile", k.buffer("x", "T"), Span("t", number(0), iota("t")))
    return k.done()


def two_blocks(k: Builder) -> Kernel:
    q = k.buffer("q", "B", "T", "H", "N", via="descriptor")
    block = Span("n", number(0), iota("n"))
    other = Span("p", number(0), iota("p"))
    rows = Span("t", number(0), iota("t"))
    k.load("one", q, number(0), rows, number(0), block)
    k.load("other", q, number(0), rows, number(0), other)
    return k.done()


def lone_descriptor(k: Builder) -> Kernel:
    k.load("gate_tile", k.buffer("gate", "B", "T", "H", via="descriptor"), number(0), Span("t", number(0), iota("t")), number(0))
    return k.done()


def plain_store(k: Builder) -> Kernel:
    k.store(k.buffer("y", "N", dtype="bogus"), Span("n", number(0), iota("n")), value=iota("n"))
    return k.done()


def update_in_loop(k: Builder) -> None:
    name = k.let("name", iota("t") + 1)
    with k.loop("step", size("T")):
        k.update(name, name + 1)


WRONG: dict[str, tuple[Wrong, str]] = {
    "transposing broadcast": (lambda k: tile(k, "a", "s", "t") + tile(k, "b", "t", "s"), "broadcasting never transposes"),
    "implicit transpose": (lambda k: tile(k, "a", "s", "t") + iota("t") + tile(k, "b", "t", "s", "n"), "broadcasting never transposes"),
    "two shared axes": (lambda k: dot(tile(k, "a", "t", "n"), tile(k, "b", "n", "t")), "exactly one"),
    "no shared axis": (lambda k: dot(tile(k, "a", "t", "n"), tile(k, "b", "s", "p")), "exactly one"),
    "three axes": (lambda k: dot(tile(k, "a", "t", "n", "m"), tile(k, "b", "n", "p")), "two axes"),
    "unequal dtypes": (lambda k: dot(tile(k, "a", "t", "n"), tile(k, "b", "n", "p", dtype=ACC)), "cast one like the other"),
    "integers": (lambda k: dot(tile(k, "a", "t", "n", dtype=I32), tile(k, "b", "n", "p", dtype=I32)), "cast one"),
    "silent precision": (lambda k: dot(k.full("a", "t", "n"), k.full("b", "n", "p")), "say the precision"),
    "idle loop": (idle_loop, "neither updates nor stores"),
    "into": (lambda k: dot(tile(k, "a", "t", "n"), tile(k, "b", "n", "p"), into=k.full("out", "p", "t")), "dot into"),
    "transposed product": (transposed_product, "transpose of a product"),
    "transposed accumulator": (transposed_accumulator, "transpose of an accumulator"),
    "arithmetic on conditions": (lambda _: (iota("t") > 1) + 1, "arithmetic on bool"),
    "cast of a condition": (lambda _: cast(iota("t") > 1, ACC), "a condition is no number"),
    "select on numbers": (lambda _: select(iota("t"), 1.0, 0.0), "must be a comparison"),
    "real division of rows": (lambda _: exp2(iota("t")) // 2, "must be integers"),
    "reduced axis": (lambda k: total(tile(k, "a", "t", "n"), "p"), "the tile has axes"),
    "two axes of one name": (lambda k: rename(tile(k, "a", "t", "n"), t="n"), "rename of"),
    "no number": (lambda k: k.let("x", True), "is no number"),
    "assigned twice": (lambda k: (k.let("x", iota("t") + 1), k.let("x", iota("t") + 2)), "assigned twice"),
    "tile named like a buffer": (lambda k: (k.buffer("x", "T"), k.full("x", "t")), "assigned twice"),
    "buffer named like a tile": (lambda k: (k.full("x", "t"), k.buffer("x", "T")), "both a tile and a buffer"),
    "buffer declared twice": (lambda k: (k.buffer("x", "T"), k.buffer("x", "N")), "declared twice"),
    "keyword": (lambda k: k.buffer("lambda", "T"), "cannot name a buffer"),
    "module": (lambda k: k.buffer("tl", "T"), "cannot name a buffer"),
    "builtin": (lambda k: k.full("range", "t"), "cannot name a tile"),
    "no identifier": (lambda k: k.buffer("γ'", "T"), "cannot name a buffer"),
    "constant named like a tile": (lambda k: (k.let("T", iota("t") + size("T")), k.done()), "names two things"),
    "update of a let": (update_in_loop, "no carried tile"),
    "update of other axes": (lambda k: k.update(k.full("out", "t"), k.full("other", "s")), "cannot take"),
    "update of other dtype": (lambda k: k.update(k.full("out", "t"), iota("t")), "cannot take"),
    "out of scope": (out_of_scope, "read where it has no value"),
    "unbounded": (unbounded, "nothing keeps the block"),
    "two blocks": (two_blocks, "must have one block"),
    "descriptor without features": (lone_descriptor, "a descriptor reads a block of rows"),
    "unknown dtype": (plain_store, "bogus"),
    "store dtype": (lambda k: (k.store(k.buffer("y", "N"), Span("n", number(0), iota("n")), value=iota("n")), k.done()), "cast it"),
    "store axes": (lambda k: k.store(k.buffer("y", "N"), Span("n", number(0), iota("n")), value=k.full("out", "t")), "store of"),
    "too few indices": (lambda k: k.load("x", k.buffer("b", "B", "N"), number(0)), "names 1"),
    "axis without a block": (lambda k: (k.let("x", iota("w") + 1), k.done()), "has no block size"),
    "axis declared twice": (lambda k: k.axis("t", "OTHER"), "has blocks of"),
    "a tile as an index": (lambda k: (k.load("x", k.buffer("b", "N"), iota("n")), k.done()), "name its axes with a Span"),
    "order of a load": (lambda k: k.load("x", k.buffer("b", "N"), Span("n", number(0), iota("n")), order=("t",)), "ordered as"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused(name: str) -> None:
    wrong, message = WRONG[name]
    with pytest.raises(TileError, match=message):
        wrong(builder())


def test_no_program_count() -> None:
    with pytest.raises(TileError, match="no program count"):
        Builder("kernel", "", {}).done()


@pytest.mark.parametrize("name", KERNELS)
def test_allowed(name: str) -> None:
    kernel = KERNELS[name]()
    assert check(kernel) is kernel


def test_check_sees_what_a_builder_would_not_write() -> None:
    kernel = one_pass()
    loop = next(one for one in kernel.body if isinstance(one, Loop))
    early = tuple(one for one in loop.body if isinstance(one, Update))
    with pytest.raises(TileError, match="read where it has no value"):
        check(replace(kernel, body=(*early, *kernel.body)))
    with pytest.raises(TileError, match="names two things"):
        check(replace(kernel, body=(*kernel.body, *(one for one in kernel.body if one in statements(kernel.body)))))


def test_axes_and_dtypes() -> None:
    k = builder()
    a, b = tile(k, "a", "t", "n"), tile(k, "b", "s", "n")
    assert (a * iota("n")).axes == ("t", "n") and (a * iota("n")).dtype == "a"
    assert dot(a, b).axes == ("t", "s") and dot(a, b).dtype == ACC
    assert (iota("s") + iota("t")).axes == ("t", "s"), "an outer product takes the kernel's order"
    assert (iota("t") >= rename(iota("t"), t="s")).dtype == BOOL
    assert (a * 2.0).dtype == ACC and (iota("t") + 1).dtype == I32
    assert total(a, "n").axes == ("t",) and total(a, "n").dtype == ACC
    assert select(iota("t") > 0, a, 0.0).axes == ("t", "n")


def test_nothing_is_written_for_what_changes_nothing() -> None:
    x = iota("t")
    assert x + 0 is x and x * 1 is x and x - 0 is x and 0 + x is x and x // 1 is x and cast(x, I32) is x and rename(x, s="n") is x


def test_names() -> None:
    assert [spelled(name) for name in ("lambda", "q", "γ", "tl", "2x", "A-log")] == ["lambda_", "q", "_", "tl_", "_2x", "A_log"]
    assert all(usable(spelled(name)) for name in ("lambda", "q", "γ", "tl", "2x", "A-log", "", "read", "x_alive"))


def test_scratch_is_written_before_it_is_read() -> None:
    launch = Launch(small_dot(), rename=(("a", "between"),))
    with pytest.raises(TileError, match="before any launch has written it"):
        Routine((launch,), (Scratch("between", ("B", "T", "N"), ACC),))
    assert Routine((launch,)).inputs == ("between", "b") and Routine((launch,)).outputs == ("c",)
