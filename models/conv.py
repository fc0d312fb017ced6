"""A short depthwise convolution, a baseline that mixes neighbouring positions only."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lra.models.base import Mixer, MixerContext
from lra.models.ops.toeplitz import depthwise_convolution


class Convolution(Mixer):
    """Depthwise convolution of a given width, O(length * width).

    "On the locality bias and results in the Long Range Arena" (arXiv:2501.14850) compares long
    filters with short ones. The short ones reach most of the accuracy of the long ones.

    Args:
        width: number of taps of each filter; it must be odd unless the mixer is causal.
    Raises: ValueError for an even width that is not causal.
    """

    name = "conv"

    def __init__(
        self, context: MixerContext, *, width: Annotated[int, Field(ge=1, le=2**16)] = 5
    ) -> None:
        super().__init__()
        if width % 2 == 0 and not context.causal:
            raise ValueError(f"width {width} is even, expected as many taps on either side")
        self.first_lag = 0 if context.causal else -(width // 2)
        self.reach = (width - 1 + self.first_lag, -self.first_lag)
        bound = width**-0.5
        self.taps = nn.Parameter(torch.empty(width, context.dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(context.dim))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)
        return depthwise_convolution(x, self.taps.T, self.first_lag) + self.bias.to(x.dtype)
