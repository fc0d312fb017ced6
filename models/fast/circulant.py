"""Products with circulant matrices in chunks that stay in a processor's cache.

Each worker processes some of the channels, one chunk of the batch at a time. Only the arguments are
saved for the backward pass, which transforms x again.
"""

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lra.models.fast.workers import num_workers, on_workers, threads_of_each

CHUNK_NUMBERS = 2**18
"""Elements in one transform for each thread of a CPU: 1 MiB, a usual second-level cache."""
GPU_CHUNK_NUMBERS = 2**28
"""The same on a GPU, enough to keep it busy."""
FEWEST_CHANNELS = 16
"""Smallest number of channels in a chunk; at one position they fill a cache line."""
FEWEST_NUMBERS = 2**19
"""Smallest number of elements per worker; with fewer, a worker costs more than it saves."""
BLOCK_POSITIONS = 1024
"""Positions that are transposed at once, few enough for a channel's cache lines to stay cached."""
ROW_GAP = 16
"""Unused elements between rows; rows at distances of powers of two share few cache lines."""


def circulant_multiply(response: Tensor, size: int, x: Tensor) -> Tensor:
    """See `lra.models.ops.toeplitz.circulant_multiply`."""
    return cast("Tensor", _Multiply.apply(response, size, x))


def spectrum(circulant: Tensor) -> Tensor:
    """See `lra.models.ops.toeplitz.spectrum`; the gradient is a real transform, unlike torch's."""
    return cast("Tensor", _Spectrum.apply(circulant))


class _Spectrum(Function):
    @staticmethod
    def forward(ctx: Any, circulant: Tensor) -> Tensor:
        ctx.size = circulant.shape[1]
        return torch.fft.rfft(circulant)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        # irfft adds every frequency but the first and the last twice, as a conjugate pair.
        scaled = gradients[0] * (ctx.size / 2)
        scaled[:, :: ctx.size // 2] *= 2
        return torch.fft.irfft(scaled, n=ctx.size)


class _Multiply(Function):
    @staticmethod
    def forward(ctx: Any, response: Tensor, size: int, x: Tensor) -> Tensor:
        response = response.contiguous()
        ctx.save_for_backward(response, x)
        ctx.size = size
        y = torch.empty_like(x)

        def multiply(work: _Workspace) -> None:
            for channels in work.channel_slices():
                for rows in work.row_slices():
                    product = work.transform(x[rows, :, channels]).mul_(response[channels])
                    work.transform_back(product, y[rows, :, channels])

        _share_out(multiply, response, size, x)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        response, x = ctx.saved_tensors
        size, gradient = ctx.size, gradients[0]
        wants_response, _, wants_x = ctx.needs_input_grad
        of_x = torch.empty_like(x) if wants_x else None
        of_response = torch.zeros_like(response)

        def multiply(work: _Workspace) -> None:
            for channels in work.channel_slices():
                conjugate = response[channels].conj_physical()
                for rows in work.row_slices():
                    transformed = work.transform(gradient[rows, :, channels])
                    if wants_response:
                        product = work.transform(x[rows, :, channels]).conj_physical_()
                        product = product.mul_(transformed)
                        product = product[0] if len(product) == 1 else product.sum(dim=0)
                        of_response[channels] += product
                        del product
                    if of_x is not None:
                        transformed = transformed.mul_(conjugate)
                        work.transform_back(transformed, of_x[rows, :, channels])

        _share_out(multiply, response, size, x)
        # All frequencies but the ends occur twice among the `size` of a whole spectrum.
        of_response[:, 1 : (size + 1) // 2] *= 2
        return of_response.div_(size) if wants_response else None, None, of_x


def _share_out(multiply: Any, response: Tensor, size: int, x: Tensor) -> None:
    """Call a function of a workspace on each worker, which has some of the channels."""
    channels = x.shape[2]
    most = min(channels // FEWEST_CHANNELS, len(x) * size * channels // FEWEST_NUMBERS)
    count = max(1, min(num_workers(x.device), most))
    shares = [slice(channels * i // count, channels * (i + 1) // count) for i in range(count)]
    is_cpu = x.device.type == "cpu"
    numbers = CHUNK_NUMBERS * threads_of_each(count) if is_cpu else GPU_CHUNK_NUMBERS
    on_workers(lambda share: multiply(_Workspace(response, size, x, share, numbers)), shares)


class _Workspace:
    """Memory for the transforms of one chunk of some channels, which the next chunk uses again.

    Args:
        response: (channels, size // 2 + 1), of all channels.
        size: rows of a matrix.
        x: (batch, length, channels), of all channels.
        share: the channels.
        numbers: most in one transform.
    """

    def __init__(self, response: Tensor, size: int, x: Tensor, share: slice, numbers: int) -> None:
        self.batch, self.length, _ = x.shape
        self.share = share
        self.size = size
        channels = share.stop - share.start
        limit = numbers // size
        chunks = max(1, -(-channels // max(FEWEST_CHANNELS, limit)))
        self.channels = -(-channels // chunks)
        self.rows = max(1, min(self.batch, limit // self.channels))
        working = torch.promote_types(response.real.dtype, x.dtype)
        chunk = self.rows, self.channels
        self.padded = torch.zeros(*chunk, size, dtype=working, device=x.device)
        self.result = torch.empty(*chunk, self.length + ROW_GAP, dtype=working, device=x.device)

    def row_slices(self) -> Iterator[slice]:
        """Cut the batch into the rows of chunks."""
        for row in range(0, self.batch, self.rows):
            yield slice(row, row + self.rows)

    def channel_slices(self) -> Iterator[slice]:
        """Cut the channels into those of chunks."""
        for channel in range(self.share.start, self.share.stop, self.channels):
            yield slice(channel, min(channel + self.channels, self.share.stop))

    def transform(self, x: Tensor) -> Tensor:
        """Transform positions: (rows, length, channels) -> (rows, channels, size // 2 + 1)."""
        padded = self.padded[: x.shape[0], : x.shape[2]]
        for start in range(0, self.length, BLOCK_POSITIONS):
            block = slice(start, min(start + BLOCK_POSITIONS, self.length))
            padded[..., block] = x[:, block].transpose(1, 2)
        return torch.fft.rfft(padded)

    def transform_back(self, spectrum: Tensor, into: Tensor) -> None:
        """Undo `transform`: (rows, channels, frequencies), into (rows, length, channels)."""
        result = self.result[: spectrum.shape[0], : spectrum.shape[1], : self.length]
        result.copy_(torch.fft.irfft(spectrum, n=self.size)[..., : self.length])
        into.copy_(result.transpose(1, 2))
