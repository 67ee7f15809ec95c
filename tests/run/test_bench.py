"""What `contractor bench` measures: numbers before times, peers by structure, crossings of a sweep.

Plain torch stands in for the peers.
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from contractor.errors import ArgumentError
from contractor.pipeline import Options, operator, program_of
from contractor.plan.problem import Problem
from contractor.plan.sizes import problem_from_sizes
from contractor.run import plot, timing, truth
from contractor.run.bench import Order, Setting, bench
from contractor.run.lines import Line, crossings, crossovers, lines
from contractor.run.peers import PEERS, fitted, fla, mamba
from contractor.run.rows import Row, Table
from contractor.run.timing import beyond, host_microseconds, measured

torch.set_num_threads(1)
EXAMPLES = Path(__file__).parents[2] / "examples"
SIZES = {"B": 2, "T": 40, "H": 4, "N": 8, "P": 16}
SIMPLE = """layer simple
input Q [T, N]
input K [S, N]
input V [S, P]
param g [] in [0.5, 1]
param h [] in [0.5, 1]
input G [S]
input a [S] in [0.1, 1]
input W [S, N] in [-1, 0]
output {output}
"""


def simple(mask: str, output: str = "contract(TN, SN, SP, TS -> TP)(Q, K, V, {mask})") -> str:
    """A layer of one expression, with the operands that it reads."""
    text = SIMPLE.format(output=output.format(mask=mask))
    body = text.splitlines()[-1]
    read = [line for line in text.splitlines() if line.split()[0] not in ("input", "param") or line.split()[1] in set(words(body))]
    return "\n".join(read) + "\n"


def words(text: str) -> list[str]:
    return "".join(char if char.isalnum() or char == "_" else " " for char in text).split()


def posed(source: str | Path, dtype: str = "float64", **sizes: Any) -> Problem:
    program = program_of(source)
    axes = {axis for operand in program.operands for axis in operand.axes}
    whole = {axis: size for axis, size in SIZES.items() if axis in axes | {"B", "T", "H"}}
    return problem_from_sizes(program, dtype=dtype, **{**whole, **sizes})


def run(problem: Problem, *peers: str, schedules: tuple[str | None, ...] = (None,), first: bool = False) -> Table:
    orders = [Order(name, operator(problem.program, Options(schedule=name))) for name in schedules]
    return bench(Setting(problem, operator(problem.program, Options(backend="torch")), "cpu", first=first), orders, peers)


# ---- peers in plain torch -------------------------------------------------------------------------------------------------------


def scores(query: Tensor, key: Tensor, log: Tensor, scale: float) -> Tensor:
    """[B, H, T, S] of q, k [B, T, H, N] and log gates [B, T, H]."""
    total = log.cumsum(1).transpose(1, 2)
    apart = total[..., :, None] - total[..., None, :]
    length = query.shape[1]
    ahead = torch.ones(length, length).triu(1).bool()
    return torch.einsum("bthn,bshn->bhts", query, key) * scale * apart.masked_fill(ahead, -math.inf).exp()


def simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Any = None, g_gamma: Any = None, scale: float = 0.0) -> tuple[Tensor, None]:
    assert (g is None) != (g_gamma is None) and q.shape[:3] == k.shape[:3] == v.shape[:3]
    log = (g if g is not None else g_gamma.detach()).expand(q.shape[:3])
    return torch.einsum("bhts,bshp->bthp", scores(q, k, log.to(q.dtype), scale), v), None


def linear_attn(q: Tensor, k: Tensor, v: Tensor, scale: float, normalize: bool) -> tuple[Tensor, None]:
    weights = scores(q, k, torch.zeros(q.shape[:3], dtype=q.dtype), scale)
    weights = weights / weights.sum(-1, keepdim=True) if normalize else weights
    return torch.einsum("bhts,bshp->bthp", weights, v), None


def chunk_scan(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, _chunk: int, D: Any = None, dt_bias: Any = None, dt_softplus: bool = False
) -> Tensor:
    step = dt if dt_bias is None else dt + dt_bias
    step = torch.nn.functional.softplus(step) if dt_softplus else step
    keys, queries = (one.repeat_interleave(x.shape[2] // one.shape[2], 2) for one in (B, C))
    result = simple_gla(queries, keys, x * step[..., None], g=step * A, scale=1.0)[0]
    return result if D is None else result + x * (D[:, None] if D.dim() == 1 else D)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both libraries, as plain torch."""
    monkeypatch.setattr(fla, "chunk_simple_gla", simple_gla)
    monkeypatch.setattr(fla, "chunk_linear_attn", linear_attn)
    monkeypatch.setattr(mamba, "mamba_chunk_scan_combined", chunk_scan)


