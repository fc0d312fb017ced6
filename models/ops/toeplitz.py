"""Products with Toeplitz matrices, given by a kernel over lags.

Every channel has a matrix, and y[i] = sum over j of t[i - j] x[j], where t is given on a
contiguous range of lags and is zero at all others. A causal matrix has no negative lags, a
windowed one has only small ones (Qin et al., TNN, ICLR 2023; Gray, "Toeplitz and Circulant
Matrices").
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lra.models.ops.reference import fast_form_of, has_fast_form


@dataclass(frozen=True, eq=False)
class LagKernel:
    """The coefficients of Toeplitz matrices by lag, one matrix per channel."""

    coefficients: Tensor
    """(channels, lags), real, for lags first_lag, first_lag + 1, ..."""
    first_lag: int
    """Lag of the first coefficient, at most 0."""

    @property
    def last_lag(self) -> int:
        """The largest lag."""
        return self.first_lag + self.coefficients.shape[1] - 1

    def cut(self, length: int) -> LagKernel:
        """Drop the lags that sequences of a length do not have."""
        first = max(self.first_lag, 1 - length)
        # Along the rows of a transposed view, which sets the order that gradients are summed in.
        kept = self.coefficients.T[first - self.first_lag : length - self.first_lag]
        return LagKernel(kept.T, first)

    def matrix(self, length: int) -> Tensor:
        """Write the Toeplitz matrices out.

        Returns: (channels, length, length), entry [c, i, j] = t_c[i - j].
        Raises: ValueError for lags that do not fit the length.
        """
        self.smallest_circulant(length)
        positions = torch.arange(length, device=self.coefficients.device)
        index = positions[:, None] - positions[None, :] - self.first_lag
        last = self.coefficients.shape[1] - 1
        inside = (index >= 0) & (index <= last)
        return self.coefficients[:, index.clamp(0, last)] * inside

    def multiply_reference(self, x: Tensor) -> Tensor:
        """Compute `multiply` by transforms at twice the length, as published code does."""
        size = 2 * x.shape[1]
        self.smallest_circulant(x.shape[1])
        return circulant_multiply(self.response(size, x.dtype), size, x)

    @fast_form_of(multiply_reference)
    def multiply(self, x: Tensor) -> Tensor:
        """Multiply x, (batch, length, channels), by the matrices, O(length log length).

        They are embedded in circulant ones (The Annotated TNN, "Toeplitz matrix"). Transforms run
        in at least single precision.

        Raises: ValueError for lags that do not fit the length.
        """
        size = fast_fft_length(self.smallest_circulant(x.shape[1]))
        return circulant_multiply(self.response(size, x.dtype), size, x)

    def smallest_circulant(self, length: int) -> int:
        """Return the size of the smallest circulant matrices that hold the Toeplitz ones.

        Raises: ValueError for a range of lags that misses 0 or reaches beyond length - 1.
        """
        if not -(length - 1) <= self.first_lag <= 0 <= self.last_lag <= length - 1:
            raise ValueError(
                f"got lags {self.first_lag}..{self.last_lag}, expected a range that contains 0 and "
                f"lies within {1 - length}..{length - 1} for sequences of length {length}"
            )
        # Sums reach from first_lag to last_lag + length - 1; what wraps around the circle must
        # not land on 0..length - 1.
        return length + max(self.last_lag, -self.first_lag)

    def response(self, size: int, dtype: torch.dtype) -> Tensor:
        """Return the frequency response of circulant matrices that hold the Toeplitz ones.

        Their size is even, and they will multiply numbers of a type.

        Returns: (channels, size // 2 + 1) complex, of at least single precision.
        """
        types = torch.promote_types(dtype, self.coefficients.dtype)
        t = self.coefficients.to(torch.promote_types(torch.float32, types))
        gap = t.new_zeros(t.shape[0], size - t.shape[1])
        ahead = -self.first_lag
        return spectrum(torch.cat([t[:, ahead:], gap, t[:, :ahead]], dim=1))


def diagonal_from_kernel(kernel: LagKernel, length: int) -> tuple[Tensor, Tensor]:
    """Convert a causal kernel into a diagonal state space, exactly over n = `length` lags.

    For the n-th root of unity w, t[l] = sum over k of c[k] w ** (k l), where c is the discrete
    Fourier transform of t, divided by n. Real kernels need half of the roots.

    Returns: poles, (1, n // 2 + 1), and weights, (channels, n // 2 + 1), complex.
    """
    # In double precision: this runs once, and its errors would stay in every step.
    t = functional.pad(kernel.coefficients.detach(), (0, length - kernel.coefficients.shape[1]))
    spectrum = torch.fft.rfft(t.double()) / length
    # rfft leaves out the conjugate of every root but 1 and, of an even number, -1.
    spectrum[:, 1 : (length + 1) // 2] *= 2
    turns = torch.arange(length // 2 + 1, dtype=torch.float64, device=t.device) / length
    poles = torch.polar(torch.ones_like(turns), 2 * torch.pi * turns)
    precision = torch.promote_types(t.dtype, torch.complex64)
    return poles[None].to(precision), spectrum.to(precision)


@functools.lru_cache(maxsize=4096)
def fast_fft_length(minimum: int) -> int:
    """Return the smallest even length >= minimum without prime factors above 5."""
    from scipy.fft import next_fast_len

    half: Any = next_fast_len(max(1, -(-minimum // 2)), real=True)
    return 2 * half


@has_fast_form("circulant")
def spectrum(circulant: Tensor) -> Tensor:
    """Transform real rows of even size: (channels, size) -> (channels, size // 2 + 1) complex."""
    return torch.fft.rfft(circulant)


@has_fast_form("circulant")
def circulant_multiply(response: Tensor, size: int, x: Tensor) -> Tensor:
    """Multiply x, padded with zeros to a size, by circulant matrices of a frequency response.

    Args:
        response: (channels, size // 2 + 1) complex, of at least single precision.
        x: (batch, length, channels), as is the result: the first rows of the product.
    """
    working = torch.promote_types(response.real.dtype, x.dtype)
    transformed = torch.fft.rfft(x.to(working), n=size, dim=-2) * response.T
    return torch.fft.irfft(transformed, n=size, dim=-2)[:, : x.shape[1]].to(x.dtype)


@has_fast_form("depthwise")
def depthwise_convolution(x: Tensor, taps: Tensor, first_lag: int) -> Tensor:
    """Compute y[i] = sum over lags of taps[lag] * x[i - lag], O(length * taps).

    This is a product with a Toeplitz matrix of few diagonals. It runs in at least single precision,
    like all sums over positions here. Another reason is that PyTorch's convolution in bfloat16
    never returns on some CPUs for 16 channels or fewer.

    Args:
        x: (batch, length, channels).
        taps: (channels, num_taps), for lags first_lag, first_lag + 1, ...
        first_lag: at most 0, and more than -num_taps, so that lag 0 has a tap.
    Returns: (batch, length, channels), in the type of x.
    """
    working = torch.promote_types(torch.float32, x.dtype)
    last_lag = first_lag + taps.shape[1] - 1
    padded = functional.pad(x.to(working).transpose(1, 2), (last_lag, -first_lag))
    filters = taps.to(working).flip(1)[:, None]
    with torch.autocast(x.device.type, enabled=False):
        y = functional.conv1d(padded, filters, groups=x.shape[2])
    return y.transpose(1, 2).to(x.dtype)
