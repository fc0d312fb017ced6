"""Sums of geometric sequences, the kernels of diagonal state-space models."""

import math

import torch
from torch import Tensor

from lra.models.ops.reference import fast_form_of


def vandermonde_product_reference(
    log_poles: Tensor, weights: Tensor, length: int, shift: Tensor | None = None
) -> Tensor:
    """Compute `vandermonde_product` by the matrix of powers (S4D, equation 7)."""
    lags = torch.arange(length, device=weights.device, dtype=log_poles.real.dtype)
    exponents = lags.expand(*log_poles.shape, -1)
    if shift is not None:
        exponents = exponents - shift[..., None]
    powers = torch.exp(log_poles[..., None] * exponents)
    return torch.einsum("dcn,cnl->dcl", weights, powers).real


@fast_form_of(vandermonde_product_reference)
def vandermonde_product(
    log_poles: Tensor, weights: Tensor, length: int, shift: Tensor | None = None
) -> Tensor:
    """Sum weighted powers of poles, K[l] = Re(sum over n of weights[n] exp(log_poles[n] l)).

    With l = block * q + r every power is a product of two factors, of which there are about
    sqrt(length) each. A kernel is then a small matrix product, and the (states, length) Vandermonde
    matrix of powers (S4D, section 3.2) is never written out.

    Args:
        log_poles: (channels, states) complex, logarithms of the poles; or real ones.
        weights: (directions, channels, states) of the same type.
        length: lags of the kernel.
        shift: (channels, states), subtracted from the exponents l: the last lag for growing
            sequences, which keeps them finite, and 0 for others. None: 0 for all.
    Returns: (directions, channels, length), real.
    """
    directions, channels, _ = weights.shape
    block = block_length(length)
    num_blocks = -(-length // block)
    lags = torch.arange(block, device=weights.device, dtype=log_poles.real.dtype)
    starts = block * torch.arange(num_blocks, device=weights.device, dtype=lags.dtype)
    if shift is None:
        shift = torch.zeros_like(log_poles.real)
    # Both factors of a growing sequence count back from their ends, so that none overflows.
    back = torch.where(shift > 0, block - 1, 0)[:, None]
    within = torch.exp(log_poles[:, None] * (lags[:, None] - back))
    to_block = torch.exp(log_poles[:, None] * (starts[:, None] - shift[:, None] + back))
    scaled = (weights[:, :, None] * to_block).transpose(0, 1).flatten(1, 2)
    if scaled.is_complex():
        # The real part of a product of complex matrices, as one product of real ones.
        left = torch.cat([scaled.real, -scaled.imag], dim=-1)
        right = torch.cat([within.real, within.imag], dim=-1)
    else:
        left, right = scaled, within
    kernel = torch.bmm(left, right.transpose(1, 2))
    kernel = kernel.view(channels, directions, num_blocks * block)[..., :length]
    return kernel.transpose(0, 1)


def block_length(length: int) -> int:
    """Return a block length near sqrt(length) whose multiples exceed the length by the least."""
    root = max(1, math.isqrt(length))
    return min(range(max(1, root // 2), 2 * root + 1), key=lambda b: (-length % b, abs(b - root)))
