"""S4D: a diagonal, complex, time-invariant state space (Gu et al., 2022).

Continuous A and B are discretised by zero-order hold inside the spec, and the mask decay(Abar) has both axes of the state, [N, P]. The
same layer is one long convolution, and that is what it is compared with here: two orders of evaluation of one contraction.
"""

from math import pi
from pathlib import Path

import torch

import contractor

op = contractor.compile(Path(__file__).with_name("s4d.ctr"))
print(op.plan(B=8, T=1024, H=1, N=32, P=256, dtype="float32", machine="h200"))

torch.manual_seed(0)
length, states, channels = 60, 4, 6
signal = torch.randn(2, length, 1, channels, dtype=torch.float64)
A = torch.complex(torch.full((channels, states), -0.5), pi * torch.arange(states).expand(channels, -1)).to(torch.complex128)
B, C = (torch.randn(channels, states, dtype=torch.complex128) for _ in range(2))
dt, D = torch.rand(channels, dtype=torch.float64) / 8, torch.randn(channels, dtype=torch.float64)
outputs = op(X=signal, A=A, B=B, C=C, dt=dt, D=D)

# The kernel of the convolution, K[lag] = 2 Re(sum over n of C Bbar Abar^lag), and the convolution by FFT.
Abar = (dt[:, None] * A).exp()
Bbar = (Abar - 1) / A * B
powers = Abar ** torch.arange(length)[:, None, None]
kernel = 2 * (C * Bbar * powers).sum(-1).real
spectrum = torch.fft.rfft(kernel, 2 * length, dim=0) * torch.fft.rfft(signal[:, :, 0], 2 * length, dim=1)
by_hand = torch.fft.irfft(spectrum, 2 * length, dim=1)[:, :length] + D * signal[:, :, 0]
torch.testing.assert_close(outputs[:, :, 0], by_hand)
print("agrees with the convolution by FFT")
