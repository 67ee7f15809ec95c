"""Emitted files, alone: imported in a process where contractor cannot be, run on their own, compared with the float64 reference.

The Triton files run in Triton's interpreter, in float32.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from contractor.pipeline import plan, program_of, source
from contractor.plan.sizes import problem_from_sizes
from contractor.program.reference import reference

ALONE = """
import importlib.util, sys, torch
sys.modules["contractor"] = None
torch.set_num_threads(1)
folder = sys.argv[1]
for case in torch.load(f"{folder}/cases.pt"):
    spec = importlib.util.spec_from_file_location(case["name"], f"{folder}/{case['name']}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[case["name"]] = module
    spec.loader.exec_module(module)
    result = getattr(module, case["function"])(*case["arguments"], **case["numbers"])
    torch.save(result, f"{folder}/{case['name']}.pt")
assert not [name for name in sys.modules if name.startswith("contractor.")]
"""
SPEC = """
layer one
input Q [T, N]
input K [S, N]
input V [S, P]
{operand}
Y [T, P] = contract(TN, SN, SP, TS -> TP)(Q, K, V, {mask})
output Y
"""
MASKS = {
    "causal": ("", "causal()"),
    "decay": ("param gamma [] in [0, 1]", "decay(gamma)"),
    "one_ss": ("input G [S]", "semiseparable(log = G)"),
    "reset": ("input G [S]", "semiseparable(log = G) * decay(0.5)"),
    "window": ("", "window(5)"),
}
SCALE = 0.5


@dataclass(frozen=True)
class Case:
    mask: str
    schedule: str
    sizes: tuple[int, int, int, int, int]  # B, T, H, N, P
    dtype: str
    heads: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        return "_".join(map(str, ("case", self.mask, self.schedule, *self.sizes, self.dtype, len(self.heads))))

    def spec(self) -> str:
        operand, mask = MASKS[self.mask]
        return SPEC.format(operand=operand, mask=mask)

    def operands(self) -> dict[str, Tensor]:
        """In call layout."""
        torch.manual_seed(sum(self.sizes))
        B, T, H, N, P = self.sizes
        counts = dict(self.heads)
        dtype = getattr(torch, self.dtype)
        found = {name: torch.randn(B, T, counts.get(name, H), size, dtype=dtype) for name, size in (("Q", N), ("K", N), ("V", P))}
        if self.mask == "decay":
            found["gamma"] = torch.rand(H, dtype=dtype)
        if self.mask in ("one_ss", "reset"):
            found["G"] = -torch.rand(B, T, H, dtype=dtype)
        if self.mask == "reset":
            found["G"][:, 3] = -torch.inf
        return found

    def arguments(self) -> list[Tensor]:
        """In the order of the emitted function."""
        operands = self.operands()
        logs = {"gamma": torch.log, "G": lambda g: g + torch.tensor(0.5, dtype=g.dtype).log() if self.mask == "reset" else g}
        return [logs.get(name, lambda x: x)(tensor) for name, tensor in operands.items()]

    def text(self, machine: str) -> str:
        B, T, H, N, P = self.sizes
        problem = problem_from_sizes(program_of(self.spec()), B=B, T=T, H=H, N=N, P=P, dtype=self.dtype, heads=dict(self.heads))
        return source(plan(problem, machine, self.schedule))

    def expected(self) -> Tensor:
        return SCALE * reference(program_of(self.spec()), self.operands())[0]


RAGGED = (2, 70, 2, 8, 12)
ON_TORCH = [
    *(
        Case(mask, schedule, RAGGED, "float64")
        for mask in ("causal", "decay", "one_ss", "reset")
        for schedule in ("chunked", "quadratic", "recurrent")
    ),
    Case("window", "quadratic", RAGGED, "float64"),
    Case("one_ss", "chunked", (1, 65, 4, 8, 8), "float32", (("Q", 2), ("K", 1))),
    Case("decay", "chunked", (1, 0, 2, 8, 8), "float32"),
]
ON_TRITON = [
    *(
        Case(mask, schedule, (1, 70, 2, 16, 16), "float32")
        for mask in ("causal", "decay", "one_ss")
        for schedule in ("chunked", "quadratic")
    ),
    *(Case(mask, "recurrent", (1, 9, 2, 16, 16), "float32") for mask in ("causal", "decay", "one_ss")),
    Case("one_ss", "chunked", (1, 100, 2, 64, 64), "float32", (("Q", 1), ("K", 1))),
    Case("decay", "chunked", (1, 0, 2, 64, 64), "float32"),
]


def alone(folder: Path, cases: list[Case], machine: str, **environment: str) -> dict[str, Tensor]:
    """Every case's result from one process that cannot import contractor."""
    given: list[dict[str, Any]] = []
    for case in cases:
        (folder / f"{case.name}.py").write_text(case.text(machine), encoding="utf-8")
        given.append({"name": case.name, "function": "one_Y", "arguments": case.arguments(), "numbers": {"scale": SCALE}})
    torch.save(given, folder / "cases.pt")
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(folder)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {case.name: torch.load(folder / f"{case.name}.pt") for case in cases}


@pytest.fixture(scope="module")
def by_torch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    return alone(tmp_path_factory.mktemp("emitted_torch"), ON_TORCH, "cpu")


@pytest.fixture(scope="module")
def by_triton(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    return alone(tmp_path_factory.mktemp("emitted_triton"), ON_TRITON, "h200", TRITON_INTERPRET="1")


def same(case: Case, found: Tensor) -> None:
    expected = case.expected().to(torch.float64)
    assert found.dtype == getattr(torch, case.dtype)
    assert found.shape == expected.shape
    error = (found.double() - expected).norm() / expected.norm().clamp(min=1e-30)
    assert error < (1e-12 if case.dtype == "float64" else 1e-5)


@pytest.mark.parametrize("case", ON_TORCH, ids=lambda case: case.name)
def test_torch_file_runs_alone(case: Case, by_torch: dict[str, Tensor]) -> None:
    same(case, by_torch[case.name])


@pytest.mark.parametrize("case", ON_TRITON, ids=lambda case: case.name)
def test_triton_file_runs_alone(case: Case, by_triton: dict[str, Tensor]) -> None:
    same(case, by_triton[case.name])


# ---- the text ---------------------------------------------------------------------------------------------------------------------

SPECS = sorted((Path(__file__).parent.parent / "specs").glob("*.ctr"))
ALL_SIZES: dict[str, int] = {"B": 2, "T": 128, "H": 4, "N": 64, "P": 64, "F": 32, "R": 16, "M": 64}


def emitted(spec: Path, machine: str) -> str:
    """A file's text at the sizes that its layer has."""
    program = program_of(spec)
    found = {axis: size for axis, size in ALL_SIZES.items() if axis in "BTH" or any(axis in operand.axes for operand in program.operands)}
    return source(plan(problem_from_sizes(program, **found), machine))


def functions(text: str) -> dict[str, Any]:
    """What a text defines."""
    names: dict[str, Any] = {}
    exec(compile(text, "emitted", "exec"), names)
    return names


@pytest.mark.parametrize("machine", ["h200", "cpu"])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_every_layer_reads_as_a_file_of_its_own(spec: Path, machine: str) -> None:
    text = emitted(spec, machine)
    tree = ast.parse(text)
    imported = {alias.name.split(".")[0] for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    imported |= {(node.module or "").split(".")[0] for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert imported <= {"math", "torch", "triton"}
    assert text.startswith(f"# layer {program_of(spec).name}\n")
    assert "Planned for" in text and "contractor" not in text
    documented = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert all(ast.get_docstring(node) for node in documented)
    assert not [line for line in text.splitlines() if line.rstrip() != line]


def test_the_head_is_a_spec() -> None:
    for spec in SPECS:
        program = program_of(spec)
        head = emitted(spec, "cpu").split("# Planned")[0]
        again = program_of("\n".join(line.removeprefix("#").removeprefix(" ") for line in head.splitlines()) + "\n")
        assert again == program


def test_float64_is_torch_text_for_every_machine() -> None:
    case = Case("decay", "chunked", RAGGED, "float64")
    names = functions(case.text("h200"))
    assert "triton" not in names
    torch.testing.assert_close(names["one_Y"](*case.arguments(), scale=SCALE), case.expected())


def test_a_single_column_comes_back_in_float32() -> None:
    names = functions(emitted(Path(__file__).parent.parent / "specs" / "linear_attention.ctr", "cpu"))
    query, ones = torch.rand(2, 128, 4, 64, dtype=torch.bfloat16), torch.ones(2, 128, 1, 1, dtype=torch.bfloat16)
    assert names["linear_attention_Z"](query, query, ones).dtype == torch.float32


def test_two_mixings_are_two_functions() -> None:
    names = functions(emitted(Path(__file__).parent.parent / "specs" / "linear_attention.ctr", "cpu"))
    query, key, value = (torch.rand(2, 128, 4, 64, dtype=torch.float64) for _ in range(3))
    norm = names["linear_attention_Z"](query, key, torch.ones(2, 128, 1, 1, dtype=torch.float64))
    result = names["linear_attention_Y"](query, key, value, target_weight=1 / norm[..., 0])
    weights = torch.einsum("bthn,bshn->bhts", query, key).tril()
    torch.testing.assert_close(norm[..., 0], weights.sum(-1).transpose(1, 2))
    torch.testing.assert_close(result, torch.einsum("bhts,bshp->bthp", weights, value) / norm)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"query": (2, 70, 8)}, "query must be [B, T, H, N], not of shape [2, 70, 8]"),
        ({"key": (2, 71, 2, 8)}, "key has T = 71, a tensor before it has T = 70"),
        ({"value": (2, 70, 2, 13)}, "P = 13 must be a multiple of BLOCK_P = 12"),
        ({"gate": (2, 70, 3)}, "gate has H = 3, a tensor before it has H = 2"),
    ],
)
def test_what_does_not_fit_is_said(changed: dict[str, tuple[int, ...]], says: str) -> None:
    call = functions(Case("one_ss", "chunked", RAGGED, "float32").text("cpu"))["one_Y"]
    shapes = {"query": (2, 70, 2, 8), "key": (2, 70, 2, 8), "value": (2, 70, 2, 12), "gate": (2, 70, 2)}
    with pytest.raises(ValueError, match=re.escape(says)):
        call(**{name: torch.zeros(shape) for name, shape in {**shapes, **changed}.items()})


def test_a_wrong_dtype_is_said() -> None:
    call = functions(Case("one_ss", "chunked", RAGGED, "float32").text("cpu"))["one_Y"]
    query, key, value, gate = Case("one_ss", "chunked", RAGGED, "float32").arguments()
    with pytest.raises(TypeError, match=r"gate must be torch\.float32, not torch\.bfloat16"):
        call(query, key, value, gate.bfloat16())
    with pytest.raises(TypeError, match=r"key must be torch\.float32, not torch\.float64"):
        call(query, key.double(), value, gate)
