"""The Triton text compiled ahead of time for sm_90, without a GPU: tensor units, registers, shared memory, and a twin written by hand."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from contractor.emit.triton import arguments, emit_triton
from contractor.tile.access import descriptor_block
from contractor.tile.count import count
from contractor.tile.kernel import Kernel
from contractor.tile.ops import ACC, I32
from tests.tile.kernels import KERNELS, one_pass, small_dot

pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
TWIN = Path(__file__).parents[1] / "twins" / "one_pass.py"
SIZES = {"B": 4, "T": 4096, "H": 32, "N": 128, "P": 128, "CHUNK": 64, "BLOCK_P": 128}


@dataclass(frozen=True)
class Compiled:
    """Facts of a compiled kernel: bytes of shared memory; instructions of tensor units, of products without them, of spills."""

    shared: int
    products: int
    older_products: int
    spills: int


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing compiled before is taken for what is compiled now."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    yield


def imported(path: Path) -> ModuleType:
    """A module from its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(function: object, types: Mapping[str, str], constants: Mapping[str, int], warps: int, stages: int) -> Compiled:
    """Compiles a function for sm_90; pointers and T are multiples of 16."""
    aligned = {(place,): [["tt.divisibility", 16]] for place, (name, kind) in enumerate(types.items()) if kind[0] == "*" or name == "T"}
    source = ASTSource(fn=function, signature={**types, **dict.fromkeys(constants, "constexpr")}, constexprs=dict(constants), attrs=aligned)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "num_stages": stages})
    text = built.asm["sass"]
    return Compiled(built.metadata.shared, text.count("HGMMA"), text.count("HMMA"), text.count("LDL") + text.count("STL"))


def types_of(kernel: Kernel, sizes: Mapping[str, int], own: str) -> dict[str, str]:
    """The types of a kernel's tensors and scalars."""
    names, types = arguments(kernel), dict[str, str]()
    for buffer in kernel.buffers:
        kind = {ACC: "fp32", I32: "i32"}.get(buffer.dtype, own)
        block = descriptor_block(kernel, buffer.name) if buffer.via == "descriptor" else ()
        types[buffer.name] = f"tensordesc<{kind}[{', '.join(str(sizes.get(part, 1)) for part in block)}]>" if block else f"*{kind}"
    return {name: types.get(name) or ("fp32" if name in kernel.reals else "i32") for name in names if name not in kernel.constants}


def printed(kernel: Kernel, folder: Path, sizes: Mapping[str, int] = SIZES, warps: int = 4, stages: int = 3, own: str = "bf16") -> Compiled:
    """The facts of a kernel's printed text."""
    path = folder / f"{kernel.name}.py"
    path.write_text(emit_triton(kernel), encoding="utf-8")
    constants = {name: sizes[name] for name in arguments(kernel) if name in kernel.constants}
    return compiled(getattr(imported(path), kernel.name), types_of(kernel, sizes, own), constants, warps, stages)


def test_a_product_runs_on_tensor_units(tmp_path: Path) -> None:
    found = printed(small_dot(), tmp_path, {"B": 1, "T": 64, "N": 64, "P": 64})
    assert found.products > 0 and found.spills == found.older_products == 0


def test_as_good_as_by_hand(tmp_path: Path) -> None:
    """The causal one-pass kernel: the same shared memory, the same tensor instructions, no more spills than the twin."""
    kernel = one_pass("descriptor")
    types = types_of(kernel, SIZES, "bf16")
    constants = {name: SIZES[name] for name in ("H", "N", "P", "CHUNK", "BLOCK_P")}
    by_hand = compiled(imported(TWIN).one_pass, types, constants, warps=4, stages=3)
    found = printed(kernel, tmp_path)
    assert found == by_hand
    assert found.products == 28 and found.older_products == 0 and found.spills < 20
    assert found.shared <= count(kernel, SIZES, stages=3).shared


def test_no_spills_at_64(tmp_path: Path) -> None:
    sizes = {**SIZES, "N": 64, "P": 64, "BLOCK_P": 64}
    for kernel in (one_pass("descriptor", gated=True), one_pass("pointer")):
        found = printed(kernel, tmp_path, sizes, stages=2)
        assert found.products == 16 and found.spills == 0
        assert found.shared <= count(kernel, sizes, stages=2).shared


def test_float32_is_never_multiplied_as_tf32(tmp_path: Path) -> None:
    """tf32x3 takes three products where tf32 takes one."""
    sizes = {**SIZES, "N": 64, "P": 64, "BLOCK_P": 64}
    precise, plain = (printed(one_pass(precision=way), tmp_path, sizes, stages=1, own="fp32") for way in ("tf32x3", "tf32"))
    assert precise.products + precise.older_products >= 3 * (plain.products + plain.older_products) > 0


@pytest.mark.parametrize("name", ["packed", "transition", "window", "running", "gathered"])
def test_every_kernel_compiles(name: str, tmp_path: Path) -> None:
    sizes = {"B": 2, "T": 64, "S": 4, "N": 16, "P": 16, "CHUNK": 16, "W": 20, "LAGS": 9}
    assert printed(KERNELS[name](), tmp_path, sizes).products == 0
