"""FNet: Fourier transforms in place of attention.

Lee-Thorp et al., "FNet: Mixing Tokens with Fourier Transforms", NAACL 2022
(arXiv:2105.03824), equation 3.

Symbols of the paper and their names here:
    F_h: torch.fft.fft over the channels
    F_seq: torch.fft.fft over the positions; transform_each where there is padding
    N: lengths in transform_each
"""

from __future__ import annotations

import torch
from torch import Tensor

from lra.models.base import Mixer, MixerContext
from lra.models.ops.reference import fast_form_of
from lra.models.ops.toeplitz import fast_fft_length


def transform_each_reference(x: Tensor, lengths: Tensor) -> Tensor:
    """Compute `transform_each` row by row; positions beyond a row's length are zero."""
    result = torch.zeros_like(x)
    for i, length in enumerate(lengths.tolist()):
        result[i, :length] = torch.fft.fft(x[i, :length], dim=0)
    return result


@fast_form_of(transform_each_reference)
def transform_each(x: Tensor, lengths: Tensor) -> Tensor:
    """Take the discrete Fourier transform of every row over its own length.

    This is Bluestein's algorithm: with 2 j k = j^2 + k^2 - (k - j)^2 a transform of any length
    is a convolution with a chirp, so that rows of different lengths are transformed together, in
    O(length log length).

    Args:
        x: (batch, length, channels) complex.
        lengths: (batch,) int64, in positions.
    Returns: (batch, length, channels) complex; positions beyond a row's length are undefined.
    """
    length = x.shape[1]
    lengths = lengths.clamp(min=1)
    size = fast_fft_length(2 * length - 1)
    position = torch.arange(length, device=x.device)
    # Squares as whole numbers, modulo a full turn, so that the angle is exact.
    turns = position.square()[None] % (2 * lengths[:, None])
    angle = torch.pi * turns.to(x.real.dtype) / lengths[:, None]
    chirp = torch.polar(torch.ones_like(angle), -angle)[..., None]
    is_real = (position < lengths[:, None])[..., None]
    back = chirp[:, 1:].conj().flip(1)
    gap = chirp.new_zeros(len(x), size - 2 * length + 1, 1)
    circle = torch.cat([chirp.conj(), gap, back], dim=1)
    signal = torch.fft.fft(torch.where(is_real, x * chirp, 0), n=size, dim=1)
    return chirp * torch.fft.ifft(signal * torch.fft.fft(circle, dim=1), dim=1)[:, :length]


class FNet(Mixer):
    """The real part of a Fourier transform over positions and channels, O(length log length).

    It has no parameters. Rows with padding are transformed over their own lengths.

    Raises: ValueError for a causal context.
    """

    name = "fnet"

    def __init__(self, context: MixerContext) -> None:
        super().__init__()
        if context.causal:
            raise ValueError("fnet cannot be causal (model.causal): a transform takes in all")

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if not len(x):
            return x
        working = torch.promote_types(torch.float32, x.dtype)
        channels = torch.fft.fft(x.to(working), dim=2)
        if mask is None:
            return torch.fft.fft(channels, dim=1).real.to(x.dtype)
        return transform_each(channels, mask.sum(dim=1)).real.to(x.dtype)