CAUSAL, GATED = "causal()", "semiseparable(log = G)"
FITTING: dict[str, tuple[str | Path, str, str]] = {
    "retention": (EXAMPLES / "retention.ctr", "fla", "chunk_simple_gla, g_gamma"),
    "linear attention": (EXAMPLES / "linear_attention.ctr", "fla", "chunk_linear_attn, normalize"),
    "mamba2": (EXAMPLES / "mamba2.ctr", "mamba", "mamba_chunk_scan_combined, chunk 256"),
    "mamba2 by fla": (EXAMPLES / "mamba2.ctr", "fla", "chunk_simple_gla, g"),
    "causal": (simple(CAUSAL), "fla", "chunk_linear_attn"),
    "log gates": (simple(GATED), "fla", "chunk_simple_gla, g"),
    "gates": (simple("semiseparable(a)"), "fla", "chunk_simple_gla, g"),
    "two decays": (simple("decay(g) * decay(h)"), "fla", "chunk_simple_gla, g_gamma"),
    "decay and gates": (simple("causal() * decay(g) * semiseparable(a)"), "fla", "chunk_simple_gla, g"),
    "scaled": (simple(GATED, "3 * contract(TN, SN, SP, TS -> TP)(Q, K, V, {mask}) / N ^ 0.5"), "fla", "chunk_simple_gla, g"),
    "operands turned": (simple(GATED, "contract(SP, TS, TN, SN -> TP)(V, {mask}, Q, K)"), "fla", "chunk_simple_gla, g"),
    "more of it": (simple(GATED, "tanh(contract(TN, SN, SP, TS -> TP)(Q, K, V, {mask}))"), "fla", "chunk_simple_gla, g"),
}


@pytest.mark.parametrize("name", FITTING)
def test_a_peer_that_fits_agrees_and_is_timed(name: str) -> None:
    source, peer, says = FITTING[name]
    row = run(posed(source), peer).rows[1]
    assert row.says == says and not row.wrong and row.held_to == "float64, by definition", row
    assert len(row.errors) == 2 and max(row.errors) < 1e-9
    assert row.forward and row.both and row.flops


def test_a_peer_takes_groups_of_heads() -> None:
    problem = posed(EXAMPLES / "mamba2.ctr", heads={"B": 2, "C": 2})
    ours, *others = run(problem, "mamba", "fla").rows
    assert ours.forward and all(not row.wrong and row.forward for row in others), others


def test_what_gets_no_gradient_is_said() -> None:
    row = run(posed(EXAMPLES / "retention.ctr"), "fla").rows[1]
    assert row.note == "no gradient of gamma" and row.both


def test_names_mean_nothing() -> None:
    text = (EXAMPLES / "mamba2.ctr").read_text().replace("layer ssd", "layer other")
    for name, other in (
        ("A_log", "u"),
        ("dt_bias", "shift"),
        ("dt", "d"),
        ("step", "e"),
        ("X", "W"),
        ("D *", "skip *"),
        ("param D", "param skip"),
    ):
        text = text.replace(name, other)
    row = run(posed(text), "mamba").rows[1]
    assert row.forward and not row.wrong, row


def test_a_step_without_softplus_or_skip_fits_too() -> None:
    text = (EXAMPLES / "mamba2.ctr").read_text().replace("softplus(dt + dt_bias)", "exp(dt)").replace("param dt_bias []\n", "")
    row = run(posed(text.replace("output Y + D * X[T, P]", "output Y").replace("param D []\n", "")), "mamba").rows[1]
    assert row.forward and not row.wrong, row


