"""Norms over channels, by the names that options use."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

Norm = Literal["simple_rms", "layer", "none"]


class SimpleRMSNorm(nn.Module):
    """Divide by the root mean square over channels; there are no parameters.

    The name is that of TNN's published code.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x: (..., channels) -> the same shape."""
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-8)


def build_norm(norm: Norm, dim: int) -> nn.Module:
    """Build the norm of a given name over the last dimension, of size `dim`."""
    if norm == "none":
        return nn.Identity()
    return nn.LayerNorm(dim) if norm == "layer" else SimpleRMSNorm()
