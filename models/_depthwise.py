"""Short convolutions, one filter per channel."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def depthwise_convolution(x: Tensor, taps: Tensor, first_lag: int) -> Tensor:
    """Compute y[i] = sum over lags of taps[lag] * x[i - lag], O(length * taps).

    Equal to a Toeplitz matrix of few diagonals. In single precision at least: a sum over
    positions, like the transforms, and PyTorch's convolution in bfloat16 does not end on some
    CPUs for 16 channels or fewer.

    Args:
        x: (batch, length, channels).
        taps: (num_taps, channels), for lags first_lag, first_lag + 1, ...
        first_lag: at most 0, and not so low that lag 0 is left out.
    Returns: (batch, length, channels).
    """
    length, channels = x.shape[1:]
    last_lag = first_lag + taps.shape[0] - 1
    margin = max(last_lag, -first_lag)
    # As a picture of height 1 whose channels come last in memory: x needs no transposing.
    working = torch.promote_types(torch.float32, x.dtype)
    picture = x.to(working).contiguous().transpose(1, 2).unsqueeze(2)
    filters = taps.to(working).flip(0).T[:, None, None]
    with torch.autocast(x.device.type, enabled=False):
        y = functional.conv2d(picture, filters, padding=(0, margin), groups=channels)
    start = margin - last_lag
    return y[:, :, 0, start : start + length].transpose(1, 2).to(x.dtype)