WINDOW = "layer l\ninput K [S, N]\ninput V [S, P]\ninput Q [T, N]\noutput contract(TN, SN, SP, TS -> TP)(Q, K, V, window(4))\n"
MISFITS: dict[str, tuple[str | Path, str, str]] = {
    "channel gates": (EXAMPLES / "gla.ctr", "fla", "its gates differ between channels"),
    "delta rule": (EXAMPLES / "gated_delta.ctr", "fla", "it is no contraction of a query"),
    "window": (WINDOW, "fla", "its mask is not causal with scalar gates alone"),
    "reversed": (simple("reverse(causal())"), "fla", "its mask is turned or scaled"),
    "shifted": (simple("semiseparable(log = G, shift = 1)"), "fla", "its mask is not causal"),
    "sum": (simple("causal() + decay(g)"), "fla", "its mask is a sum of 2 products"),
    "no value": (simple(CAUSAL, "contract(TN, SN, TS -> T)(Q, K, {mask})"), "sdpa", "the layer has 0 masked contractions of a query"),
    "two": (simple(CAUSAL, "contract(TN, SN, SP, TS -> TP)(Q, K, V, {mask}) * contract(TN, SN, TS -> T)(Q, K, decay(g))"), "fla", "second"),
    "not a step": (EXAMPLES / "retention.ctr", "mamba", "its gate is not the exp of something at each position"),
    "no step": (simple(GATED), "mamba", "its value is not the gate's step times an input"),
    "another step": (
        simple("semiseparable(log = 2 * G)", "contract(TN, SN, SP, TS -> TP)(Q, K, a * V, {mask})"),
        "mamba",
        "the log of its gate",
    ),
    "complex": (EXAMPLES / "s4d.ctr", "sdpa", "the layer has 0 masked contractions of a query"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_peer_that_does_not_fit_says_why(name: str) -> None:
    source, peer, says = MISFITS[name]
    answer = fitted(peer, posed(source))
    assert isinstance(answer, str) and says in answer, answer


def test_lengths_that_differ_fit_nobody() -> None:
    assert [fitted(name, posed(simple(CAUSAL), S=50)) for name in PEERS] == ["T and S are not one length"] * len(PEERS)


def test_a_peer_that_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fla, "chunk_simple_gla", None)
    monkeypatch.setattr(mamba, "mamba_chunk_scan_combined", None)
    rows = run(posed(simple(CAUSAL)), "fla", "mamba").rows
    assert [row.note for row in rows[1:]] == ["not installed: pip install flash-linear-attention", "not installed: pip install mamba-ssm"]


def test_a_peer_that_cannot_be_imported_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PEERS, "fla", "contractor.run.peers.nowhere")
    assert "cannot be imported: ModuleNotFoundError" in str(fitted("fla", posed(simple(CAUSAL))))
    with pytest.raises(ArgumentError, match="unknown peer 'other'; there are fla, mamba, sdpa"):
        fitted("other", posed(simple(CAUSAL)))


@pytest.mark.parametrize("factor", [1.001, math.nan])
def test_a_peer_that_disagrees_is_not_timed(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fla, "chunk_linear_attn", lambda *given, **named: (linear_attn(*given, **named)[0] * factor, None))
    ours, row = run(posed(simple(CAUSAL)), "fla").rows
    assert ours.forward and row.wrong_forward and row.wrong_backward and row.forward is row.both is None
    assert row.note == "the output, the gradient of Q, the gradient of K, the gradient of V are off; WRONG, so not timed"


def test_a_peer_whose_gradients_disagree_is_timed_forward_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(q: Tensor, k: Tensor, v: Tensor, **named: Any) -> tuple[Tensor, None]:
        return linear_attn(q, k, v.detach() + (v - v.detach()) * 2, **named)[0], None

    monkeypatch.setattr(fla, "chunk_linear_attn", broken)
    row = run(posed(simple(CAUSAL)), "fla").rows[1]
    assert row.forward and row.both is None and row.wrong_backward and not row.wrong_forward
    assert row.note == "the gradient of V is off; the forward alone is timed"


def test_a_peer_without_a_backward_is_timed_forward_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward_only(q: Tensor, k: Tensor, v: Tensor, **named: Any) -> tuple[Tensor, None]:
        result = linear_attn(q, k, v, **named)[0]
        return Refusing.apply(result), None

    monkeypatch.setattr(fla, "chunk_linear_attn", forward_only)
    row = run(posed(simple(CAUSAL)), "fla").rows[1]
    assert row.forward and row.both is None and len(row.errors) == 1
    assert row.note == "the backward raised RuntimeError: not on this Triton; the forward alone is timed"


