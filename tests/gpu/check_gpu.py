"""On a GPU: the numbers of real layers first, against float64 and against the peers that are installed; then times.

    python tests/gpu/check_gpu.py [numbers] [peers] [states] [times] [a layer or a case of states, by part of its name]

Outputs are checked on fresh random inputs, three times over, bit for bit equal on repetition. Peers (flash-linear-attention, mamba_ssm)
are compared where they can be imported; nothing here builds or fetches them. Exits 1 if any number is out of bounds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton
from torch import Tensor

import contractor

EXAMPLES = Path(__file__).parents[2] / "examples"
FORWARD, BACKWARD = 5e-3, 1e-2  # relative error of bfloat16 against float64
COPY = 4.27e12  # bytes/s of a device-to-device copy on an H200
failures: list[str] = []


def error(got: Tensor, wanted: Tensor) -> float:
    """‖got − wanted‖ / ‖wanted‖."""
    return float((got.double() - wanted.double()).norm() / wanted.double().norm())


def verdict(name: str, figure: float, bound: float) -> None:
    """Prints one comparison; NaN never passes."""
    good = figure <= bound
    if not good:
        failures.append(name)
    print(f"{'ok  ' if good else 'FAIL'} {name:58} {figure:.1e}  (at most {bound:.0e})", flush=True)


# ---- layers ---------------------------------------------------------------------------------------------------------------------


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """A standard normal tensor on the GPU."""
    return torch.randn(*shape, device="cuda", dtype=dtype)


def mamba2(batch: int = 1, length: int = 2048) -> dict[str, Tensor]:
    """Mamba-2's layer at its 2.7B shape: 80 heads of 64, state 128, one group for B and C."""
    heads = 80
    return {
        "C": normal(batch, length, 1, 128),
        "B": normal(batch, length, 1, 128),
        "X": normal(batch, length, heads, 64),
        "dt": normal(batch, length, heads, dtype=torch.float32),
        "A_log": torch.rand(heads, device="cuda").mul(15).add(1).log(),
        "dt_bias": normal(heads, dtype=torch.float32) - 4,
        "D": normal(heads, dtype=torch.float32),
    }


def retention(batch: int = 1, length: int = 2048) -> dict[str, Tensor]:
    """RetNet at a 1.3B-like shape: 8 heads, keys of 256, values of 512."""
    gamma = 1 - 2.0 ** (-5.0 - torch.arange(8, device="cuda", dtype=torch.float32))
    return {"Q": normal(batch, length, 8, 256), "K": normal(batch, length, 8, 256), "V": normal(batch, length, 8, 512), "gamma": gamma}


def linear_attention(batch: int = 1, length: int = 2048) -> dict[str, Tensor]:
    """Linear attention at a 1.3B-like shape: 16 heads of 128."""
    return {"Q": normal(batch, length, 16, 128), "K": normal(batch, length, 16, 128), "V": normal(batch, length, 16, 128)}


def gla(batch: int = 1, length: int = 2048, heads: int = 8) -> dict[str, Tensor]:
    """Gated linear attention: a gate for each key channel, as FLA's layer makes it."""
    found = linear_attention(batch, length)
    tensors = {name: one[:, :, :heads].contiguous() for name, one in found.items()}
    gate = torch.nn.functional.logsigmoid(normal(batch, length, heads, 128, dtype=torch.float32)) / 16
    return {**tensors, "G": gate}


def gated_delta(batch: int = 1, length: int = 2048, heads: int = 8) -> dict[str, Tensor]:
    """The gated delta rule."""
    tensors = {name: normal(batch, length, heads, 128) for name in "QKV"}
    gate = torch.nn.functional.logsigmoid(normal(batch, length, heads, dtype=torch.float32) + 2)
    return {**tensors, "beta": normal(batch, length, heads, dtype=torch.float32).sigmoid(), "G": gate}


