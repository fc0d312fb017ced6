"""Products with circulant matrices given by their frequency response."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from models.ops.reference import fast_form_of
from models.ops.workers import num_workers, on_workers, threads_of_each

CHUNK_NUMBERS_OTHERWISE = 2**28
"""Largest number of elements in one transform on a GPU, enough to keep it busy."""

DEFAULT_CACHE = 2**20
"""Assumed size of a core's second-level cache in bytes, if the system does not report it."""

FEWEST_CHANNELS = 16
"""Smallest number of channels in a chunk; at one position they fill a cache line."""

FEWEST_NUMBERS = 2**19
"""Smallest number of elements per worker; with fewer, a worker costs more than it saves."""

BLOCK_POSITIONS = 1024
"""Positions that are transposed at once, few enough for a channel's cache lines to stay cached."""

ROW_GAP = 16
"""Unused elements between rows; rows at distances of powers of two share few cache lines."""


def circulant_multiply_reference(response: Tensor, size: int, x: Tensor) -> Tensor:
    """Compute `circulant_multiply` by transforms of the whole batch along the positions."""
    working = torch.promote_types(response.real.dtype, x.dtype)
    spectrum = torch.fft.rfft(x.to(working), n=size, dim=-2) * response.T
    return torch.fft.irfft(spectrum, n=size, dim=-2)[:, : x.shape[1]].to(x.dtype)


@fast_form_of(circulant_multiply_reference)
def circulant_multiply(response: Tensor, size: int, x: Tensor) -> Tensor:
    """Multiply x, padded with zeros, by circulant matrices of a given frequency response.

    Each worker processes some of the channels, one chunk of the batch at a time. Only the arguments
    are saved for the backward pass, which transforms x again.

    Args:
        response: (channels, size // 2 + 1) complex, of at least single precision.
        size: rows of a matrix, at least the length.
        x: (batch, length, channels).
    Returns: (batch, length, channels), the first `length` rows of the product, in the type of x.
    """
    result = _Multiply.apply(response, size, x)
    assert isinstance(result, Tensor)
    return result


def spectrum(circulant: Tensor) -> Tensor:
    """Compute torch.fft.rfft; the gradient takes a real transform instead of torch's complex one.

    Args:
        circulant: (channels, size), real; size is even.
    Returns: (channels, size // 2 + 1), complex.
    """
    result = _Spectrum.apply(circulant)
    assert isinstance(result, Tensor)
    return result


def _twice_but_ends(half: Tensor, size: int) -> Tensor:
    """Double, in place, the frequencies that occur twice among all `size` of them."""
    half[:, 1 : (size + 1) // 2] *= 2
    return half


class _Spectrum(Function):
    @staticmethod
    def forward(ctx: Any, circulant: Tensor) -> Tensor:
        ctx.size = circulant.shape[1]
        return torch.fft.rfft(circulant)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> Tensor:
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

        shares = _shares(x, size)
        numbers = _chunk_numbers(x.device, len(shares))

        def multiply(share: slice) -> None:
            work = _Workspace(response, size, x, share, numbers)
            for channels in work.channel_slices():
                for rows in work.row_slices():
                    spectrum = work.transform(x[rows, :, channels]).mul_(response[channels])
                    work.transform_back(spectrum, y[rows, :, channels])

        on_workers(multiply, shares)
        return y

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        response, x = ctx.saved_tensors
        size, gradient = ctx.size, gradients[0]
        wants_response, _, wants_x = ctx.needs_input_grad
        of_x = torch.empty_like(x) if wants_x else None
        of_response = torch.zeros_like(response)
        shares = _shares(x, size)
        numbers = _chunk_numbers(x.device, len(shares))

        def multiply(share: slice) -> None:
            work = _Workspace(response, size, x, share, numbers)
            for channels in work.channel_slices():
                conjugate = response[channels].conj_physical()
                for rows in work.row_slices():
                    spectrum = work.transform(gradient[rows, :, channels])
                    if wants_response:
                        product = work.transform(x[rows, :, channels]).conj_physical_()
                        product = product.mul_(spectrum)
                        product = product[0] if len(product) == 1 else product.sum(dim=0)
                        of_response[channels] += product
                        del product
                    if of_x is not None:
                        spectrum = spectrum.mul_(conjugate)
                        work.transform_back(spectrum, of_x[rows, :, channels])

        on_workers(multiply, shares)
        of_response = _twice_but_ends(of_response, size).div_(size)
        return of_response if wants_response else None, None, of_x


def _shares(x: Tensor, size: int) -> list[slice]:
    """Cut the channels of x, (batch, length, channels), into a slice for each worker."""
    channels = x.shape[2]
    most = min(channels // FEWEST_CHANNELS, len(x) * size * channels // FEWEST_NUMBERS)
    count = max(1, min(num_workers(x.device), most))
    ends = [channels * i // count for i in range(count + 1)]
    return [slice(first, end) for first, end in pairwise(ends)]


def _chunk_numbers(device: torch.device, shares: int) -> int:
    """Return the most numbers in one transform: on a CPU so few that they stay in its cache."""
    if device.type != "cpu":
        return CHUNK_NUMBERS_OTHERWISE
    return _cache_bytes() // 4 * threads_of_each(shares)


@functools.cache
def _cache_bytes() -> int:
    """Return the size of a core's second-level cache."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip()
    except OSError:
        return DEFAULT_CACHE
    unit = {"K": 2**10, "M": 2**20}.get(text[-1:])
    return int(text[:-1]) * unit if unit and text[:-1].isdecimal() else DEFAULT_CACHE


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
        batch, self.length, _ = x.shape
        self.batch, self.share = batch, share
        channels = share.stop - share.start
        self.size = size
        limit = numbers // size
        chunks = max(1, -(-channels // max(FEWEST_CHANNELS, limit)))
        self.channels = -(-channels // chunks)
        self.rows = max(1, min(batch, limit // self.channels))
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
        """Undo `transform`.

        Args:
            spectrum: (rows, channels, size // 2 + 1) complex.
            into: (rows, length, channels), where the result is written.
        """
        result = self.result[: spectrum.shape[0], : spectrum.shape[1], : self.length]
        result.copy_(torch.fft.irfft(spectrum, n=self.size)[..., : self.length])
        into.copy_(result.transpose(1, 2))
