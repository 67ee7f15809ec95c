"""The gated delta rule: a fast-weight memory that erases what a key held before it writes (Yang et al., 2024).

Crossing a position multiplies the state by diag(exp g) - beta k k^T: a matrix, written `semiseparable(log = G) * delta(beta, k)`. Both
factors are ordinary masks, and so is their product. Entries of such a mask are matrices, so there are no scores: the state is carried.
"""

from pathlib import Path

import torch

import contractor

op = contractor.compile(Path(__file__).with_name("gated_delta.ctr"))
print(op.plan(B=2, T=2048, H=16, N=128, P=128, dtype="bfloat16", machine="h200"))

torch.manual_seed(0)
queries, keys, values = (torch.randn(1, 40, 2, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
strengths = torch.rand(1, 40, 2, dtype=torch.float64)
gates = -torch.rand(1, 40, 2, dtype=torch.float64)
outputs = op(Q=queries, K=keys, V=values, beta=strengths, G=gates)
outputs.square().sum().backward()

state = torch.zeros(1, 2, 8, 8, dtype=torch.float64)
for position in range(40):
    query, key = (torch.nn.functional.normalize(x[:, position], dim=-1) for x in (queries, keys))
    beta, fade = strengths[:, position, :, None], gates[:, position, :, None, None].exp()
    state = fade * state
    held = torch.einsum("bhn,bhnp->bhp", key, state)
    state = state + torch.einsum("bhn,bhp->bhnp", key, beta * (values[:, position] - held))
    torch.testing.assert_close(outputs[:, position], torch.einsum("bhn,bhnp->bhp", query, state) / 8**0.5)
print("agrees with erase and write by hand; |dK| =", round(keys.grad.norm().item(), 4))
