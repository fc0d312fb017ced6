"""Linear maps, dropout, activations and norms over channels."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from lra.models.ops.reference import has_fast_form

Activation = Literal["relu", "silu", "gelu"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
}


@has_fast_form("linear_map")
def linear_map(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x W^T + b: x (..., inputs), W (outputs, inputs) -> (..., outputs)."""
    return functional.linear(x, weight, bias)


def to_autocast_type(x: Tensor) -> Tensor:
    """Convert x to autocast's type, so that several maps of it keep one copy, not one each."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


class LinearMap(nn.Linear):
    """`torch.nn.Linear` by `linear_map`, which is faster on some processors."""

    def forward(self, input: Tensor) -> Tensor:
        """Map the last dimension: (..., inputs) -> (..., outputs)."""
        return linear_map(input, self.weight, self.bias)


@has_fast_form("dropout")
def drop_out(x: Tensor, probability: float) -> Tensor:
    """Zero numbers of x at random, and scale the others so that the mean is unchanged."""
    return functional.dropout(x, probability)


class Dropout(nn.Module):
    """Dropout of single numbers in training, with a probability in [0, 1).

    On a CPU it is rounded to a multiple of 1 / 65,536, see `lra.models.fast.dropout`.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    @property
    def is_active(self) -> bool:
        """Whether anything is dropped: in training, with a probability above 0."""
        return self.training and self.probability > 0

    def forward(self, x: Tensor) -> Tensor:
        """Drop numbers of x, of any shape."""
        return drop_out(x, self.probability) if self.is_active else x


class ChannelDropout(Dropout):
    """Dropout of channels of whole sequences, which published code calls tied dropout."""

    def factors(self, sequences: int, x: Tensor) -> Tensor:
        """Draw 0 or the scale, (sequences, channels), for sequences like x, (..., channels)."""
        return super().forward(x.new_ones(sequences, x.shape[-1]))

    def forward(self, x: Tensor) -> Tensor:
        """Drop channels of x: (batch, length, channels)."""
        return x * self.factors(len(x), x)[:, None] if self.is_active else x


def build_dropout(probability: float, *, tied: bool) -> Dropout:
    """Build the dropout of single numbers, or of whole channels (tied)."""
    return ChannelDropout(probability) if tied else Dropout(probability)


class SimpleRMSNorm(nn.Module):
    """Divide by the root mean square over channels; there are no parameters (TNN's code)."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x: (..., channels) -> the same shape."""
        rms = torch.linalg.vector_norm(x, dim=-1, keepdim=True) * x.shape[-1] ** -0.5
        return x / (rms + 1e-8)  # outside of the root, as in the published code
