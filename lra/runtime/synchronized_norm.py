"""Batch norm over the positions of all processes that train one model."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules.batchnorm import _BatchNorm

from common.errors import UserError
from models.layers.basic import BatchNorm


class _Sum(Function):
    """The sum of a vector over all processes; so is its gradient."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor) -> Tensor:
        total = vector.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _Sum.forward(ctx, gradients[0].contiguous())


def _add(vector: Tensor) -> Tensor:
    total = _Sum.apply(vector)
    assert isinstance(total, Tensor)
    return total


class SynchronizedBatchNorm(BatchNorm):
    """Batch norm whose statistics in training are of all processes' positions.

    `torch.nn.SyncBatchNorm` refuses tensors on a CPU, where tests compare several processes with
    one, and cannot be told that a pass is not divided.
    """

    is_divided = True
    """Whether each process has other positions; if not, each has all, and nothing is exchanged."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise packed positions: (positions, channels) -> the same shape."""
        if not self.training or not self.is_divided:
            return super().forward(input)
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        sums = _add(torch.cat([x.new_full((1,), len(x)), x.sum(dim=0)]))
        total, mean = sums[0], sums[1:] / sums[0]
        spread = _add((x - mean).square().sum(dim=0))
        with torch.no_grad():
            assert self.running_mean is not None and self.running_var is not None
            assert self.num_batches_tracked is not None and self.momentum is not None
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean.detach(), self.momentum)
            self.running_var.lerp_(spread.detach() / (total - 1), self.momentum)
        y = (x - mean) * (spread / total + self.eps).rsqrt()
        return (y * self.weight + self.bias).to(input.dtype)


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
