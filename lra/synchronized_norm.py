"""Batch norm over the positions of several processes, on any device.

`torch.nn.SyncBatchNorm` is for GPUs alone, so that what it does could not be tested without.
"""

from __future__ import annotations

import torch
import torch.distributed.nn.functional as exchange
from torch import Tensor, nn


class SynchronizedBatchNorm(nn.BatchNorm1d):
    """Batch norm whose statistics in training are of all processes' positions."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise packed positions: (positions, channels) -> the same shape."""
        if not self.training:
            return super().forward(input)
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        count = x.new_full((1,), len(x))
        mean = x.mean(dim=0)
        spread = (x - mean).square().sum(dim=0)
        # (processes, 1 + 2 channels): moments that are merged exactly, whatever the counts.
        found = torch.stack(list(exchange.all_gather(torch.cat([count, mean, spread]))))
        counts, means, spreads = found[:, :1], *found[:, 1:].chunk(2, dim=1)
        total = counts.sum()
        mean = (counts * means).sum(dim=0) / total
        spread = (spreads + counts * (means - mean).square()).sum(dim=0)
        self._follow(mean.detach(), spread.detach(), total)
        y = (x - mean) * (spread / total + self.eps).rsqrt()
        return (y * self.weight + self.bias).to(input.dtype)

    @torch.no_grad()
    def _follow(self, mean: Tensor, spread: Tensor, total: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        assert self.momentum is not None
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(spread / (total - 1), self.momentum)


def synchronize_norms(model: nn.Module) -> None:
    """Make every batch norm of a model a synchronized one, with the same parameters."""
    for module in model.modules():
        if type(module) is nn.BatchNorm1d:
            module.__class__ = SynchronizedBatchNorm
