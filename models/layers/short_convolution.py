"""Short causal convolutions and time steps of recurrences whose gates depend on the input."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lra.models.layers.state_space import initial_log_steps
from lra.models.ops.toeplitz import depthwise_convolution

SoftplusStep = Annotated[float, Field(ge=1e-4, le=1e3)]
"""An initial time step that is the softplus of a parameter."""


class ShortConvolution(nn.Module):
    """A causal depthwise convolution with `size` taps."""

    def __init__(self, channels: int, size: int, *, bias: bool) -> None:
        super().__init__()
        bound = size**-0.5
        self.taps = nn.Parameter(torch.empty(size, channels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Convolve: (batch, length, channels) -> the same shape."""
        y = depthwise_convolution(x, self.taps.T, 0)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def initial_state(self, batch: int) -> Tensor:
        """Return zeros, the inputs before the first position: (batch, size - 1, channels)."""
        return self.taps.new_zeros(batch, len(self.taps) - 1, self.taps.shape[1])

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Process a position: (batch, channels), a state -> (batch, channels), the next state."""
        latest = torch.cat([state, x[:, None].to(state.dtype)], dim=1)
        y = (latest * self.taps.flip(0)).sum(dim=1)
        y = y if self.bias is None else y + self.bias
        return y.to(x.dtype), latest[:, 1:]

    def state_after(self, x: Tensor) -> Tensor:
        """Return the state after the first positions: x (batch, length, channels)."""
        padded = torch.cat([self.initial_state(len(x)), x.to(self.taps.dtype)], dim=1)
        return padded[:, x.shape[1] :].clone()


def draw_step_biases(count: int, smallest: float, largest: float) -> Tensor:
    """Draw time steps evenly on a logarithmic scale, and return their inverse softplus: (count,).

    Raises: ValueError if the smallest exceeds the largest.
    """
    steps = initial_log_steps(count, smallest, largest).detach().exp()
    return steps + torch.log(-torch.expm1(-steps))
