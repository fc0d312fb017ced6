"""Kernels whose spectrum is multiplied by a power of the frequency."""

from __future__ import annotations

import torch
from torch import Tensor

from models.ops.toeplitz import LagKernel


def spectral_tilt(kernels: Tensor, exponent: Tensor) -> LagKernel:
    """Multiply the spectrum of kernels by (1 + f) ** exponent, f the frequency in [0, 1/2].

    The spectrum is that of circulant matrices of twice the length. The published code multiplies
    the spectrum of the output instead. The filter has zero phase, so it is not causal.

    Args:
        kernels: (2, channels, length), for lags 0, 1, ... and for lags -1, -2, ...
        exponent: (channels,).
    Returns: a kernel of all lags of the length.
    """
    length = kernels.shape[-1]
    response = torch.fft.rfft(torch.cat([kernels[0], kernels[1].flip(-1)], dim=-1))
    steps = torch.arange(length + 1, dtype=response.real.dtype, device=response.device)
    tilted = response * (1 + steps / (2 * length)) ** exponent[:, None]
    circle = torch.fft.irfft(tilted, n=2 * length)
    return LagKernel(torch.cat([circle[:, length + 1 :], circle[:, :length]], dim=1), 1 - length)
