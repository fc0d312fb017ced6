"""The Toeplitz neural network's token mixer.

Qin et al., "Toeplitz Neural Network for Sequence Modeling", ICLR 2023 (arXiv:2305.04749).
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor, nn

from models._activations import Activation
from models._gated_unit import GatedToeplitzUnit
from models._position_encoder import PositionNorm, RelativePositionEncoder
from models._toeplitz import toeplitz_multiply
from models.base import Mixer, MixerContext

Decay = Annotated[float, Field(gt=0, lt=1)]
Ratio = Annotated[float, Field(gt=0, le=1000)]


class ToeplitzOperator(nn.Module):
    """The TNO: every channel multiplied by a Toeplitz matrix that encoders of the lag generate.

    Each head has an encoder of its own, so one head is the published operator. The lag goes
    in raw: dividing it by the padded length would let padding change the result.
    """

    def __init__(
        self,
        encoders: list[RelativePositionEncoder],
        *,
        causal: bool,
        decay: float | None,
        window: int | None,
    ) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.causal = causal
        self.decay = decay
        self.window = window

    def coefficients(self, length: int) -> tuple[Tensor, int]:
        """Generate the kernel for sequences of a length.

        Returns: (num_lags, channels) for increasing lags, and the first lag.
        """
        # Autocast would round lags above 256 to bfloat16, and neighbours to one number.
        with torch.autocast(next(self.parameters()).device.type, enabled=False):
            return self._coefficients(length)

    def _coefficients(self, length: int) -> tuple[Tensor, int]:
        reach = length if self.window is None else min(length, self.window)
        first_lag = 0 if self.causal else 1 - reach
        weight = next(self.parameters())
        lags = torch.arange(first_lag, reach, dtype=weight.dtype, device=weight.device)
        kernel = torch.cat([encoder(lags) for encoder in self.encoders], dim=-1)
        if self.decay is not None:
            kernel = kernel * (self.decay ** lags.abs())[:, None]
        return kernel, first_lag

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x: (batch, length, channels) -> the same shape."""
        kernel, first_lag = self.coefficients(x.shape[1])
        return toeplitz_multiply(kernel, first_lag, x)


class TNN(Mixer):
    """Gated Toeplitz unit around the Toeplitz neural operator, O(length log length).

    Args:
        expand_ratio: channels inside the unit over channels outside.
        num_heads: relative position encoders, each for an equal share of the channels.
        activation: of the gate and the value.
        rpe_dim: width of a relative position encoder.
        rpe_layers: hidden layers of a relative position encoder.
        rpe_activation: its activation.
        rpe_norm: its norm, before each activation.
        decay: gamma in (0, 1); the coefficient at a lag is scaled by gamma ** |lag|. None: not.
        window: positions; coefficients are zero at |lag| >= window. None: no limit.
    Raises: ValueError if the inner channels cannot be shared out to the heads.
    """

    name = "tnn"

    def __init__(
        self,
        context: MixerContext,
        *,
        expand_ratio: Ratio = 3.0,
        num_heads: PositiveInt = 1,
        activation: Activation = "silu",
        rpe_dim: Annotated[int, Field(ge=1, le=2**16)] = 32,
        rpe_layers: NonNegativeInt = 3,
        rpe_activation: Activation = "relu",
        rpe_norm: PositionNorm = "simple_rms",
        decay: Decay | None = 0.99,
        window: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        hidden = int(expand_ratio * context.dim)
        if hidden < 1 or hidden % num_heads:
            raise ValueError(
                f"num_heads {num_heads} does not divide the {hidden} inner channels "
                f"(expand_ratio {expand_ratio} times dim {context.dim})"
            )
        encoders = [
            RelativePositionEncoder(
                hidden // num_heads,
                dim=rpe_dim,
                num_layers=rpe_layers,
                activation=rpe_activation,
                norm=rpe_norm,
            )
            for _ in range(num_heads)
        ]
        operator = ToeplitzOperator(encoders, causal=context.causal, decay=decay, window=window)
        self.unit = GatedToeplitzUnit(context.dim, hidden, activation, operator)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See `Mixer.forward`."""
        return self.unit(x, mask)
