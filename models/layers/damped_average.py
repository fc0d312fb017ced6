"""Damped exponential moving averages of every channel, as one long convolution."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.layers.long_convolution import LongConvolution
from models.layers.recurrence import DiagonalStateSpace
from models.ops.toeplitz import LagKernel
from models.ops.vandermonde import vandermonde_product


class DampedAverage(LongConvolution):
    """Sums of damped exponential moving averages (Ma et al., Mega, ICLR 2023, section 3.1).

    Each channel has several averages with different decays q, whose kernels over lags are
    p beta q ** lag. The channel's kernel is their sum weighted by gamma. With two directions there
    is another kernel for later positions; both include lag 0.

    Args:
        channels: in and out.
        directions: 1 if causal, else 2.
        size: number of averages per channel and direction.
    """

    def __init__(self, *, channels: int, directions: int, size: int) -> None:
        super().__init__()
        self.channels = channels
        shape = directions, channels, size
        self.delta = nn.Parameter(torch.randn(shape) * 0.2)
        self.alpha = nn.Parameter(torch.randn(shape) * 0.2)
        signs = torch.ones(size)
        signs[1::2] = -1
        self.beta = nn.Parameter(signs + torch.randn(shape) * 0.02)
        self.gamma = nn.Parameter(torch.randn(shape))

    def coefficients(self) -> tuple[Tensor, Tensor]:
        """Return the logarithms of q and the weights p beta gamma / sqrt(size).

        Returns: two of (directions, channels, size).
        """
        p = torch.sigmoid(self.delta)
        log_decays = torch.log1p(-p * torch.sigmoid(self.alpha))
        return log_decays, p * self.beta * self.gamma * self.gamma.shape[-1] ** -0.5

    def generate(self, length: int) -> LagKernel:
        """See `LongConvolution.generate`."""
        log_decays, weights = self.coefficients()
        rows = log_decays.flatten(0, 1), weights.flatten(0, 1)[None]
        kernels = vandermonde_product(*rows, length).view(-1, self.channels, length)
        if len(kernels) == 1:
            return LagKernel(kernels[0], 0)
        behind, ahead = kernels
        both = (behind[:, :1] + ahead[:, :1], behind[:, 1:])
        return LagKernel(torch.cat([ahead[:, 1:].flip(-1), *both], dim=-1), 1 - length)

    def recurrence(self) -> DiagonalStateSpace:
        """Return the recurrence of the kernel of lags behind."""
        log_decays, weights = self.coefficients()
        return DiagonalStateSpace(log_decays[0].exp(), weights[0])
