"""Short convolutions whose channels come last in memory, and gradients of taps by few products."""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

SHORTEST_BLOCK = 16
"""Smallest number of positions in a block, in the gradient of the taps."""
FEW_TAPS = 8
"""Up to this number of taps, the gradient of each tap of a causal filter is a separate sum on a
CPU. On a GPU, which would launch each sum, it is never."""
LAGS_AT_ONCE = 128
"""Up to this number of taps, the gradient of all taps is computed at once, with memory of the order
of its square. A filter with more taps is also cut to the lags that the sequences have."""
CACHED = 2**18
"""Numbers of a product of which such a sum adds up the columns, few enough to stay in the cache."""


def depthwise_convolution(x: Tensor, taps: Tensor, first_lag: int) -> Tensor:
    """See `lra.models.ops.toeplitz.depthwise_convolution`."""
    if taps.shape[1] > LAGS_AT_ONCE:
        length = x.shape[1]
        end = length - first_lag  # one past the tap of the last lag
        dropped = max(0, 1 - length - first_lag)
        taps, first_lag = taps[:, dropped:end], first_lag + dropped
    return cast("Tensor", _Convolve.apply(x, taps, first_lag))


class _Convolve(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, taps: Tensor, first_lag: int) -> Tensor:
        ctx.save_for_backward(x, taps)
        ctx.first_lag = first_lag
        return _convolve(x, taps, first_lag)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, taps = ctx.saved_tensors
        of_x = of_taps = None
        if ctx.needs_input_grad[0]:
            last_lag = ctx.first_lag + taps.shape[1] - 1
            of_x = _convolve(gradients[0], taps.flip(1), -last_lag)
        if ctx.needs_input_grad[1]:
            end = ctx.first_lag + taps.shape[1]
            parts = [
                _correlate(gradients[0], x, first, min(LAGS_AT_ONCE, end - first))
                for first in range(ctx.first_lag, end, LAGS_AT_ONCE)
            ]
            # A single part keeps its strides, which set the order that gradients are summed in.
            of_taps = (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)).to(taps.dtype)
        return of_x, of_taps, None


def _convolve(x: Tensor, taps: Tensor, first_lag: int) -> Tensor:
    length, channels = x.shape[1:]
    last_lag = first_lag + taps.shape[1] - 1
    margin = max(last_lag, -first_lag)
    # As an image of height 1 whose channels come last in memory: x needs no transposing.
    working = torch.promote_types(torch.float32, x.dtype)
    image = x.to(working).contiguous().transpose(1, 2).unsqueeze(2)
    filters = taps.to(working).flip(1)[:, None, None]
    with torch.autocast(x.device.type, enabled=False):
        y = functional.conv2d(image, filters, padding=(0, margin), groups=channels)
    start = margin - last_lag
    return y[:, :, 0, start : start + length].transpose(1, 2).to(x.dtype)


def _correlate(y: Tensor, x: Tensor, first_lag: int, num_lags: int) -> Tensor:
    """Sum y[i] x[i - lag] over i and the batch, by products of blocks.

    With x shifted by the last lag, a lag is the last one less an offset o, and its sum is that
    of y[i] x[i + o]. Each block of y is multiplied by the same block of x and by the next one;
    the sums are along the diagonals of these products, added over all blocks.

    Returns: (channels, num_lags) for lags first_lag, first_lag + 1, ..., of which one is less than
        the length.
    """
    shift = max(first_lag, 0) + min(first_lag + num_lags - 1, 0)  # 0 if lag 0 is one of them
    if shift:
        kept = x.shape[1] - abs(shift)
        y, x = (y[:, -kept:], x[:, :kept]) if shift > 0 else (y[:, :kept], x[:, -kept:])
        first_lag -= shift
    batch, length, channels = x.shape
    working = torch.promote_types(torch.float32, x.dtype)
    if num_lags <= FEW_TAPS and first_lag == 0 and x.device.type == "cpu":
        return _correlate_each_lag(y.to(working), x.to(working), num_lags)
    block = max(SHORTEST_BLOCK, num_lags - 1)
    blocks = -(-(length + num_lags - 1) // block)  # of a row; zeros end it, so rows can be joined
    rows = x.new_zeros(2, channels, batch * blocks + 1, block, dtype=working)
    for row, values, start in zip(rows, (y, x), (0, first_lag + num_lags - 1), strict=True):
        of_sequence = row[:, :-1].view(channels, batch, blocks * block)
        of_sequence[..., start : start + length] = values.permute(2, 0, 1)
    left = rows[0, :, :-1].transpose(1, 2)
    products = torch.cat([left @ rows[1, :, :-1], left @ rows[1, :, 1:]], dim=-1)
    # Entry [r, r + o] of each channel's (block, 2 block) belongs to offset o.
    strides = (products.stride(0), 1, 2 * block + 1)
    diagonals = products.as_strided((channels, num_lags, block), strides)
    return diagonals.sum(dim=-1).flip(1)


def _correlate_each_lag(y: Tensor, x: Tensor, num_lags: int) -> Tensor:
    """Compute `_correlate` for lags 0..num_lags - 1, one by one."""
    length, channels = x.shape[1:]
    sums = x.new_zeros(num_lags, channels)
    rows = max(1, CACHED // max(1, length * channels))
    size = max(1, CACHED // max(1, channels))
    for of_y, of_x in zip(y.split(rows), x.split(rows), strict=True):
        for start in range(0, length, size):
            end = min(start + size, length)
            for lag in range(min(num_lags, end)):
                first = max(start, lag)
                product = of_y[:, first:end] * of_x[:, first - lag : end - lag]
                sums[lag] += product.sum(dim=(0, 1))
    return sums.T
