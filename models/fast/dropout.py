"""Dropout on a CPU by 16 random bits for each number.

torch draws a float for each number, which takes four times as long. The probability is rounded to
a multiple of 1 / 65,536 below 1, and the scale belongs to the rounded probability.
"""

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
    dropped_levels = min(round(probability * LEVELS), LEVELS - 1)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= dropped_levels - LEVELS // 2
    return cast("Tensor", _Keep.apply(x, kept, LEVELS / (LEVELS - dropped_levels)))


class _Keep(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor, scale: float) -> Tensor:
        kept = kept.view(torch.uint8)  # whose products are three times as fast as those of bool
        ctx.save_for_backward(kept)
        ctx.scale = scale
        return (x * kept).mul_(scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (kept,) = ctx.saved_tensors
        return (gradients[0] * kept).mul_(ctx.scale), None, None
