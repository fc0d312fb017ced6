"""The relative position encoder: an MLP from a number to one value per channel."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from models.ops.activations import ACTIVATIONS, Activation

Norm = Literal["simple_rms", "layer", "none"]
EncoderLayers = Annotated[int, Field(ge=0, le=1000)]
EncoderWidth = Annotated[int, Field(ge=1, le=2**16)]


class SimpleRMSNorm(nn.Module):
    """Divide by the root mean square over channels, without parameters (TNN)."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x: (..., channels) -> the same shape."""
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-8)


def build_norm(norm: Norm, dim: int) -> nn.Module:
    """Build a norm over the last dimension by its name."""
    if norm == "none":
        return nn.Identity()
    return nn.LayerNorm(dim) if norm == "layer" else SimpleRMSNorm()


class RelativePositionEncoder(nn.Module):
    """Linear(1, dim), then `num_layers` of norm, activation, linear, then the same to the output.

    Every argument acts, the number of layers included (The Annotated TNN, Rpe).

    Args:
        residual: whether each hidden layer adds to its input.
    Raises: ValueError for residual without hidden layers.
    """

    def __init__(
        self,
        channels: int,
        *,
        dim: int,
        num_layers: int,
        activation: Activation,
        norm: Norm,
        residual: bool,
    ) -> None:
        super().__init__()
        if residual and num_layers == 0:
            raise ValueError("rpe_residual concerns hidden layers, and rpe_layers is 0")
        self.activation = ACTIVATIONS[activation]
        self.residual = residual
        self.first = nn.Linear(1, dim)
        self.norms = nn.ModuleList(build_norm(norm, dim) for _ in range(num_layers + 1))
        widths = [dim] * num_layers + [channels]
        self.linears = nn.ModuleList(nn.Linear(dim, width) for width in widths)

    def forward(self, numbers: Tensor) -> Tensor:
        """Encode signed lags, in positions, or frequencies: (count,) -> (count, channels)."""
        hidden = self.first(numbers[:, None])
        for norm, linear in zip(list(self.norms)[:-1], list(self.linears)[:-1], strict=True):
            encoded = linear(self.activation(norm(hidden)))
            hidden = hidden + encoded if self.residual else encoded
        last = self.linears[-1]
        assert isinstance(last, nn.Linear)
        hidden = self.activation(self.norms[-1](hidden))
        # Channel by channel in memory, as the transforms of kernels and responses want them.
        return torch.addmm(last.bias[:, None], last.weight, hidden.T).T
