"""Dropout on a CPU by 16 random bits for each number.

torch draws a float for each number, which takes four times as long. The probability is rounded to
a multiple of 1 / 65,536 below 1, and the scale belongs to the rounded probability.
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

LEVELS = 2**16
"""Number of values of a 16-bit random number; one draw of the generator gives four of them."""


def drop_out(x: Tensor, probability: float) -> Tensor:
    """See `lra.models.layers.basic.drop_out`."""
    if x.device.type != "cpu":
        return functional.dropout(x, probability)
    kept = draw_kept(x.shape, probability, torch.uint8)
    return cast("Tensor", _Keep.apply(x, kept, scale_of_kept(probability)))


def draw_kept(
    shape: Sequence[int],
    probability: float,
    dtype: torch.dtype,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw 0 for numbers that are dropped, and 1 for those kept."""
    count = math.prod(shape)
    draws = torch.empty(-(-count // 4), dtype=torch.int64)
    draws.random_(-(2**63), None, generator=generator)
    numbers = draws.view(torch.int16)[:count].view(shape)
    # bool would take four times as long to write, and three times as long to multiply by.
    kept = torch.empty(shape, dtype=dtype)
    return torch.ge(numbers, _dropped_levels(probability) - LEVELS // 2, out=kept)


def scale_of_kept(probability: float) -> float:
    """Return what numbers that are kept are multiplied by."""
    return LEVELS / (LEVELS - _dropped_levels(probability))


def _dropped_levels(probability: float) -> int:
    return min(round(probability * LEVELS), LEVELS - 1)


class _Keep(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.scale = scale
        return (x * kept).mul_(scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (kept,) = ctx.saved_tensors
        return (gradients[0] * kept).mul_(ctx.scale), None, None
