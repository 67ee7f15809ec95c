"""Gated linear attention at a 1.3B-like shape: a gate for each channel of the key (Yang et al., 2024).

The mask has an axis of its own, L [T, S, N]: each row of the state fades at its own speed. Scores of a chunk are then no plain product
of query and key, so the plan refuses the one-pass chunked order and says so; the state, and the tiles under it, remain.
"""

from pathlib import Path

import torch

import contractor

op = contractor.compile(Path(__file__).with_name("gla.ctr"))
print(op.plan(B=4, T=2048, H=4, N=256, P=512, dtype="bfloat16", machine="h200"))

torch.manual_seed(0)
queries, keys, values = (torch.randn(2, 80, 2, 16, dtype=torch.float64) for _ in range(3))
gates = torch.nn.functional.logsigmoid(torch.randn(2, 80, 2, 16, dtype=torch.float64)) / 16
gates[:, 40] = -torch.inf  # a reset: nothing before position 40 is seen from there on
outputs = op(Q=queries, K=keys, V=values, G=gates)

state = torch.zeros(2, 2, 16, 16, dtype=torch.float64)
for position in range(80):
    key, value = keys[:, position, :, :, None], values[:, position, :, None, :]
    state = gates[:, position, :, :, None].exp() * state + key * value
    by_hand = (queries[:, position, :, None] @ state)[..., 0, :] / 16**0.5
    torch.testing.assert_close(outputs[:, position], by_hand)
print("agrees with the recurrence, across a reset")