class Refusing(torch.autograd.Function):
    """A function whose backward is not there."""

    @staticmethod
    def forward(_saved: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(_saved: Any, *_gradients: Tensor) -> Tensor:
        raise RuntimeError("not on this Triton")


def test_a_peer_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_given: Any, **_named: Any) -> None:
        raise RuntimeError("no such device\nand more")

    monkeypatch.setattr(fla, "chunk_linear_attn", fail)
    row = run(posed(simple(CAUSAL)), "fla").rows[1]
    assert row.note == "raised RuntimeError: no such device" and row.forward is None


def test_sdpa_stands_beside_without_being_compared() -> None:
    problem = posed(EXAMPLES / "mamba2.ctr", heads={"B": 1, "C": 1})
    row = run(problem, "sdpa").rows[1]
    assert row.forward and row.both and row.errors == () and row.note == "another function: numbers not compared"
    assert row.flops == 2 * 4 * 40 * 40 * (8 + 16)


# ---- ours -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every problem counts as too large to be evaluated by definition."""
    monkeypatch.setattr(truth, "small", lambda _problem: False)


def test_every_order_is_held_to_float64_and_timed() -> None:
    table = run(posed(EXAMPLES / "retention.ctr", "float32"), schedules=("chunked", "quadratic", None), first=True)
    assert [row.name for row in table.rows[:2]] == ["chunked", "quadratic"] and [row.chosen for row in table.rows] == [False, False, True]
    for row in table.rows:
        assert row.held_to == "float64, by definition" and 0 < row.errors[0] < 1e-5 and row.errors[1] < 1e-4
        assert row.forward and row.both and row.both > row.forward and row.first and row.flops and row.clocks == ("wall",)
        assert row.host is row.memory is None
    assert table.baseline is table.rows[0]


def test_bytes_are_counted_once() -> None:
    table = run(posed(EXAMPLES / "retention.ctr", "float32"))
    rows = 2 * 40 * 4 * 4
    inputs, outputs = rows * (8 + 8 + 16) + 4 * 4, rows * 16
    assert table.bytes_forward == inputs + outputs and table.bytes_both == 2 * (inputs + outputs) + inputs
    assert math.isclose(table.floor, table.bytes_forward / 40e9 * 1e3)


def test_a_refused_order_says_why() -> None:
    table = run(posed(simple("window(8)")), schedules=("chunked", "quadratic"))
    assert table.rows[0].note.startswith("refused: ") and table.rows[0].forward is None
    assert table.rows[1].forward and table.baseline is table.rows[1]


@pytest.mark.usefixtures("large")
def test_what_is_wrong_is_not_timed() -> None:
    problem = posed(simple(CAUSAL))
    other = operator(program_of(simple("decay(log = -1 / 64)")), Options(backend="torch"))
    table = bench(Setting(problem, other, "cpu"), [Order(None, operator(problem.program, Options()))], ["fla"])
    row, peer = table.rows
    assert row.wrong_forward and row.forward is None and row.note.endswith("WRONG, so not timed") and table.baseline is None
    assert peer.wrong_forward and peer.held_to == "float64"  # which is another layer's here


@pytest.mark.usefixtures("large")
def test_a_larger_layer_is_held_to_the_torch_text() -> None:
    for source in (EXAMPLES / "gated_delta.ctr", EXAMPLES / "mamba2.ctr"):
        row = run(posed(source, "float32")).rows[0]
        assert row.held_to == "float64" and 0 < max(row.errors) < 1e-4 and row.forward


@pytest.mark.usefixtures("large")
def test_a_long_sequence_is_held_to_float64_on_a_shorter_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "ENTRIES", 2 * 4 * 10 * (8 + 8 + 16) + 4)
    table = run(posed(EXAMPLES / "retention.ctr", "float32"), schedules=("chunked", "quadratic"))
    assert [row.held_to for row in table.rows] == ["float64 at T=10"] * 2 and all(row.forward for row in table.rows)


