"""The command line, in this process: answers on standard output, every mistake a message on standard error and exit status 1."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from contractor.cli import COMMANDS, STAGES, main
from contractor.program.reference import reference
from contractor.run.bench import bench
from contractor.schedules.register import SCHEDULES

torch.set_num_threads(1)
ROOT = Path(__file__).parent.parent
RETENTION = str(ROOT / "examples" / "retention.ctr")
MAMBA = str(ROOT / "examples" / "mamba2.ctr")
SMALL = ["B=2", "T=70", "H=2", "N=8", "P=8"]


def out(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0, capsys.readouterr().err
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err
    return captured.err


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert out(capsys, "check", RETENTION).startswith("layer retention\n")
    (layer,) = json.loads(out(capsys, "check", RETENTION, "--json"))["layers"]
    assert layer["layer"] == "retention" and [one["name"] for one in layer["operands"]] == ["Q", "K", "V", "gamma"]


def test_check_names_every_mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "wrong.ctr"
    path.write_text("layer wrong\ninput Q [T, N]\nY [T, N] = Q + R\nZ [T] = Q\noutput Y\n")
    told = refused(capsys, "check", str(path))
    assert f"{path}:3:" in told and f"{path}:4:" in told and "^" in told
    assert main(["check", str(path), "--json"]) == 1
    mistakes = json.loads(capsys.readouterr().out)["mistakes"]
    assert [one["line"] for one in mistakes] == [3, 4] and all(one["message"] and one["column"] for one in mistakes)


def test_plan(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "plan", RETENTION, "B=4", "T=4096", "H=32", "N=128", "P=128", "--machine", "h200")
    assert text.startswith("retention  B=4 T=4096 S=4096 H=32 N=128 P=128 bfloat16  on h200\n")
    assert "* chunked" in text and "\x1b" not in text
    found = json.loads(out(capsys, "plan", RETENTION, "B=4", "T=4096", "H=32", "N=128", "P=128", "--machine", "h200", "--json"))
    assert found["machine"] == "h200" and found["mixings"][0]["chosen"] == "chunked"


def test_plan_takes_dtype_heads_and_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["T=64", "H=8", "N=16", "P=16", "dtype=float64", "heads=C:1,B:1"]
    found = json.loads(out(capsys, "plan", MAMBA, *sizes, "--schedule", "recurrent", "--json"))
    assert found["dtype"] == "float64" and found["heads"] == {"C": 1, "B": 1} and found["mixings"][0]["chosen"] == "recurrent"


@pytest.mark.parametrize("stage", STAGES)
def test_show(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "show", stage, RETENTION, *SMALL, "--machine", "h200")
    shown = {"spec": "layer retention", "program": "operands", "plan": "order", "kernels": "kernel(", "source": "@triton.jit"}
    assert all(word in text for name, word in shown.items() if stage in (name, "all"))


def test_emit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    assert out(capsys, "emit", RETENTION, *SMALL, "--machine", "cpu", "-o", str(path)) == ""
    assert path.read_text() == out(capsys, "emit", RETENTION, *SMALL, "--machine", "cpu")
    names: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert callable(names["retention_Y"])


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_run_compares_with_the_reference(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "run", MAMBA, *SMALL, f"dtype={dtype}", "heads=C:1,B:1", "--device", "cpu")
    assert text.startswith(f"ssd on cpu, {dtype}; errors are relative to the float64 reference\n")
    assert all(f"gradient of {name} " in text for name in ("C", "B", "X", "dt", "A_log", "dt_bias", "D"))
    assert "forward and backward" in text


def test_run_says_when_it_does_not_compare(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "run", RETENTION, "T=512", "H=2", "N=16", "P=16", "--schedule", "chunked", "--device", "cpu")
    assert "numbers not compared" in text and "error" not in text


def test_bench(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(
        capsys, "bench", RETENTION, *SMALL, "--schedule", "chunked", "--schedule", "quadratic", "--against", "sdpa,mamba", "--device", "cpu"
    )
    lines = text.splitlines()
    assert lines[0].startswith("retention  B=2 T=70 S=70 H=2 N=8 P=8 float32  on ") and "GB/s" in lines[1] and "\x1b" not in text
    assert lines[2].split()[:5] == ["order", "or", "peer", "forward", "×"]
    assert [line.split()[0] for line in lines[4:] if line] == ["chunked", "quadratic", "sdpa", "sdpa", "mamba"]
    assert "float64, by definition" in lines[4] and "another function" in text and "not installed: pip install mamba-ssm" in text


def test_bench_sweeps_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "sweep.png"
    sweep = ["bench", RETENTION, "N=8", "P=8", "dtype=float64", "--sweep", "T=16:64", "--device", "cpu"]
    found = json.loads(out(capsys, *sweep, "--schedule", "all", "--json", "--plot", str(path)))
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [table["sizes"]["T"] for table in found["tables"]] == [16, 32, 64] and set(found["crossovers"]) == {"forward", "both"}
    for table in found["tables"]:
        assert [row["name"] for row in table["rows"]] == list(SCHEDULES)
        assert all(row["forward"] > 0 and row["both"] > 0 and not row["wrong"] for row in table["rows"])
    text = out(capsys, *sweep[:-3], "T=16:64:4", "--device", "cpu", "--first")
    assert text.count("retention  B=1 T=") == 2 and "T=64" in text and "first" in text


def test_bench_ends_in_1_if_a_number_is_wrong(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contractor.run.truth.reference", lambda program, tensors: 2 * reference(program, tensors)[0])
    assert main(["bench", RETENTION, *SMALL, "--device", "cpu"]) == 1
    said = capsys.readouterr().out
    assert "WRONG, so not timed (errors 5.0e-01, 5.0e-01 to float64, by definition)" in said and "× floor" not in said


def test_bench_leaves_the_cache_where_it_was(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "/somewhere")
    seen: list[str] = []
    monkeypatch.setattr(
        "contractor.cli.bench.bench", lambda setting, *given: seen.append(os.environ["TRITON_CACHE_DIR"]) or bench(setting, *given)
    )
    assert "first" in out(capsys, "bench", RETENTION, *SMALL, "--device", "cpu", "--first")
    assert seen != ["/somewhere"] and not Path(seen[0]).exists() and os.environ["TRITON_CACHE_DIR"] == "/somewhere"


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "doctor")
    assert all(f"{name} " in text for name in ("python", "torch", "triton", "ptxas", "GPU", "machine", "backend", "cache"))


def test_help_is_enough_to_work_from(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    text = capsys.readouterr().out
    assert stopped.value.code == 0
    assert all(word in text for word in (*COMMANDS, "layer retention", "bfloat16", "semiseparable", "chunked", "h200", "heads=C:1,B:1"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "nowhere.ctr"], "nowhere.ctr: No such file"),
        (["check", str(ROOT)], "directory"),
        (["check", RETENTION, "--layer", "other"], "no layer 'other'"),
        (["plan", RETENTION], "no size for T, N, P"),
        (["plan", RETENTION, "T=64", "N=8"], "no size for P"),
        (["plan", RETENTION, *SMALL, "Q=3"], "unknown size Q"),
        (["plan", RETENTION, *SMALL, "T=71"], "T is given twice"),
        (["plan", RETENTION, "T=x", "N=8", "P=8"], "T must be a whole number from 0 to 999,999,999,999, not 'x'"),
        (["plan", RETENTION, "T=-1", "N=8", "P=8"], "T must be a whole number"),
        (["plan", RETENTION, "T=" + "9" * 5000, "N=8", "P=8"], "T must be a whole number"),
        (["plan", RETENTION, "T:64"], "'T:64' is no size"),
        (["plan", MAMBA, "T=64", "S=65", "N=8", "P=8"], "T = 64, but S = 65"),
        (["plan", RETENTION, *SMALL, "dtype=int4"], "unknown dtype 'int4'"),
        (["plan", RETENTION, *SMALL, "heads=Q:3"], "Q has 3 heads"),
        (["plan", RETENTION, *SMALL, "heads=R:1"], "no such operand"),
        (["plan", RETENTION, *SMALL, "heads=Q"], "heads of 'Q' must be a whole number"),
        (["plan", RETENTION, *SMALL, "--machine", "cray"], "invalid choice: 'cray'"),
        (["plan", RETENTION, *SMALL, "--schedule", "magic"], "invalid choice: 'magic'"),
        (["show", "nothing", RETENTION], "invalid choice: 'nothing'"),
        (["emit", RETENTION, *SMALL, "-o", "/nowhere/kernel.py"], "/nowhere/kernel.py: No such file"),
        (["emit", RETENTION, *SMALL, "packed=3"], "packed"),
        (["run", RETENTION, *SMALL, "dtype=complex64"], "real dtype"),
        (["run", RETENTION, *SMALL, "packed=3"], "packed"),
        (["run", RETENTION, *SMALL, "pooled=1"], "states are not handed in or out here"),
        (["bench", RETENTION, *SMALL, "initial=1"], "states are not handed in or out here"),
        (["tune", RETENTION, *SMALL, "final=1"], "states are not handed in or out here"),
        (["bench", RETENTION, *SMALL, "dtype=complex64"], "real dtype"),
        (["bench", RETENTION, *SMALL, "--against", "fla,other"], "unknown peer other; there are fla, mamba, sdpa"),
        (["bench", RETENTION, *SMALL, "--schedule", "magic"], "invalid choice: 'magic'"),
        (["bench", RETENTION, *SMALL, "--sweep", "T=64:128"], "T is swept and given as a size too"),
        (["bench", RETENTION, "N=8", "P=8", "--sweep", "T=64"], "is no sweep; write T=1024:65536"),
        (["bench", RETENTION, "N=8", "P=8", "--sweep", "T=64:32"], "a sweep grows"),
        (["bench", RETENTION, "N=8", "P=8", "--sweep", "T=64:128:1"], "a sweep grows"),
        (["bench", RETENTION, "N=8", "P=8", "--sweep", "X=64:128"], "unknown size X"),
        (["bench", RETENTION, *SMALL, "--plot", "x.png"], "give --sweep"),
        (["bench", RETENTION, "N=8", "P=8", "--sweep", "T=1:2", "--plot", "/nowhere/x.png"], "cannot write /nowhere/x.png"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        ([], "required: COMMAND"),
    ],
)
def test_mistakes_are_said(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert says in refused(capsys, *arguments)


def test_a_refused_order_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "window.ctr"
    path.write_text(Path(RETENTION).read_text().replace("decay(gamma)", "window(8) * decay(gamma)"))
    told = refused(capsys, "emit", str(path), *SMALL, "--schedule", "chunked")
    assert "chunked: " in told and "possible instead: quadratic" in told
    assert "refused: " in out(capsys, "plan", str(path), *SMALL)
