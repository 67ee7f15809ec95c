"""Mamba-2's layer at its published 2.7B shape: 80 heads of 64, state 128, one group for B and C.

B and C carry one head, X and dt all 80: the kernel reads the group's tiles where they are, nothing is repeated in memory. The step
size softplus(dt + dt_bias) and the decay -exp(A_log) are ordinary expressions around the contraction.
"""

from pathlib import Path

import torch

import contractor

op = contractor.compile(Path(__file__).with_name("mamba2.ctr"))
print(op.plan(B=8, T=2048, H=80, N=128, P=64, heads={"C": 1, "B": 1}, dtype="bfloat16", machine="h200"))

torch.manual_seed(0)
on_gpu = torch.cuda.is_available()
batch, length, heads = (8, 2048, 80) if on_gpu else (1, 150, 8)
make = {"device": "cuda", "dtype": torch.bfloat16} if on_gpu else {}
outputs = op(
    C=torch.randn(batch, length, 1, 128, **make),
    B=torch.randn(batch, length, 1, 128, **make),
    X=torch.randn(batch, length, heads, 64, **make),
    dt=torch.randn(batch, length, heads, **make),
    A_log=torch.rand(heads, **{**make, "dtype": torch.float32}).add(1).log(),
    dt_bias=torch.randn(heads, **{**make, "dtype": torch.float32}) - 4,
    D=torch.ones(heads, **{**make, "dtype": torch.float32}),
)
print("Y:", tuple(outputs.shape), outputs.dtype, "finite" if outputs.isfinite().all() else "NOT FINITE")