LAYERS: dict[str, Callable[[], dict[str, Tensor]]] = {
    "mamba2": mamba2,
    "retention": retention,
    "linear_attention": linear_attention,
    "gla": gla,
    "gated_delta": gated_delta,
}
ORDERS = {"gla": ("chunked", "recurrent"), "gated_delta": ("chunked", "recurrent")}


def numbers(name: str, schedule: str, seed: int) -> None:
    """One layer in one order, forward and backward, against the same operator in float64 on the GPU (by the torch text)."""
    torch.manual_seed(seed)
    tensors = LAYERS[name]()
    op = contractor.compile(EXAMPLES / f"{name}.ctr", schedule=schedule)
    exact = contractor.compile(EXAMPLES / f"{name}.ctr", backend="torch", schedule="chunked")
    leaves = {key: tensor.clone().requires_grad_() for key, tensor in tensors.items()}
    got = op(**leaves)
    gradient = torch.randn_like(got)
    gradients = torch.autograd.grad(got, list(leaves.values()), gradient)
    again = op(**tensors)
    wide = {key: tensor.double().requires_grad_() for key, tensor in tensors.items()}
    wanted = exact(**wide)
    wanted_gradients = torch.autograd.grad(wanted, list(wide.values()), gradient.double())
    verdict(f"{name} {schedule} forward", error(got, wanted), FORWARD)
    verdict(f"{name} {schedule} bitwise repeatable", float((again != got.detach()).sum()), 0.0)
    for key, one, other in zip(leaves, gradients, wanted_gradients, strict=True):
        verdict(f"{name} {schedule} gradient of {key}", error(one, other), BACKWARD)


def gated(batch: int, length: int, heads: int, inner: int, outer: int, strength: float = 2.0) -> dict[str, Tensor]:
    """Query, key, value and a log gate."""
    gate = torch.nn.functional.logsigmoid(normal(batch, length, heads, dtype=torch.float32) + strength)
    keys = {name: normal(batch, length, heads, inner) for name in "QK"}
    return {**keys, "V": normal(batch, length, heads, outer), "G": gate}


def cut(tensors: dict[str, Tensor], first: int, end: int) -> dict[str, Tensor]:
    """Some positions of the operands that have them."""
    return {key: one[:, first:end] if one.dim() > 1 else one for key, one in tensors.items()}


def with_states(
    op: contractor.Operator, tensors: dict[str, Tensor], before: Tensor, arrived: tuple[Tensor, Tensor], packed: dict[str, Tensor]
) -> list[Tensor]:
    """The result, the final state, the gradients of all operands and of the initial state."""
    leaves = {key: one.clone().requires_grad_() for key, one in tensors.items()}
    start = before.clone().requires_grad_()
    result, state = op(**leaves, initial_state=start, return_state=True, **packed)
    (final,) = state.tensors.values()
    gradients = [one.to(like.dtype) for one, like in zip(arrived, (result, final), strict=True)]
    return [result.detach(), final.detach(), *torch.autograd.grad([result, final], [*leaves.values(), start], gradients)]


STATES = {
    "a state in and out": (2, 1000, 4, 128, 128, None),
    "few heads, segments": (1, 8192, 2, 128, 128, None),
    "narrow and uneven": (2, 333, 3, 72, 40, None),
    "packed": (1, 3000, 4, 128, 64, (0, 1, 1, 700, 701, 1500, 2999, 3000, 3000)),
    "packed, wide": (1, 1500, 2, 256, 256, (0, 700, 1500)),
}


