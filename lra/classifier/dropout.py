"""Dropout that does not wait for its random numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from models.ops.reference import reference_forms_are_used

LEVELS = 2**16
"""Values of a random number of 16 bits, of which four come from one draw of the generator."""


class Dropout(nn.Module):
    """Zero numbers at random in training, and scale the others so that the mean stays.

    On a CPU torch draws a float for each number; 16 bits do, and cost a quarter. The probability
    is rounded to a multiple of 1 / 65,536, and the scale fits what it is rounded to.

    Args:
        probability: how likely a number becomes zero, in [0, 1).
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def extra_repr(self) -> str:
        """Show the probability."""
        return str(self.probability)

    def forward(self, x: Tensor) -> Tensor:
        """Drop numbers of x, of any shape."""
        if not self.training or self.probability == 0:
            return x
        if x.device.type != "cpu" or reference_forms_are_used():
            return functional.dropout(x, self.probability)
        dropped_levels = round(self.probability * LEVELS)
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= dropped_levels - LEVELS // 2
        result = _Keep.apply(x, kept, LEVELS / (LEVELS - dropped_levels))
        assert isinstance(result, Tensor)
        return result


class _Keep(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor, scale: float) -> Tensor:
        kept = kept.view(torch.uint8)  # whose products are three times as fast as those of bool
        ctx.save_for_backward(kept)
        ctx.scale = scale
        return (x * kept).mul_(scale)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        return (gradients[0] * kept).mul_(ctx.scale), None, None
