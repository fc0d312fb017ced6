"""The relative position encoder: an MLP from a lag to one kernel value per channel."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from models._activations import ACTIVATIONS, Activation

PositionNorm = Literal["simple_rms", "layer", "none"]


class SimpleRMSNorm(nn.Module):
    """Divide by the root mean square over channels, without parameters (TNN)."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x: (..., channels) -> the same shape."""
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-8)


def position_norm(norm: PositionNorm, dim: int) -> nn.Module:
    """Build the norm that an encoder uses before each activation."""
    if norm == "none":
        return nn.Identity()
    return nn.LayerNorm(dim) if norm == "layer" else SimpleRMSNorm()


class RelativePositionEncoder(nn.Module):
    """Linear(1, dim), then `num_layers` of norm, activation, linear, then the same to the output.

    Every argument acts, the number of layers included (The Annotated TNN, Rpe).
    """

    def __init__(
        self,
        channels: int,
        *,
        dim: int,
        num_layers: int,
        activation: Activation,
        norm: PositionNorm,
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.first = nn.Linear(1, dim)
        self.norms = nn.ModuleList(position_norm(norm, dim) for _ in range(num_layers + 1))
        widths = [dim] * num_layers + [channels]
        self.linears = nn.ModuleList(nn.Linear(dim, width) for width in widths)

    def forward(self, lags: Tensor) -> Tensor:
        """Map signed lags, in positions: (num_lags,) -> (num_lags, channels)."""
        hidden = self.first(lags[:, None])
        for norm, linear in zip(self.norms, self.linears, strict=True):
            hidden = linear(self.activation(norm(hidden)))
        return hidden
