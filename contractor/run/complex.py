"""Complex contractions as real ones: real and imaginary parts lie side by side along the features, the result's parts are
two heads; so are the parts of a complex entrywise factor."""

from __future__ import annotations

import torch
from torch import Tensor


def as_query(query: Tensor) -> Tensor:
    """[B, T, H, N] → [B, T, 2H, 2N] real: head 2h gives the real part of query · key, head 2h + 1 the imaginary part."""
    real, imaginary = parts(query)
    both = torch.stack((torch.cat((real, -imaginary), -1), torch.cat((imaginary, real), -1)), 3)
    return both.flatten(2, 3)


def side_by_side(value: Tensor) -> Tensor:
    """[…, N] → […, 2N] real: real parts, then imaginary parts."""
    return torch.cat(parts(value), -1)


def parts(value: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary part."""
    return (value.real, value.imag) if value.is_complex() else (value, torch.zeros_like(value))


def units(doublings: int, device: torch.device) -> Tensor:
    """What each of 2^doublings heads is multiplied by: i for every imaginary part in it."""
    powers = [bin(index).count("1") for index in range(2**doublings)]
    return torch.tensor([(1, 1j, -1, -1j)[power % 4] for power in powers], dtype=torch.complex128, device=device)


def as_complex(result: Tensor, parts: Tensor, outer: bool) -> Tensor:
    """The kernel's real result [B, T, H · parts, P (2P if outer)] as a complex one [B, T, H, P], in complex64 at least."""
    result = result.to(torch.promote_types(result.dtype, torch.float32))  # there are no complex numbers of 16-bit parts to work with
    left, right = result.tensor_split(2, -1) if outer else (result, torch.zeros_like(result))
    whole = torch.complex(left, right)
    if len(parts) == 1:
        return whole
    return (whole.unflatten(2, (-1, len(parts))) * parts.to(whole.dtype)[:, None]).sum(3)
