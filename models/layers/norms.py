"""Norms of the blocks around mixers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class ScaleNorm(nn.Module):
    """Divide by the root mean square over channels, and multiply by one learned number.

    Nguyen and Salazar, "Transformers without Tears", 2019, as facebookresearch/mega has it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x: (..., channels) -> the same shape."""
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return x * (self.scale * torch.rsqrt(mean_square + 1e-5))


class BatchNorm(nn.BatchNorm1d):
    """Batch norm that also trains on one position, which has no variance.

    One position is normalised by the running statistics, and leaves them as they are.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise packed positions: (positions, channels) -> the same shape."""
        if not self.training or input.numel() != self.num_features:
            return super().forward(input)
        running = (self.running_mean, self.running_var)
        return functional.batch_norm(input, *running, self.weight, self.bias, eps=self.eps)
