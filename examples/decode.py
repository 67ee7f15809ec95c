"""Serving a layer, Mamba-2's: prompts are read packed into a pool of states, then each step updates the pool where it is.

What a sequence has read is one state of fixed size. A pool keeps those of all users; `slots` says which one each sequence of a call
has, -1 is padding. A whole sequence, its parts one after the other, and step by step come out alike.
"""

from pathlib import Path

import torch

import contractor

op = contractor.compile(Path(__file__).with_name("mamba2.ctr"))
print(op.plan(B=128, T=1, H=80, N=128, P=64, heads={"C": 1, "B": 1}, pooled=True, machine="h200"))

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
H, N, P = 8, 128, 64
params = {"A_log": torch.rand(H).add(1).log(), "dt_bias": torch.randn(H) - 4, "D": torch.ones(H)}
params = {name: tensor.to(device) for name, tensor in params.items()}


def tokens(batch: int, length: int) -> dict[str, torch.Tensor]:
    """What the projections before the layer make of so many tokens; C and B carry one head, which all read."""
    shapes = {"C": (1, N), "B": (1, N), "X": (H, P), "dt": (H,)}
    return {name: torch.randn(batch, length, *shape, device=device) for name, shape in shapes.items()}


with torch.inference_mode():
    # Prefill: three prompts lie end to end in a batch of 1, and sequence i leaves its state at slots[i].
    pool = op.pool(1024, device=device, H=H, N=N, P=P)
    slots, bounds = torch.tensor([5, 900, 17], device=device), torch.tensor([0, 70, 73, 202], device=device)
    prompts = tokens(1, 202)
    read, _ = op(**prompts, **params, cu_seqlens=bounds, initial_state=pool, slots=slots, return_state=True)
    print("prompts:", tuple(read.shape), "positions in the pool:", pool.positions[slots].tolist())

    # Decode: a token for each sequence at a time, in a batch of four of which the last is padding.
    padded, answers, steps = torch.tensor([5, 900, 17, -1], device=device), tokens(4, 6), []
    for t in range(6):
        output, _ = op.step(pool, **{name: one[:, t] for name, one in answers.items()}, **params, slots=padded)
        steps.append(output)
    print("answers:", tuple(output.shape), "positions in the pool:", pool.positions[slots].tolist())

    # Each user's prompt and answer alone: whole, and in two parts.
    for user, (start, end) in enumerate([(0, 70), (70, 73), (73, 202)]):
        served = torch.cat([read[0, start:end], *(output[user : user + 1] for output in steps)])[None]
        own = {name: torch.cat([prompts[name][:, start:end], answers[name][user : user + 1]], 1) for name in prompts}
        whole, last = op(**own, **params, return_state=True)
        first, state = op(**{name: one[:, :4] for name, one in own.items()}, **params, return_state=True)
        rest = op(**{name: one[:, 4:] for name, one in own.items()}, **params, initial_state=state)
        kept, final = pool[slots[user]].tensors["Y"], last.tensors["Y"]
        for found, wanted in [(served, whole), (torch.cat([first, rest], 1), whole), (kept, final)]:
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)
        print(f"user {user}: {end - start} + 6 positions, off by {(served - whole).abs().max():.0e} of {whole.abs().max():.0f}")

    pool.clear(slots[1])  # the second user leaves: the slot is new again
    print("whole = parts = step by step; a freed slot has", pool.positions[900].item(), "positions")
