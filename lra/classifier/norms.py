"""Norms of the blocks around mixers."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
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


class BatchNorm(nn.BatchNorm1d):
    """Batch norm that also trains on one position, and on the positions of several processes.

    One position has no variance: it is normalised by the running statistics, and leaves them as
    they are. `torch.nn.SyncBatchNorm` refuses tensors on a CPU, where tests compare several
    processes with one.
    """

    is_synchronized = False
    """Whether statistics in training are of all processes' positions."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise packed positions: (positions, channels) -> the same shape."""
        if self.training and self.is_synchronized:
            return self._normalize_together(input)
        if not self.training or input.numel() != self.num_features:
            return super().forward(input)
        running = (self.running_mean, self.running_var)
        return functional.batch_norm(input, *running, self.weight, self.bias, eps=self.eps)

    def _normalize_together(self, input: Tensor) -> Tensor:
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        sums: Any = _Sum.apply(torch.cat([x.new_full((1,), len(x)), x.sum(dim=0)]))
        total, mean = sums[0], sums[1:] / sums[0]
        spread: Any = _Sum.apply((x - mean).square().sum(dim=0))
        with torch.no_grad():
            assert self.running_mean is not None and self.running_var is not None
            assert self.num_batches_tracked is not None and self.momentum is not None
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean.detach(), self.momentum)
            self.running_var.lerp_(spread.detach() / (total - 1), self.momentum)
        y = (x - mean) * (spread / total + self.eps).rsqrt()
        return (y * self.weight + self.bias).to(input.dtype)
