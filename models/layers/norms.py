"""Norms of the blocks around mixers."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class RealRows:
    """Which rows of x, (rows, channels), are real: the first ones, of a number on the device."""

    count: Tensor
    """() float64, number of real rows."""
    least: int
    """So many rows are real in any case."""


class BatchNorm(nn.BatchNorm1d):
    """Batch norm that also trains on one position, which has no variance.

    One position is normalised by the running statistics, and leaves them as they are.
    """

    def forward(self, input: Tensor, real: RealRows | None = None) -> Tensor:
        """Normalise packed positions: (positions, channels) -> the same shape.

        Args:
            input: the positions.
            real: the rows that count in training; the others become 0. None: all.
        """
        if self.training and real is not None:
            return self._count_real(input, real)
        if not self.training or input.numel() != self.num_features:
            return super().forward(input)
        running = (self.running_mean, self.running_var)
        return functional.batch_norm(input, *running, self.weight, self.bias, eps=self.eps)

    def _count_real(self, input: Tensor, real: RealRows) -> Tensor:
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        found: Any = _RealBatchNorm.apply(x, self.weight, self.bias, real, self.eps)
        y, mean, variance = found
        with torch.no_grad():
            assert self.running_mean is not None and self.running_var is not None
            assert self.num_batches_tracked is not None and self.momentum is not None
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean, self.momentum)
            unbiased = variance * (real.count / (real.count - 1))
            self.running_var.lerp_(unbiased, self.momentum)
        return y.to(input.dtype)


class _RealBatchNorm(Function):
    """Batch norm by the statistics of the first rows, whose number is on the device.

    All rows that are certainly real are summed as they are; the rest is small. The gradient of rows
    that are not real has to be 0.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 (an autograd function takes positional arguments alone)
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, real: RealRows, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result, and mean and biased variance, (channels,)."""
        count, least = real.count.to(x.dtype), real.least
        head, tail = x[:least], x[least:]
        more = count - least
        is_empty = (torch.arange(len(tail), device=x.device) >= more)[:, None]
        variance, mean = torch.var_mean(head, dim=0, correction=0)
        # The statistics of both parts, joined (Chan, Golub and LeVeque, 1979).
        tail_mean = tail.masked_fill(is_empty, 0).sum(dim=0) / more.clamp(min=1)
        spread = (tail - tail_mean).masked_fill(is_empty, 0).square().sum(dim=0)
        shift, share = tail_mean - mean, more / count
        mean = mean + share * shift
        variance = (least * variance + spread) / count + share * (1 - share) * shift.square()
        y, *saved = torch.native_batch_norm(x, weight, bias, mean, variance, False, 0.0, eps)
        y[least:].masked_fill_(is_empty, 0)
        ctx.save_for_backward(x, weight, mean, variance, is_empty, count, *saved)
        ctx.least, ctx.eps = least, eps
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, weight and bias."""
        x, weight, mean, variance, is_empty, count, *saved = ctx.saved_tensors
        gradient = gradients[0]
        _, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            gradient, x, weight, mean, variance, *saved, False, ctx.eps, [False, True, True]
        )
        inverse = (variance + ctx.eps).rsqrt()
        scale = weight * inverse
        slope = -scale * inverse * of_weight / count
        offset = -scale * of_bias / count - slope * mean
        of_x = torch.addcmul(offset, slope, x).addcmul_(gradient, scale)
        of_x[ctx.least :].masked_fill_(is_empty, 0)
        return of_x, of_weight, of_bias, None, None


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


class SynchronizedBatchNorm(BatchNorm):
    """Batch norm whose statistics in training are of all processes' positions.

    `torch.nn.SyncBatchNorm` refuses tensors on a CPU, where tests compare several processes with
    one.
    """

    def forward(self, input: Tensor, real: RealRows | None = None) -> Tensor:
        """Normalise packed positions: (positions, channels) -> the same shape."""
        if not self.training or real is not None:
            return super().forward(input, real)
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
