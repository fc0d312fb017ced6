"""Short convolutions, one filter per channel."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from models.ops.reference import has_fast_form


@has_fast_form("depthwise")
def depthwise_convolution(x: Tensor, taps: Tensor, first_lag: int) -> Tensor:
    """Compute y[i] = sum over lags of taps[lag] * x[i - lag], O(length * taps).

    This is a product with a Toeplitz matrix of few diagonals. It runs in at least single precision,
    like all sums over positions here. Another reason is that PyTorch's convolution in bfloat16
    never returns on some CPUs for 16 channels or fewer.

    Args:
        x: (batch, length, channels).
        taps: (channels, num_taps), for lags first_lag, first_lag + 1, ...
        first_lag: at most 0, and more than -num_taps, so that lag 0 has a tap.
    Returns: (batch, length, channels), in the type of x.
    """
    working = torch.promote_types(torch.float32, x.dtype)
    last_lag = first_lag + taps.shape[1] - 1
    padded = functional.pad(x.to(working).transpose(1, 2), (last_lag, -first_lag))
    filters = taps.to(working).flip(1)[:, None]
    with torch.autocast(x.device.type, enabled=False):
        y = functional.conv1d(padded, filters, groups=x.shape[2])
    return y.transpose(1, 2).to(x.dtype)
