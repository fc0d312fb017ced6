"""The relative position encoder: an MLP from a number to one value per channel."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from models.layers.linear_map import LinearMap
from models.layers.norms import build_norm
from models.ops.activations import ACTIVATIONS, Activation

EncoderLayers = Annotated[int, Field(ge=0, le=1000)]
EncoderWidth = Annotated[int, Field(ge=1, le=2**16)]
EncoderNorm = Literal["simple_rms", "layer", "none", "last_layer"]


class RelativePositionEncoder(nn.Module):
    """The relative position encoder (RPE), an MLP from a number to one value per channel.

    It is a linear layer from the number to `dim`, then `num_layers` hidden layers of norm,
    activation and linear layer, then an output layer of the same three parts (The Annotated TNN,
    "Relative Position Encoder").

    Args:
        channels: number of values per input number.
        dim: width of the hidden layers.
        num_layers: number of hidden layers.
        activation: activation before each linear layer except the first.
        norm: norm before each activation. "last_layer" is a layer norm before the last activation
            only. With two hidden layers this is the encoder that OpenNLPLab/lra builds, whatever
            number of layers its settings state.
        residual: whether each hidden layer adds its result to its input.
    Raises: ValueError for residual without hidden layers.
    """

    def __init__(
        self,
        channels: int,
        *,
        dim: int,
        num_layers: int,
        activation: Activation,
        norm: EncoderNorm,
        residual: bool,
    ) -> None:
        super().__init__()
        if residual and num_layers == 0:
            raise ValueError("rpe_residual concerns hidden layers, and rpe_layers is 0")
        self.activation = ACTIVATIONS[activation]
        self.residual = residual
        self.first = LinearMap(1, dim)
        before, last = ("none", "layer") if norm == "last_layer" else (norm, norm)
        self.norms = nn.ModuleList(build_norm(before, dim) for _ in range(num_layers))
        self.norms.append(build_norm(last, dim))
        widths = [dim] * num_layers + [channels]
        self.linears = nn.ModuleList(LinearMap(dim, width) for width in widths)

    def forward(self, numbers: Tensor) -> Tensor:
        """Encode numbers, which are lags or frequencies.

        Args:
            numbers: (count,).
        Returns: (channels, count).
        """
        hidden = self.first(numbers[:, None])
        for norm, linear in zip(list(self.norms)[:-1], list(self.linears)[:-1], strict=True):
            encoded = linear(self.activation(norm(hidden)))
            hidden = hidden + encoded if self.residual else encoded
        last = self.linears[-1]
        assert isinstance(last, nn.Linear)
        hidden = self.activation(self.norms[-1](hidden))
        return torch.addmm(last.bias[:, None], last.weight, hidden.T)
