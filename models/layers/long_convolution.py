"""Long convolutions: cached kernels over lags, and products by FFT."""

from __future__ import annotations

import abc
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from models.layers.kernel_cache import find_cache
from models.ops.circulant import circulant_multiply
from models.ops.toeplitz import LagKernel, fast_fft_length

MOST_RESPONSES = 4
"""Number of transforms of one kernel that are cached; an evaluation computes one per size."""


class PositionOperator(nn.Module, abc.ABC):
    """A product with one matrix over positions per channel, the core of a mixer.

    `lra.bench op` measures the time of this product alone, and the report draws the matrices.
    """

    channels: int
    """Channels in and out."""

    @abc.abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Multiply x by the matrices: (batch, length, channels) -> the same shape."""

    @abc.abstractmethod
    def matrix(self, length: int) -> Tensor:
        """Write the matrices out for sequences of a length: (channels, length, length)."""


class LongConvolution(PositionOperator):
    """A product with one Toeplitz matrix per channel; parameters generate the kernel over lags."""

    @abc.abstractmethod
    def generate(self, length: int) -> LagKernel:
        """Generate the kernel for sequences of a length, in at least single precision."""

    def resolution(self, length: int) -> int:
        """Return a number that is equal for all lengths whose kernels are parts of one kernel."""
        return 0

    def kernel(self, length: int) -> LagKernel:
        """Generate the kernel for sequences of a length, or cut the cached kernel of longer ones.

        Autocast is off for it: in bfloat16, neighbouring lags above 256 round to the same number.
        """
        return self._kernel(length, find_cache(self))

    def _kernel(self, length: int, kept: dict[Hashable, Any] | None) -> LagKernel:
        role = ("kernel", self.resolution(length))
        if kept is not None and role in kept:
            longest, kernel = kept[role]
            if longest >= length:
                return kernel.cut(length)
        device = next(self.parameters()).device.type
        with torch.autocast(device, enabled=False), record_function("kernel"):
            kernel = self.generate(length)
        if kept is not None:
            kept[role] = length, kernel
        return kernel

    def convolve_prefix(self, x: Tensor, length: int) -> Tensor:
        """Multiply the first positions of sequences of a length by its kernel.

        Args:
            x: (batch, positions, channels), the first ones.
            length: positions of the whole sequences.
        Returns: (batch, positions, channels).
        """
        count = x.shape[1]
        needs_whole = self.resolution(count) != self.resolution(length)
        return self.kernel(length if needs_whole else count).cut(count).multiply(x)

    def matrix(self, length: int) -> Tensor:
        """See `PositionOperator.matrix`."""
        return self.kernel(length).matrix(length)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x by the kernel: (batch, length, channels) -> the same shape.

        This is `toeplitz_multiply`, except that the cached transform of the kernel for longer
        sequences is used for shorter ones if that costs less than another transform.
        """
        batch, length, _ = x.shape
        kept = find_cache(self)
        kernel = self._kernel(length, kept)
        if kept is None:
            return kernel.multiply(x)
        size = fast_fft_length(kernel.smallest_circulant(length))
        role = ("responses", self.resolution(length), x.dtype)
        responses: list[tuple[int, int, Tensor]] = kept.setdefault(role, [])
        for longest, greater, response in responses:
            if longest >= length and batch * (greater - size) <= size:
                return circulant_multiply(response, greater, x)
        response = kernel.response(size, x.dtype)
        responses.append((length, size, response))
        del responses[:-MOST_RESPONSES]
        return circulant_multiply(response, size, x)