def states(name: str, kind: str, strength: float = 2.0) -> None:
    """Forward and backward with states at both ends, whole and in two parts, against float64; then the last positions step by step."""
    *shape, bounds = STATES[name]
    batch, length, heads, inner, outer = shape
    torch.manual_seed(5)
    text = {"gated": GATED, "fixed": FIXED, "causal": CAUSAL}[kind]
    op, exact = contractor.compile(text), contractor.compile(text, backend="torch", schedule="chunked")
    tensors = gated(batch, length, heads, inner, outer, strength)
    if kind != "gated":
        del tensors["G"]
    if kind == "fixed":
        tensors["g"] = 1 - 2.0 ** (-3.0 - torch.arange(heads, device="cuda"))
    packed = {} if bounds is None else {"cu_seqlens": torch.tensor(bounds, device="cuda", dtype=torch.int32)}
    before = torch.randn(batch if bounds is None else len(bounds) - 1, heads, inner, outer, device="cuda")
    arrived = normal(batch, length, heads, outer), torch.randn_like(before)
    found = with_states(op, tensors, before, arrived, packed)
    wide = with_states(exact, {key: one.double() for key, one in tensors.items()}, before.double(), arrived, packed)
    for part, one, other in zip(("result", "final state", *tensors, "initial state"), found, wide, strict=True):
        verdict(f"{name} {kind} {part}", error(one, other), FORWARD if part in ("result", "final state") else BACKWARD)
    again = with_states(op, tensors, before, arrived, packed)
    verdict(f"{name} {kind} bitwise repeatable", float(sum((one != two).sum() for one, two in zip(found, again, strict=True))), 0.0)
    if bounds is None:
        half, last = length // 3, length - 3
        parts, state = [], before
        for first, end in ((0, half), (half, last)):
            one, state = op(**cut(tensors, first, end), initial_state=state, return_state=True)
            parts.append(one)
        for place in range(last, length):
            one, state = op.step(state, **cut(tensors, place, place + 1))
            parts.append(one)
        verdict(f"{name} {kind} in parts and steps", error(torch.cat(parts, 1), wide[0]), FORWARD)
        verdict(f"{name} {kind} state after parts and steps", error(state.tensors["output"], wide[1]), FORWARD)


def peers(seed: int) -> None:
    """The same tensors through the peers that are there."""
    torch.manual_seed(seed)
    try:
        from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined
    except ImportError:
        print("mamba_ssm is not installed")
    else:
        x = mamba2()
        a = -x["A_log"].exp()
        theirs = mamba_chunk_scan_combined(x["X"], x["dt"], a, x["B"], x["C"], 256, D=x["D"], dt_bias=x["dt_bias"], dt_softplus=True)
        verdict("mamba2 agrees with mamba_ssm", error(contractor.compile(EXAMPLES / "mamba2.ctr")(**x), theirs), 2 * FORWARD)
    try:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        from fla.ops.gla import chunk_gla
        from fla.ops.linear_attn import chunk_linear_attn
        from fla.ops.retention import chunk_retention
    except ImportError:
        print("fla is not installed")
        return
    x = retention()
    theirs = chunk_retention(x["Q"], x["K"], x["V"], scale=256**-0.5)[0]
    verdict("retention agrees with fla", error(contractor.compile(EXAMPLES / "retention.ctr")(**x), theirs), 2 * FORWARD)
    x = linear_attention()
    features = [torch.nn.functional.elu(x[key]) + 1 for key in "QK"]
    theirs = chunk_linear_attn(*features, x["V"], scale=1.0, normalize=True)[0]
    verdict("linear attention agrees with fla", error(contractor.compile(EXAMPLES / "linear_attention.ctr")(**x), theirs), 2 * FORWARD)
    x = gla()
    theirs = chunk_gla(x["Q"], x["K"], x["V"], x["G"])[0]
    verdict("gla agrees with fla", error(contractor.compile(EXAMPLES / "gla.ctr")(**x), theirs), 2 * FORWARD)
    x = gated_delta()
    unit = {key: torch.nn.functional.normalize(x[key].float(), dim=-1).bfloat16() for key in "QK"}
    theirs = chunk_gated_delta_rule(unit["Q"], unit["K"], x["V"], x["G"], x["beta"])[0]
    verdict("gated delta rule agrees with fla", error(contractor.compile(EXAMPLES / "gated_delta.ctr")(**x), theirs), 2 * FORWARD)


# ---- times ----------------------------------------------------------------------------------------------------------------------

