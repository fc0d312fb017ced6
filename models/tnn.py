"""The Toeplitz neural network's token mixer.

Qin et al., "Toeplitz Neural Network for Sequence Modeling", ICLR 2023 (arXiv:2305.04749).
"""

from __future__ import annotations

import functools
import math
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from models.base import MixerContext
from models.layers.gated_unit import ExpandRatio, GatedToeplitzUnit, inner_channels
from models.layers.long_convolution import ToeplitzMixer, ToeplitzOperator
from models.layers.relative_position_encoder import (
    EncoderLayers,
    EncoderWidth,
    Norm,
    RelativePositionEncoder,
)
from models.ops.activations import Activation

Decay = Annotated[float, Field(gt=0, lt=1)]
LagInput = Literal["raw", "scaled"]


class EncodedToeplitzOperator(ToeplitzOperator):
    """The TNO: kernels that encoders of the lag generate, times a decay.

    Each head has an encoder of its own, so one head is the published operator.

    Args:
        lag_scale: what lags are multiplied by on their way into the encoders. It must not
            depend on the padded length, or padding would change the result.
        decay: gamma, in (0, 1).
        learned_decay: channels whose gamma is learned, from `decay` on; 0 for a fixed one.
    """

    def __init__(
        self,
        encoders: list[RelativePositionEncoder],
        *,
        causal: bool,
        lag_scale: float = 1.0,
        decay: float | None = None,
        learned_decay: int = 0,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.causal = causal
        self.lag_scale = lag_scale
        self.decay = decay
        self.decay_logit = None
        if learned_decay:
            assert decay is not None
            logit = torch.full((learned_decay,), math.log(decay / (1 - decay)))
            self.decay_logit = nn.Parameter(logit)
        self.window = window

    def generate(self, length: int) -> tuple[Tensor, int]:
        """See `ToeplitzOperator.generate`."""
        reach = length if self.window is None else min(length, self.window)
        first_lag = 0 if self.causal else 1 - reach
        weight = next(self.encoders.parameters())
        lags = torch.arange(first_lag, reach, dtype=weight.dtype, device=weight.device)
        heads = [encoder(lags * self.lag_scale).T for encoder in self.encoders]
        kernel = (torch.cat(heads) if len(heads) > 1 else heads[0]).T
        if self.decay_logit is not None:
            log_decay = functional.logsigmoid(self.decay_logit)
            kernel = kernel * torch.exp(lags.abs()[:, None] * log_decay)
        elif self.decay is not None:
            kernel = kernel * (self.decay ** lags.abs())[:, None]
        return kernel, first_lag


class TNN(ToeplitzMixer):
    """Gated Toeplitz unit around the Toeplitz neural operator, O(length log length).

    Args:
        expand_ratio: channels inside the unit over channels outside.
        num_heads: relative position encoders, each for an equal share of the channels.
        activation: of the gate and the value.
        inner_norm: norm of the gated product, before the output projection.
        rpe_dim: width of a relative position encoder.
        rpe_layers: hidden layers of a relative position encoder.
        rpe_activation: its activation.
        rpe_norm: its norm, before each activation.
        rpe_residual: whether each of its hidden layers adds to its input.
        rpe_input: the lag in positions, or over the longest sequence of the task.
        decay: gamma in (0, 1); the coefficient at a lag is scaled by gamma ** |lag|. None: not.
        decay_learned: whether each channel learns its gamma, from `decay` on.
        window: positions; coefficients are zero at |lag| >= window. None: no limit.
    Raises: ValueError if the inner channels cannot be shared out to the heads, or for
        decay_learned without decay.
    """

    name = "tnn"
    has_native_grid = True

    def __init__(
        self,
        context: MixerContext,
        *,
        expand_ratio: ExpandRatio = 3.0,
        num_heads: PositiveInt = 1,
        activation: Activation = "silu",
        inner_norm: Norm = "none",
        rpe_dim: EncoderWidth = 32,
        rpe_layers: EncoderLayers = 3,
        rpe_activation: Activation = "relu",
        rpe_norm: Norm = "simple_rms",
        rpe_residual: bool = False,
        rpe_input: LagInput = "raw",
        decay: Decay | None = 0.99,
        decay_learned: bool = False,
        window: PositiveInt | None = None,
    ) -> None:
        hidden = inner_channels(expand_ratio, context.dim)
        if hidden % num_heads:
            raise ValueError(
                f"num_heads {num_heads} does not divide the {hidden} inner channels "
                f"(expand_ratio {expand_ratio} times dim {context.dim})"
            )
        if decay_learned and decay is None:
            raise ValueError("decay_learned needs a decay to start from, and decay is null")
        encode = functools.partial(
            RelativePositionEncoder,
            hidden // num_heads,
            dim=rpe_dim,
            num_layers=rpe_layers,
            activation=rpe_activation,
            norm=rpe_norm,
            residual=rpe_residual,
        )

        def operator(max_length: int) -> EncodedToeplitzOperator:
            return EncodedToeplitzOperator(
                [encode() for _ in range(num_heads)],
                causal=context.causal,
                lag_scale=1.0 if rpe_input == "raw" else 1.0 / max_length,
                decay=decay,
                learned_decay=hidden if decay_learned else 0,
                window=window,
            )

        unit = GatedToeplitzUnit(
            context, operator, hidden=hidden, activation=activation, inner_norm=inner_norm
        )
        super().__init__(context, unit)

    def learning_rates(self) -> dict[nn.Parameter, float | None]:
        """See `Mixer.learning_rates`: weight decay would pull learned decays towards 1/2."""
        operators = [m for m in self.modules() if isinstance(m, EncodedToeplitzOperator)]
        return {o.decay_logit: None for o in operators if o.decay_logit is not None}
