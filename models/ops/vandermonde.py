"""Sums of geometric sequences, the kernels of diagonal state-space models."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from models.ops.reference import fast_form_of


def vandermonde_product_plain(
    log_poles: Tensor, weights: Tensor, length: int, shift: Tensor | None = None
) -> Tensor:
    """Sum by the matrix of powers: the reference; arguments and result as below."""
    lags = torch.arange(length, device=weights.device, dtype=log_poles.real.dtype)
    exponents = lags.expand(*log_poles.shape, -1)
    if shift is not None:
        exponents = exponents - shift[..., None]
    powers = torch.exp(log_poles[..., None] * exponents)
    return torch.einsum("dcn,cnl->dcl", weights, powers).real


@fast_form_of(vandermonde_product_plain)
def vandermonde_product(
    log_poles: Tensor, weights: Tensor, length: int, shift: Tensor | None = None
) -> Tensor:
    """Sum weighted powers of poles, K[l] = Re(sum over n of weights[n] exp(log_poles[n] l)).

    With l = block * q + r the power is one of sqrt(length) times another of as many, so that
    a kernel is a small matrix product, and the (states, length) matrix of powers is never
    made (S4D, section 3.3, computes it by that matrix).

    Args:
        log_poles: (channels, states) complex, logarithms of the poles.
        weights: (directions, channels, states) complex.
        shift: (channels, states); exponents are l - shift, which keeps growing sequences finite
            where it is the last lag. 0 for the others, as without it for all.
    Returns: (directions, channels, length), real.
    """
    directions, channels, _ = weights.shape
    block = _block_length(length)
    num_blocks = -(-length // block)
    lags = torch.arange(block, device=weights.device, dtype=log_poles.real.dtype)
    starts = block * torch.arange(num_blocks, device=weights.device, dtype=lags.dtype)
    if shift is None:
        shift = torch.zeros_like(log_poles.real)
    # Of a growing sequence both factors count back from their ends, so as not to overflow.
    back = torch.where(shift > 0, block - 1, 0)[:, None]
    within = torch.exp(log_poles[:, None] * (lags[:, None] - back))
    to_block = torch.exp(log_poles[:, None] * (starts[:, None] - shift[:, None] + back))
    scaled = (weights[:, :, None] * to_block).transpose(0, 1).flatten(1, 2)
    # The real part of a product of complex matrices, as one product of real ones.
    left = torch.cat([scaled.real, -scaled.imag], dim=-1)
    right = torch.cat([within.real, within.imag], dim=-1)
    kernel = torch.bmm(left, right.transpose(1, 2))
    kernel = kernel.view(channels, directions, num_blocks * block)[..., :length]
    return kernel.transpose(0, 1)


def _block_length(length: int) -> int:
    """Return a length near the root whose multiples reach least beyond."""
    root = max(1, math.isqrt(length))
    return min(range(max(1, root // 2), 2 * root + 1), key=lambda b: (-length % b, abs(b - root)))