CAUSAL = """layer causal
input Q [T, N]
input K [S, N]
input V [S, P]
output contract(TN, SN, SP, TS -> TP)(Q, K, V, causal())
"""
GATED = CAUSAL.replace("layer causal", "layer gated").replace("output", "input G [S]\noutput").replace("causal()", "semiseparable(log = G)")
PROMISED = GATED.replace("input G [S]", "input G [S] in [-50, 0]").replace("gated", "promised")
FIXED = CAUSAL.replace("layer causal", "layer fixed").replace("output", "param g [] in [0.5, 1]\noutput").replace("causal()", "decay(g)")
SHAPES = ((4, 4096, 32, 128, 128), (8, 2048, 32, 64, 64), (4, 4096, 64, 128, 64), (1, 32768, 16, 128, 128))


def milliseconds(call: Callable[[], object]) -> float:
    """The median on the device: replayed from a CUDA graph, so that the host's time does not count."""
    return float(triton.testing.do_bench_cudagraph(call, rep=60, return_mode="median"))


def host_microseconds(call: Callable[[], object]) -> float:
    """What one warm call costs on the host."""
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(50):
        call()
    spent = time.perf_counter() - begin
    torch.cuda.synchronize()
    return spent / 50 * 1e6


def timed(shape: tuple[int, ...], text: str, schedule: str) -> str:
    """Forward, and forward + backward, of one layer in one order."""
    batch, length, heads, inner, outer = shape
    op = contractor.compile(text, schedule=schedule)
    torch.manual_seed(0)
    tensors = {"Q": normal(batch, length, heads, inner), "K": normal(batch, length, heads, inner), "V": normal(batch, length, heads, outer)}
    if "input G" in text:
        tensors["G"] = torch.nn.functional.logsigmoid(normal(batch, length, heads, dtype=torch.float32) + 2)
    if "param g" in text:
        tensors["g"] = 1 - 2.0 ** (-5.0 - torch.arange(heads, device="cuda") % 8)
    floor = 2 * batch * length * heads * (2 * inner + 2 * outer) / COPY * 1e3
    forward = milliseconds(lambda: op(**tensors))
    leaves = {key: tensor.clone().requires_grad_() for key, tensor in tensors.items()}
    gradient = torch.randn_like(tensors["V"])
    both = milliseconds(lambda: torch.autograd.grad(op(**leaves), list(leaves.values()), gradient))
    host = host_microseconds(lambda: op(**tensors))
    return f"{forward:8.3f} ms ({forward / floor:5.2f} × floor)   forward + backward {both:8.3f} ms   host {host:4.0f} µs"


def times() -> None:
    """A table."""
    for shape in SHAPES:
        for text in (CAUSAL, FIXED, PROMISED, GATED):
            name = text.split()[1]
            print(f"{shape!s:28} {name:9} chunked   {timed(shape, text, 'chunked')}", flush=True)
    for length in (256, 1024, 4096):
        for text in (CAUSAL, GATED):
            for schedule in ("chunked", "quadratic", "recurrent"):
                shape = (4, length, 32, 128, 128)
                print(f"{shape!s:28} {text.split()[1]:9} {schedule:9} {timed(shape, text, schedule)}", flush=True)


def main(wanted: list[str]) -> int:
    """Runs the parts asked for, numbers first."""
    parts, only = [one for one in wanted if one in PARTS], [one for one in wanted if one not in PARTS]
    parts = parts or list(PARTS)
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)

    def asked(name: str) -> bool:
        return not only or any(text in name for text in only)

    if "numbers" in parts:
        for seed in range(3):
            for name in filter(asked, LAYERS):
                for schedule in ORDERS.get(name, ("chunked", "quadratic", "recurrent")) if seed == 0 else ("chunked",):
                    numbers(name, schedule, seed)
    if "peers" in parts:
        peers(0)
    if "states" in parts:
        for name in filter(asked, STATES):
            for kind in ("causal", "fixed", "gated"):
                states(name, kind)
            states(name, "gated", strength=8.0 if "segments" in name else -0.5)
    if "times" in parts:
        times()
    print(f"{len(failures)} failed" + (": " + ", ".join(failures) if failures else ""))
    return 1 if failures else 0


PARTS = ("numbers", "peers", "states", "times")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
