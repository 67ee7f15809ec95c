"""RetNet's retention at a 1.3B-like shape: one layer, written as its paper writes it, planned and run.

A head forgets at its own fixed rate, gamma = 1 - 2^(-5 - h). The mask L[t, s] = gamma^(t - s) carries a state, so the layer may be
evaluated by scores (quadratic), position by position (recurrent) or chunk by chunk; the plan prices every order and says which is best.
"""

from pathlib import Path

import torch

import contractor

op = contractor.compile(Path(__file__).with_name("retention.ctr"))
print(op.plan(B=4, T=4096, H=8, N=256, P=512, dtype="bfloat16", machine="h200"))

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
heads, width = 4, 64
queries, keys, values = (torch.randn(2, 200, heads, width, device=device, requires_grad=True) for _ in range(3))
gamma = 1 - 2.0 ** (-5 - torch.arange(heads, device=device))

outputs = op(Q=queries, K=keys, V=values, gamma=gamma)
outputs.square().mean().backward()

# The same by the paper's own recurrence: S <- gamma S + k v, y = q S / sqrt(N).
state = torch.zeros(2, heads, width, width, device=device)
for position in range(200):
    key, value = keys[:, position], values[:, position]
    state = gamma[:, None, None] * state + key[..., :, None] * value[..., None, :]
    by_hand = (queries[:, position, :, None] @ state)[..., 0, :] / width**0.5
    torch.testing.assert_close(outputs[:, position], by_hand, rtol=1e-3, atol=1e-4)
print("agrees with the recurrence; |dQ| =", round(queries.grad.norm().item(), 4))