@pytest.mark.usefixtures("large")
def test_a_long_sequence_is_held_to_our_first_row_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "ENTRIES", 2 * 4 * 10 * (8 + 8 + 16) + 4)
    problem = posed(EXAMPLES / "retention.ctr", "float32")
    right = operator(problem.program, Options())

    class Drifting:
        """Right on short sequences alone."""

        steps = right.steps

        def __call__(self, **operands: Tensor) -> Any:
            return right(**operands) * (1 if operands["Q"].shape[1] < 40 else 1.01)

    orders = [Order("quadratic", right), Order("chunked", Drifting())]  # type: ignore[arg-type]
    first, second = bench(Setting(problem, right, "cpu"), orders, []).rows
    assert first.forward and second.wrong and second.held_to == "our first" and second.forward is None


@pytest.mark.usefixtures("large")
def test_peers_are_held_to_ours_where_float64_was_on_a_shorter_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "ENTRIES", 2 * 4 * 10 * (8 + 8 + 16) + 4)
    rows = run(posed(EXAMPLES / "retention.ctr", "float32"), "fla").rows
    assert [row.held_to for row in rows] == ["float64 at T=10", "ours"] and rows[1].forward and not rows[1].wrong


@pytest.mark.usefixtures("large")
def test_wrong_gradients_of_ours_leave_the_forward_timed() -> None:
    problem = posed(simple(CAUSAL))
    right = operator(problem.program, Options())

    class Turned:
        """Right forward, and twice the gradient of V."""

        steps = right.steps

        def __call__(self, **operands: Tensor) -> Any:
            return right(**operands | {"V": 2 * operands["V"] - operands["V"].detach()})

    order = Order("quadratic", Turned())  # type: ignore[arg-type]
    row = bench(Setting(problem, right, "cpu"), [order], []).rows[0]
    assert row.forward and row.both is None and row.wrong and row.note == "the gradient of V is off; the forward alone is timed"


@pytest.mark.usefixtures("large")
def test_a_layer_that_cannot_be_shortened_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "ENTRIES", 0)
    row = run(posed(EXAMPLES / "retention.ctr")).rows[0]
    assert row.errors == () and row.note == "numbers not compared" and row.forward


def test_an_order_that_takes_too_long_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contractor.run.bench.PATIENCE", 0.0)
    rows = run(posed(EXAMPLES / "retention.ctr"), schedules=("entrywise", None)).rows
    assert rows[0].note.startswith("not run: the plan expects ") and rows[0].forward is None and rows[1].forward


def test_clocks_on_a_cpu() -> None:
    calls: list[int] = []
    assert measured(lambda: calls.append(0), "cpu").clock == "wall" and len(calls) > 3
    assert host_microseconds(lambda: None, "cpu") is None and beyond(tuple, "cpu") is None


class Event:
    """Stands for a CUDA event: each is a millisecond later than the one before."""

    now = 0.0

    def __init__(self, **_named: Any) -> None:
        self.at = 0.0

    def record(self) -> None:
        Event.now += 1.0
        self.at = Event.now

    def elapsed_time(self, end: Event) -> float:
        return end.at - self.at


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the clocks ask of a GPU."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", Event)


@pytest.mark.usefixtures("gpu")
def test_graphs_are_replayed_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "do_bench_cudagraph", lambda call, rep, return_mode: 0.25 if return_mode == "median" and rep else call())
    assert measured(lambda: None, "cuda") == timing.Measured(0.25, "graph")


@pytest.mark.usefixtures("gpu")
def test_what_cannot_be_captured_is_timed_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_given: Any, **_named: Any) -> float:
        raise RuntimeError("operation not permitted when stream is capturing")

    for clock in (refused, None):
        monkeypatch.setattr(timing, "do_bench_cudagraph", clock)
        assert measured(lambda: None, "cuda") == timing.Measured(1.0, "events")
    monkeypatch.setattr(timing, "do_bench_cudagraph", lambda *_given, **_named: 0.25)
    monkeypatch.setattr(timing, "LONG", -1.0)
    assert measured(lambda: None, "cuda").clock == "events"
    found = host_microseconds(lambda: None, "cuda")
    assert found is not None and found > 0


