"""TNN: a gated unit around products with Toeplitz matrices that a network generates.

Qin et al., "Toeplitz Neural Network for Sequence Modeling", ICLR 2023 (arXiv:2305.04749), and
"The Annotated TNN", the authors' commented code, which is cited by its headings.

Symbols of the paper and their names here:
    n: length
    d: context.dim, the channels outside the unit
    d1: hidden, the channels inside the unit
    t: LagKernel.coefficients
    T: LagKernel.matrix
    lambda (gamma in the published code): decay
    RPE: RelativePositionEncoder
    TNO: EncodedToeplitzOperator
    GTU: GatedToeplitzUnit
    W_1, W_2, W_3: gate, value and output of GatedToeplitzUnit
    f: activation
"""

from __future__ import annotations

import functools
import math
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import nn
from torch.nn import functional

from models.base import MixerContext
from models.layers.gated_unit import ExpandRatio, GatedToeplitzUnit, inner_channels
from models.layers.long_convolution import LongConvolution
from models.layers.norms import Norm
from models.layers.relative_position_encoder import (
    EncoderLayers,
    EncoderWidth,
    RelativePositionEncoder,
)
from models.layers.toeplitz_mixer import ToeplitzMixer
from models.ops.activations import Activation
from models.ops.toeplitz import LagKernel

Decay = Annotated[float, Field(gt=0, lt=1)]
LagInput = Literal["raw", "scaled"]


class EncodedToeplitzOperator(LongConvolution):
    """The Toeplitz neural operator (TNO), with coefficients t[lag] = decay ** |lag| * RPE(lag).

    Each head has an encoder of its own, so that one head is the published operator.

    Args:
        encoders: one per head; each gives channels / len(encoders) channels.
        channels: in and out.
        causal: whether the coefficients of negative lags are zero.
        lag_scale: factor on the lags that enter the encoders. It must not depend on the padded
            length, or padding would change the result.
        decay: in (0, 1). None: no decay.
        learned_decay: channels that learn their decay, starting from `decay`; 0 for a fixed one.
        window: positions; coefficients are zero at |lag| >= window. None: no limit.
    """

    def __init__(
        self,
        encoders: list[RelativePositionEncoder],
        channels: int,
        *,
        causal: bool,
        lag_scale: float = 1.0,
        decay: float | None = None,
        learned_decay: int = 0,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.channels = channels
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

    def generate(self, length: int) -> LagKernel:
        """See `LongConvolution.generate`."""
        reach = length if self.window is None else min(length, self.window)
        first_lag = 0 if self.causal else 1 - reach
        weight = next(self.encoders.parameters())
        lags = torch.arange(first_lag, reach, dtype=weight.dtype, device=weight.device)
        heads = [encoder(lags * self.lag_scale) for encoder in self.encoders]
        kernel = torch.cat(heads) if len(heads) > 1 else heads[0]
        if self.decay_logit is not None:
            log_decay = functional.logsigmoid(self.decay_logit)
            kernel = kernel * torch.exp(lags.abs() * log_decay[:, None])
        elif self.decay is not None:
            kernel = kernel * self.decay ** lags.abs()
        return LagKernel(kernel, first_lag)


class TNN(ToeplitzMixer):
    """Gated Toeplitz unit around the Toeplitz neural operator, O(length log length).

    Args:
        expand_ratio: channels inside the unit over channels outside.
        num_heads: relative position encoders, each for an equal number of channels.
        activation: of the gate and the value.
        inner_norm: norm of the gated product, before the output projection.
        rpe_dim: width of a relative position encoder.
        rpe_layers: hidden layers of a relative position encoder.
        rpe_activation: activation in a relative position encoder.
        rpe_norm: norm before each activation of a relative position encoder.
        rpe_residual: whether each hidden layer of an encoder adds to its input.
        rpe_input: what an encoder sees of a lag: "raw", the number of positions, or "scaled",
            that number divided by the task's longest sequence.
        decay: in (0, 1); the coefficient at a lag is scaled by decay ** |lag|. None: no decay.
        decay_learned: whether each channel learns its decay, starting from `decay`.
        window: positions; coefficients are zero at |lag| >= window. None: no limit.
    Raises: ValueError if the heads do not divide the inner channels, if decay_learned is set
        without decay, or if rpe_residual is set without hidden layers.
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
                hidden,
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
        """Exempt learned decays from weight decay, which would pull them towards 1/2.

        Returns: the run's learning rate, None, for each of them.
        """
        operators = [m for m in self.modules() if isinstance(m, EncodedToeplitzOperator)]
        return {o.decay_logit: None for o in operators if o.decay_logit is not None}
