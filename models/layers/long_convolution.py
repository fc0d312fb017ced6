"""Long convolutions: kernels over lags that are generated once, and products by FFT."""

import abc

import torch
from torch import Tensor, nn

from lra.models.layers.kernel_cache import find_cache
from lra.models.ops.toeplitz import LagKernel, circulant_multiply, fast_fft_length

MOST_RESPONSES = 4
"""Number of transforms of one kernel that are cached; an evaluation computes one per size."""


class PositionOperator(nn.Module, abc.ABC):
    """A product with one matrix over positions per channel, the core of a mixer.

    `lra.bench op` measures the time of this product alone.
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
        """Generate the kernel for sequences of a length, or cut the cached one of longer ones."""
        kept = find_cache(self)
        role = ("kernel", self.resolution(length))
        if kept is not None and role in kept:
            longest, kernel = kept[role]
            if longest >= length:
                return kernel.cut(length)
        device = next(self.parameters()).device.type
        # In bfloat16, neighbouring lags above 256 round to the same number.
        with torch.autocast(device, enabled=False):
            kernel = self.generate(length)
        if kept is not None:
            kept[role] = length, kernel
        return kernel

    def convolve_prefix(self, x: Tensor, length: int) -> Tensor:
        """Multiply the first positions of sequences of a length, (batch, positions, channels)."""
        count = x.shape[1]
        needs_whole = self.resolution(count) != self.resolution(length)
        return self.kernel(length if needs_whole else count).cut(count).multiply(x)

    def matrix(self, length: int) -> Tensor:
        return self.kernel(length).matrix(length)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x by the kernel: (batch, length, channels) -> the same shape."""
        batch, length, _ = x.shape
        kernel, kept = self.kernel(length), find_cache(self)
        if kept is None:
            return kernel.multiply(x)
        size = fast_fft_length(kernel.smallest_circulant(length))
        role = ("responses", self.resolution(length), x.dtype)
        responses: list[tuple[int, int, Tensor]] = kept.setdefault(role, [])
        # That of longer sequences serves if it costs less than another transform.
        for longest, greater, response in responses:
            if longest >= length and batch * (greater - size) <= size:
                return circulant_multiply(response, greater, x)
        response = kernel.response(size, x.dtype)
        responses.append((length, size, response))
        del responses[:-MOST_RESPONSES]
        return circulant_multiply(response, size, x)