@pytest.mark.usefixtures("gpu")
def test_memory_is_what_is_wanted_beyond_what_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 1000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 1500)
    one = torch.zeros(25)
    assert beyond(lambda: (one, one[:5], None), "cuda") == 400
    assert beyond(lambda: (torch.zeros(200),), "cuda") == 0


# ---- sweeps ---------------------------------------------------------------------------------------------------------------------


def test_lines_cross_where_they_do() -> None:
    slow, fast = (
        Line("square", True, ((1, 1.0), (4, 16.0), (16, 256.0))),
        Line("line", True, ((1, 8.0), (4, 32.0), (16, 128.0), (64, 512.0))),
    )
    (one,) = crossings(slow, fast)
    assert (one.before, one.behind) == ("square", "line") and math.isclose(one.size, 8.0) and math.isclose(one.milliseconds, 64.0)
    (other,) = crossings(fast, slow)
    assert other == one
    assert list(crossings(slow, slow)) == []


def test_lines_of_two_peers_are_not_crossed() -> None:
    points = (((1, 1.0), (4, 16.0)), ((1, 2.0), (4, 8.0)))
    own, peer, other = Line("a", True, points[0]), Line("b", False, points[1]), Line("c", False, points[0])
    assert [(one.before, one.behind) for one in crossovers([own, peer, other])] == [("a", "b")]


def test_the_planners_choice_does_not_cross_the_orders_it_is_made_of() -> None:
    own = Line("a", True, ((1, 1.0), (4, 16.0)))
    choice = Line("planner's choice", True, ((1, 2.0), (4, 8.0)), chosen=True)
    assert crossovers([own, choice]) == () and len(crossovers([choice, replace(own, ours=False)])) == 1


def tables() -> list[Table]:
    """A sweep as if it had been measured."""
    found: list[Table] = []
    for length in (64, 128, 256):
        rows = (
            Row("quadratic", forward=length**2 / 1e4, both=length**2 / 3e3),
            Row("chunked", forward=length / 90, both=length / 30),
            Row("quadratic" if length < 90 else "chunked", chosen=True, forward=length / 95, both=length / 40),
            Row("fla", ours=False, forward=length / 40 if length > 64 else None, both=None),
        )
        found.append(Table(posed(EXAMPLES / "retention.ctr", T=length), "cpu", 4e10, 1, 1, rows))
    return found


def test_a_sweep_as_lines() -> None:
    found = lines(tables(), "T")
    assert [(line.name, line.ours, len(line.points)) for line in found] == [
        ("quadratic", True, 3),
        ("chunked", True, 3),
        ("planner's choice", True, 3),
        ("fla", False, 2),
    ]
    assert [line.name for line in lines(tables(), "T", both=True)] == ["quadratic", "chunked", "planner's choice"]


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "sweep.png"
    plot.plot(tables(), "T", "retention", path)
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000
    plot.plot([replace(table, rows=()) for table in tables()], "T", "nothing", path)


def test_a_line_has_a_gap_where_it_was_not_timed() -> None:
    drawn: list[tuple[list[int], list[float]]] = []

    class Panel:
        """What is drawn on it."""

        def __getattr__(self, name: str) -> Any:
            return (lambda sizes, times, **_: drawn.append((sizes, times))) if name == "plot" else lambda *_, **__: None

    whole, broken = Line("chunked", True, ((2, 1.0), (4, 1.0), (8, 1.0))), Line("quadratic", True, ((2, 2.0), (8, 2.0)))
    plot.draw(Panel(), [whole, broken], "T", "forward")
    assert drawn[0] == ([2, 4, 8], [1.0, 1.0, 1.0])
    assert drawn[1][0] == [2, 4, 8] and math.isnan(drawn[1][1][1])


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plot, "Figure", None)
    with pytest.raises(ArgumentError, match=r"pip install 'contractor\[plot\]'"):
        plot.plot(tables(), "T", "retention", tmp_path / "sweep.png")


def test_neither_matplotlib_nor_a_peer_is_imported_unasked() -> None:
    names = ("matplotlib", "contractor.run.peers.fla", "contractor.run.plot")
    code = f"import sys, contractor.cli; print([name for name in {names} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=EXAMPLES.parent)
    assert said.stdout == "[]\n"
