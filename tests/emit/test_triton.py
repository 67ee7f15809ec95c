"""Facts of the printed Triton text."""

from __future__ import annotations

import ast
import re

import pytest

from contractor.emit.header import header
from contractor.emit.triton import arguments, emit_triton
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel
from contractor.tile.ops import ACC, Expr, Span, cast, cdiv, iota, least, number, select, size
from tests.tile.kernels import KERNELS, one_pass

every_kernel = pytest.mark.parametrize("name", KERNELS)


def function(kernel: Kernel) -> ast.FunctionDef:
    """The printed function, parsed."""
    (found,) = (node for node in ast.parse(emit_triton(kernel)).body if isinstance(node, ast.FunctionDef))
    return found


def stored(value: Expr) -> str:
    """How an expression over t is printed."""
    k = Builder("values", "", {"t": "T"}, scalars=("scale",))
    batch = k.program(size("B"))
    k.store(k.buffer("y", "B", "T", dtype=ACC), batch, Span("t", number(0), iota("t")), value=value)
    line = emit_triton(k.done()).splitlines()[-1]
    return line.split("tl.arange(0, T), ", 1)[1].removesuffix(")")


@every_kernel
def test_nothing_is_printed_that_is_not_read(name: str) -> None:
    kernel = function(KERNELS[name]())
    named = [node for node in ast.walk(kernel) if isinstance(node, ast.Name)]
    read = {node.id for node in named if isinstance(node.ctx, ast.Load)}
    assert {node.id for node in named if isinstance(node.ctx, ast.Store)} <= read
    assert {argument.arg for argument in kernel.args.args} <= read
    assert [argument.arg for argument in kernel.args.args] == list(arguments(KERNELS[name]()))


@every_kernel
def test_imports_and_names(name: str) -> None:
    text = emit_triton(KERNELS[name]())
    assert text.startswith("import triton\nimport triton.language as tl\n\n\n@triton.jit")
    assert not re.search(r"\b[a-z]+_\d+\b", text), "no numbered temporaries"
    assert "contractor" not in text


def test_only_constants_are_constexpr_and_scale_is_never_specialised() -> None:
    text = emit_triton(one_pass(gated=True))
    assert '@triton.jit(do_not_specialize=["scale"])' in text
    assert set(re.findall(r"(\w+): tl.constexpr", text)) == {"BLOCK_P", "CHUNK", "H", "N", "P"}
    assert 'float("-inf")' in text and "input_precision" not in text
    assert emit_triton(one_pass(precision="tf32x3")).count('input_precision="tf32x3"') == 4


def test_descriptors_replace_addresses_and_masks() -> None:
    text = emit_triton(one_pass("descriptor"))
    assert "mask=" not in text and "tl.load" not in text and "inside =" not in text
    assert "q_tile = q.load([batch, first_row, head * N]).reshape(CHUNK, N)" in text
    assert "y.store([batch, first_row, head * P + block * BLOCK_P], (out * scale).to(y.dtype).reshape(1, CHUNK, BLOCK_P))" in text


@every_kernel
def test_rows_are_promoted_before_they_are_multiplied(name: str) -> None:
    kernel = KERNELS[name]()
    for line in emit_triton(kernel).splitlines():
        if found := re.search(r"tl\.(?:load|store)\(\w+ \+ (.*)", line):
            address = found[1].split(", mask")[0]
            assert "int64" in address or re.match(r"\(*(row|last)\b", address) or "*" not in address, line


EXPRESSIONS: dict[str, tuple[Expr, str]] = {
    "left to right": (cast(iota("t") - 1 - (iota("t") - 3), ACC), "(tl.arange(0, T) - 1 - (tl.arange(0, T) - 3)).to(tl.float32)"),
    "no brackets": (cast(iota("t"), ACC) * size("scale", ACC) + 2.0, "tl.arange(0, T).to(tl.float32) * scale + 2.0"),
    "brackets": ((cast(iota("t"), ACC) + 2.0) * size("scale", ACC), "(tl.arange(0, T).to(tl.float32) + 2.0) * scale"),
    "negative": (cast(iota("t"), ACC) * -2.0 + (-1.0), "tl.arange(0, T).to(tl.float32) * (-2.0) - 1.0"),
    "logic": (
        select((iota("t") < 2) & (iota("t") > 0) | iota("t").same(4), 1.0, -float("inf")),
        'tl.where((tl.arange(0, T) < 2) & (tl.arange(0, T) > 0) | (tl.arange(0, T) == 4), 1.0, float("-inf"))',
    ),
    "functions": (cast(least(cdiv(iota("t"), 2), 3), ACC), "tl.minimum(tl.cdiv(tl.arange(0, T), 2), 3).to(tl.float32)"),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_brackets(name: str) -> None:
    written, wanted = EXPRESSIONS[name]
    assert stored(written) == wanted


def test_header() -> None:
    assert header("y = q k v", "", "two\nlines") == "# y = q k v\n#\n# two\n# lines\n\n"
