"""Batch norm over the positions of several processes, on any device.

`torch.nn.SyncBatchNorm` is for GPUs alone, so that what it does could not be tested without.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from lra.runtime.errors import UserError
from models.layers.norms import BatchNorm


class _Gather(Function):
    """Gathers a vector of every process: (numbers,) -> (processes, numbers)."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor) -> Tensor:
        gathered = [torch.empty_like(vector) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, vector)
        return torch.stack(gathered)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> Tensor:
        """Add up what every process has for this one's vector."""
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient)
        return gradient[dist.get_rank()]


class SynchronizedBatchNorm(BatchNorm):
    """Batch norm whose statistics in training are of all processes' positions."""

    is_divided = True
    """Whether each process has other positions; if not, each has all, and nothing is exchanged."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise packed positions: (positions, channels) -> the same shape."""
        if not self.training or not self.is_divided:
            return super().forward(input)
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        count = x.new_full((1,), len(x))
        mean = x.mean(dim=0)
        spread = (x - mean).square().sum(dim=0)
        # (processes, 1 + 2 channels): moments that are merged exactly, whatever the counts.
        found = _Gather.apply(torch.cat([count, mean, spread]))
        assert isinstance(found, Tensor)
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
    """Make the batch norms of a classifier synchronized ones, with the same parameters.

    Raises: UserError for a batch norm within a mixer, whose input may be of any shape.
    """
    for name, module in model.named_modules():
        if not isinstance(module, _BatchNorm):
            continue
        if ".mixer." in name:
            raise UserError(
                f"{name}: the mixer has a batch norm of its own, which each process of torchrun "
                f"would take over its own examples; use one process, or another norm"
            )
        module.__class__ = SynchronizedBatchNorm
