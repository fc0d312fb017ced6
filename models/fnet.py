"""FNet: Fourier transforms in place of attention.

Lee-Thorp et al., "FNet: Mixing Tokens with Fourier Transforms", NAACL 2022
(arXiv:2105.03824), equation 3.

Symbols of the paper and their names here:
    F_h: torch.fft.fft over the channels
    F_seq: torch.fft.fft over the positions; transform_each where there is padding
    N: lengths in transform_each
"""

import torch
from torch import Tensor
from torch.nn import functional

from lra.models.base import Mixer, MixerContext


def transform_each(x: Tensor, lengths: Tensor) -> Tensor:
    """Take the discrete Fourier transform of every row over its own length.

    Args:
        x: (batch, length, channels) complex.
        lengths: (batch,) int64, in positions.
    Returns: (batch, length, channels) complex; positions beyond a row's length are zero.
    """
    rows = [
        torch.fft.fft(row, n=max(1, length), dim=0)
        for row, length in zip(x, lengths.tolist(), strict=True)
    ]
    return torch.stack([functional.pad(row, (0, 0, 0, x.shape[1] - len(row))) for row in rows])


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
