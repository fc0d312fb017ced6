"""Dropout of single numbers or of whole channels, with fast random numbers on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from models.ops.reference import reference_forms_are_used

LEVELS = 2**16
"""Number of values of a 16-bit random number; one draw of the generator gives four of them."""


class Dropout(nn.Module):
    """Zero numbers at random in training, and scale the others so that the mean is unchanged.

    On a CPU torch draws a float for each number. Here 16 random bits are drawn, which take a
    quarter of the time. The probability is therefore rounded to a multiple of 1 / 65,536 below 1,
    and the scale belongs to the rounded probability.

    Args:
        probability: probability that a number becomes zero, in [0, 1).
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    @property
    def is_active(self) -> bool:
        """Whether anything is dropped: in training, with a probability above 0."""
        return self.training and self.probability > 0

    def extra_repr(self) -> str:
        """Show the probability."""
        return str(self.probability)

    def forward(self, x: Tensor) -> Tensor:
        """Drop numbers of x, of any shape."""
        if not self.is_active:
            return x
        if x.device.type != "cpu" or reference_forms_are_used():
            return functional.dropout(x, self.probability)
        dropped_levels = min(round(self.probability * LEVELS), LEVELS - 1)
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= dropped_levels - LEVELS // 2
        result = _Keep.apply(x, kept, LEVELS / (LEVELS - dropped_levels))
        assert isinstance(result, Tensor)
        return result


class ChannelDropout(Dropout):
    """Zero channels of whole sequences at random in training, and scale the others.

    Published code calls this tied dropout: all positions of a sequence share one random draw.
    """

    def factors(self, sequences: int, x: Tensor) -> Tensor:
        """Draw the random factors of the channels of each sequence.

        Args:
            x: (..., channels), for the number of channels, type and device.
        Returns: (sequences, channels), 0 or the scale.
        """
        return super().forward(x.new_ones(sequences, x.shape[-1]))

    def forward(self, x: Tensor) -> Tensor:
        """Drop channels of x: (batch, length, channels)."""
        if not self.is_active:
            return x
        return x * self.factors(len(x), x)[:, None]


def build_dropout(probability: float, *, tied: bool) -> Dropout:
    """Build the dropout of single numbers, or of whole channels (tied)."""
    return ChannelDropout(probability) if tied else Dropout(probability)


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
