"""The architecture, read from the source alone.

Which layer may import which, no cycles, no hidden imports, small files and functions, plain words, and kinds named at home only.
"""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EVERYTHING = {"errors", "text", "program", "plan", "tile", "schedules", "emit", "run", "pipeline", "cli"}
MAY_IMPORT = {
    "errors": set[str](),
    "text": {"errors"},
    "program": {"errors", "text"},
    "plan": {"errors", "program"},
    "tile": {"errors"},
    "schedules": {"errors", "program", "plan", "tile"},
    "emit": {"errors", "tile"},
    "run": {"errors", "program", "plan", "tile", "schedules", "emit"},
    "pipeline": EVERYTHING,
    "cli": EVERYTHING,
    "__init__": EVERYTHING,
    "__main__": EVERYTHING,
}
HOME_OF = {"lark": {"text"}, "triton": {"run"}, "opt_einsum": {"plan", "run"}, "rich": {"plan", "cli", "__main__"}}
TOP = {"pyproject.toml", "README.md", "contractor", "grammar", "tests", "examples"}
BANNED = {"util", "utils", "helper", "helpers", "fwd", "bwd", "cfg", "ctx", "tmp", "impl"}
OTHER_WORDS = {"matrix"}  # kinds of masks whose name is also what the language calls a pair of axes
LINES, FUNCTION_LINES = 300, 40
SOURCES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted((ROOT / "contractor").rglob("*.py"))}
modules = pytest.mark.parametrize("module", SOURCES)


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(SOURCES[module].read_text(encoding="utf-8"))


def layer(module: str) -> str:
    return module.split(".")[1]


def imported(module: str) -> Iterator[str]:
    """Every absolute name that a module imports, wherever in it; a name taken from a package counts with the package before it."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are written in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def as_module(name: str) -> str | None:
    """The module of the project that an imported name lies in."""
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    found = next((known for prefix in prefixes for known in (prefix, f"{prefix}.__init__") if known in SOURCES), None)
    return found if parts[0] == "contractor" else None


def run_before(module: str) -> set[str]:
    """The modules that run before this one: those imported, and the packages around them that this one is not in."""
    direct = {found for name in imported(module) if (found := as_module(name))}
    around = {".".join([*found.split(".")[:length], "__init__"]) for found in direct for length in range(1, len(found.split(".")))}
    outside = {package for package in around if not module.startswith(package.removesuffix("__init__"))}
    return (direct | outside) - {module}


def registered(folder: str) -> set[str]:
    """The names under which the classes of a folder's files register themselves: `name = "…"` in a class."""
    nodes = (node for module in SOURCES if module.startswith(folder) for node in ast.walk(tree(module)))
    fields = (field for node in nodes if isinstance(node, ast.ClassDef) for field in node.body)
    given = [ast.unparse(field) for field in fields if isinstance(field, ast.Assign | ast.AnnAssign)]
    return {found[1] for text in given if (found := re.match(r"name\b.* = '(\w+)'$", text))}


def asked(whole: ast.Module) -> Iterator[str]:
    """Every string of a module but those that are handed to a function by position: names of values in kernels, text to print."""
    calls = [node for node in ast.walk(whole) if isinstance(node, ast.Call)]
    handed = {id(value) for call in calls if not ast.unparse(call.func).endswith(".get") for value in call.args}
    strings = (node for node in ast.walk(whole) if isinstance(node, ast.Constant) and id(node) not in handed)
    return (node.value for node in strings if isinstance(node.value, str))


@modules
def test_layers(module: str) -> None:
    own = layer(module)
    for other in (found for name in imported(module) if (found := as_module(name))):
        assert layer(other) in MAY_IMPORT[own] | {own}, f"{module} may not import {other}"
        reads = (own, layer(other)) == ("program", "text")
        assert not reads or module.split(".")[-1].startswith("check"), f"{module}: only the checker reads specs"
    for name in imported(module):
        assert own in HOME_OF.get(name.split(".")[0], {own}), f"{module} may not import {name}"


def test_no_cycle() -> None:
    graphlib.TopologicalSorter({module: run_before(module) for module in SOURCES}).prepare()


@modules
def test_no_hidden_import(module: str) -> None:
    functions = (node for node in ast.walk(tree(module)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    assert not [inner.lineno for outer in functions for inner in ast.walk(outer) if isinstance(inner, ast.Import | ast.ImportFrom)]


@modules
def test_small_and_described(module: str) -> None:
    assert len(SOURCES[module].read_text(encoding="utf-8").splitlines()) <= LINES
    assert ast.get_docstring(tree(module)), "a module begins by saying what it is"
    functions = (node for node in ast.walk(tree(module)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    lengths = {node.name: (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions}
    assert {name: length for name, length in lengths.items() if length > FUNCTION_LINES} == {}


@modules
def test_plain_words(module: str) -> None:
    nodes = list(ast.walk(tree(module)))
    names = [node.id for node in nodes if isinstance(node, ast.Name)] + [node.arg for node in nodes if isinstance(node, ast.arg)]
    names += [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)] + module.split(".")
    words = {word.lower() for name in names for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
    assert words & BANNED == set()


@pytest.mark.parametrize("folder", ["contractor.program.masks.", "contractor.schedules."])
def test_kinds_are_named_at_home_only(folder: str) -> None:
    """A mask kind or a schedule is one file: nothing outside its folder asks for it by name."""
    names = registered(folder) - OTHER_WORDS
    assert names, f"no class of {folder} has a name"
    strings = ((module, value) for module in SOURCES if not module.startswith(folder) for value in asked(tree(module)))
    assert {f"{module}: {value}" for module, value in strings if value in names} == set()


def test_top_level() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tops = {path.split("/")[0] for path in listed.split("\0") if path}
    assert {top for top in tops if not top.startswith(".")} <= TOP
