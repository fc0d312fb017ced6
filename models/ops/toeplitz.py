"""Products with Toeplitz matrices: the plain dense form and the fast one.

Both compute y[i] = sum over j of t[i - j] x[j] for one matrix per channel, where t is given
on a contiguous range of lags and is zero elsewhere. A causal matrix has no negative lags, a
windowed one few of them (Qin et al., TNN, ICLR 2023; Gray, "Toeplitz and Circulant Matrices").
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from models.ops.circulant import circulant_multiply, spectrum
from models.ops.reference import fast_form_of


def check_lags(coefficients: Tensor, first_lag: int, length: int) -> None:
    """Refuse a range of lags that misses 0 or reaches beyond length - 1.

    Args:
        coefficients: (num_lags, channels).
    Raises: ValueError.
    """
    last_lag = first_lag + coefficients.shape[0] - 1
    if not -(length - 1) <= first_lag <= 0 <= last_lag <= length - 1:
        raise ValueError(
            f"got lags {first_lag}..{last_lag}, expected a range that contains 0 and lies "
            f"within {1 - length}..{length - 1} for sequences of length {length}"
        )


def toeplitz_matrix(coefficients: Tensor, first_lag: int, length: int) -> Tensor:
    """Write the Toeplitz matrices out.

    Args:
        coefficients: (num_lags, channels), for lags first_lag, first_lag + 1, ...
    Returns: (channels, length, length), entry [c, i, j] = t_c[i - j].
    Raises: ValueError for lags that do not fit the length.
    """
    check_lags(coefficients, first_lag, length)
    positions = torch.arange(length, device=coefficients.device)
    index = positions[:, None] - positions[None, :] - first_lag
    inside = (index >= 0) & (index < coefficients.shape[0])
    entries = coefficients[index.clamp(0, coefficients.shape[0] - 1)]
    return (entries * inside[..., None]).permute(2, 0, 1)


def toeplitz_multiply_dense(coefficients: Tensor, first_lag: int, x: Tensor) -> Tensor:
    """Multiply by the written-out matrices, O(length^2): the reference.

    Args:
        coefficients: (num_lags, channels), for lags first_lag, first_lag + 1, ...
        x: (batch, length, channels).
    Returns: (batch, length, channels).
    Raises: ValueError for lags that do not fit the length.
    """
    matrix = toeplitz_matrix(coefficients, first_lag, x.shape[1])
    return torch.einsum("cij,bjc->bic", matrix, x)


@functools.lru_cache(maxsize=4096)
def fast_fft_length(minimum: int) -> int:
    """Return the smallest even length >= minimum without prime factors above 5."""
    length = max(2, minimum + minimum % 2)
    while True:
        rest = length
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return length
        length += 2


def toeplitz_multiply_textbook(
    coefficients: Tensor, first_lag: int, x: Tensor, fft_length: int | None = None
) -> Tensor:
    """Multiply by transforms at twice the length along the positions: the published code's way.

    Arguments and result as below.
    """
    length = x.shape[1]
    check_lags(coefficients, first_lag, length)
    working = torch.promote_types(torch.float32, torch.promote_types(x.dtype, coefficients.dtype))
    kernel = coefficients.to(working)
    size = 2 * length if fft_length is None else fft_length
    gap = kernel.new_zeros(size - kernel.shape[0], kernel.shape[1])
    circulant = torch.cat([kernel[-first_lag:], gap, kernel[:-first_lag]])
    response = torch.fft.rfft(circulant, n=size, dim=-2)
    spectrum = torch.fft.rfft(x.to(working), n=size, dim=-2) * response
    return torch.fft.irfft(spectrum, n=size, dim=-2)[:, :length].to(x.dtype)


@fast_form_of(toeplitz_multiply_textbook)
def toeplitz_multiply(
    coefficients: Tensor, first_lag: int, x: Tensor, fft_length: int | None = None
) -> Tensor:
    """Multiply by Toeplitz matrices embedded in circulant ones, O(length log length).

    Equal to `toeplitz_multiply_dense`. Transforms run in at least single precision,
    whatever the precision of x (TNN, the circulant embedding).

    Args:
        coefficients: (num_lags, channels), for lags first_lag, first_lag + 1, ...
        x: (batch, length, channels).
        fft_length: size of the circulant matrix; by default the first fast one that fits.
    Returns: (batch, length, channels), in the type of x.
    Raises: ValueError for lags that do not fit the length, or too small an fft_length.
    """
    minimum = smallest_circulant(coefficients, first_lag, x.shape[1])
    size = fast_fft_length(minimum) if fft_length is None else fft_length
    if size < minimum:
        raise ValueError(f"got fft_length {size}, expected at least {minimum}")
    return circulant_multiply(circulant_response(coefficients, first_lag, size, x.dtype), size, x)


def smallest_circulant(coefficients: Tensor, first_lag: int, length: int) -> int:
    """Return the size of the smallest circulant matrices that hold Toeplitz ones.

    Raises: ValueError for lags that do not fit the length.
    """
    check_lags(coefficients, first_lag, length)
    last_lag = first_lag + coefficients.shape[0] - 1
    # Sums reach from first_lag to last_lag + length - 1; what wraps around the circle must
    # not land on 0..length - 1.
    return length + max(last_lag, -first_lag)


def circulant_response(
    coefficients: Tensor, first_lag: int, size: int, dtype: torch.dtype
) -> Tensor:
    """Return the frequency response of circulant matrices that hold Toeplitz ones.

    Args:
        coefficients: (num_lags, channels), for lags first_lag, first_lag + 1, ...
        dtype: of what they will multiply.
    Returns: (channels, size // 2 + 1) complex, of at least single precision.
    """
    working = torch.promote_types(torch.float32, torch.promote_types(dtype, coefficients.dtype))
    kernel = coefficients.to(working).T
    gap = kernel.new_zeros(kernel.shape[0], size - kernel.shape[1])
    return spectrum(torch.cat([kernel[:, -first_lag:], gap, kernel[:, :-first_lag]], dim=1))
