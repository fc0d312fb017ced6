"""Forms without atomic additions of operations for which a GPU has no deterministic kernel.

They are used where `torch.use_deterministic_algorithms` forbids torch's own kernels.
"""

import torch
from torch import Tensor
from torch.nn import functional


def must_be_deterministic(x: Tensor) -> bool:
    """Whether operations on x must give the same bits each time, where torch's may not."""
    return x.device.type == "cuda" and torch.are_deterministic_algorithms_enabled()


def cumulative_sum(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Sum up to and including each position along a dimension, in a type or that of x."""
    return (_sum_by_doubling if must_be_deterministic(x) else torch.cumsum)(x, dim, dtype=dtype)


def _sum_by_doubling(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    sums = x.to(dtype or x.dtype).movedim(dim, -1)
    shift = 1
    while shift < sums.shape[-1]:
        sums = sums + functional.pad(sums[..., :-shift], (shift, 0))
        shift *= 2
    return sums.movedim(-1, dim)


def stretch(x: Tensor, factor: int) -> Tensor:
    """Interpolate linearly between numbers, each of which is in the middle of its new positions.

    x is (batch, channels, length), and becomes `factor` times as long.
    """
    if must_be_deterministic(x):
        return _stretch_by_neighbours(x, factor)
    return functional.interpolate(x, scale_factor=float(factor), mode="linear", align_corners=False)


def _stretch_by_neighbours(x: Tensor, factor: int) -> Tensor:
    offset = (torch.arange(factor, dtype=x.dtype, device=x.device) + 0.5) / factor - 0.5
    before = torch.cat([x[..., :1], x[..., :-1]], dim=-1)[..., None]
    after = torch.cat([x[..., 1:], x[..., -1:]], dim=-1)[..., None]
    x = x[..., None]
    stretched = x + offset.clamp(min=0) * (after - x) - offset.clamp(max=0) * (before - x)
    return stretched.flatten(-2)
