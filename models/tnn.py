"""TNN: a gated unit around a Toeplitz matrix whose coefficients a small network computes.

Qin et al., "Toeplitz Neural Network for Sequence Modeling", ICLR 2023 (arXiv:2305.04749).

Symbols of the paper and their names here:
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

import math
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from lra.common.options import Added
from lra.models.base import LearningRates, MixerContext
from lra.models.layers.basic import Activation
from lra.models.layers.long_convolution import LongConvolution
from lra.models.layers.toeplitz_unit import (
    EncoderLayers,
    EncoderNorm,
    EncoderWidth,
    ExpandRatio,
    GatedToeplitzUnit,
    Norm,
    RelativePositionEncoder,
    ToeplitzMixer,
    inner_channels,
)
from lra.models.ops.toeplitz import LagKernel

Decay = Annotated[float, Field(gt=0, lt=1)]
LagInput = Literal["raw", "scaled"]


class EncodedToeplitzOperator(LongConvolution):
    """The Toeplitz neural operator (TNO), with coefficients t[lag] = decay ** |lag| * RPE(lag).

    Each head has its own encoder. With one head this is the published operator. For other options
    see `TNN`.

    Args:
        encoders: one encoder per head, for channels / len(encoders) channels each.
        lag_scale: factor of the encoders' inputs; it must not depend on the padded length.
        learned_decays: their number, each for as many channels. 0: the decay is fixed.
    """

    def __init__(
        self,
        encoders: list[RelativePositionEncoder],
        channels: int,
        *,
        causal: bool,
        lag_scale: float = 1.0,
        decay: float | None = None,
        learned_decays: int = 0,
        decay_floor: float = 0.0,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.encoders = nn.ModuleList(encoders)
        self.causal = causal
        self.lag_scale = lag_scale
        self.decay = decay
        self.decay_floor = decay_floor
        self.decay_logit = None
        if learned_decays:
            if decay is None:
                logits = torch.randn(learned_decays)  # as in released code
            else:
                logits = torch.full(
                    (learned_decays,), math.log((decay - decay_floor) / (1 - decay))
                )
            self.decay_logit = nn.Parameter(logits)
        self.window = window

    def log_decays(self) -> Tensor:
        """Return the logarithms of the learned decays, floor + (1 - floor) sigmoid: (channels,)."""
        assert self.decay_logit is not None
        if self.decay_floor == 0:
            logs = functional.logsigmoid(self.decay_logit)
        else:
            above = (1 - self.decay_floor) * torch.sigmoid(self.decay_logit)
            logs = torch.log(self.decay_floor + above)
        return logs.repeat_interleave(self.channels // len(logs))

    def generate(self, length: int) -> LagKernel:
        reach = length if self.window is None else min(length, self.window)
        first_lag = 0 if self.causal else 1 - reach
        weight = next(self.encoders.parameters())
        lags = torch.arange(first_lag, reach, dtype=weight.dtype, device=weight.device)
        heads = [encoder(lags * self.lag_scale) for encoder in self.encoders]
        kernel = torch.cat(heads) if len(heads) > 1 else heads[0]
        if self.decay_logit is not None:
            kernel = kernel * torch.exp(lags.abs() * self.log_decays()[:, None])
        elif self.decay is not None:
            kernel = kernel * self.decay ** lags.abs()
        return LagKernel(kernel, first_lag)


class TNN(ToeplitzMixer):
    """Gated Toeplitz unit around the Toeplitz neural operator, O(length log length).

    Args:
        expand_ratio: ratio of the channels inside the unit to those outside.
        num_heads: number of relative position encoders, each for an equal number of channels.
        activation: activation of the gate and the value.
        inner_norm: norm of the gated product, before the output projection.
        rpe_dim: width of a relative position encoder.
        rpe_layers: number of hidden layers of a relative position encoder.
        rpe_activation: activation in a relative position encoder.
        rpe_norm: norm before each activation of a relative position encoder. "last_layer" is a
            layer norm before the last activation only, as in the released code.
        rpe_residual: whether each hidden layer of an encoder adds its result to its input.
        rpe_input: the encoder's input for a lag: "raw", the number of positions, or "scaled",
            that number divided by the task's longest sequence.
        decay: in (0, 1). The coefficient at a lag is multiplied by decay ** |lag|. None: no decay.
        decay_learned: whether decays are learned. They start at `decay`; if that is None, they
            start at random, as with `use_multi_decay` in the released code, and need decay_floor.
        decay_per: whether each "channel" or each "head" learns a decay.
        decay_floor: lower bound of learned decays, floor + (1 - floor) * sigmoid. None: 0.
        window: in positions. Coefficients are zero at |lag| >= window. None: no limit.
    Raises: ValueError if the heads do not divide the inner channels, for decay_learned without
        decay or decay_floor, for a decay below decay_floor, for decay_floor or decay_per without
        decay_learned, and for rpe_residual without hidden layers.
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
        rpe_norm: EncoderNorm = "simple_rms",
        rpe_residual: bool = False,
        rpe_input: LagInput = "raw",
        decay: Decay | None = 0.99,
        decay_learned: bool = False,
        decay_per: Annotated[Literal["channel", "head"], Added("channel")] = "channel",
        decay_floor: Annotated[Decay | None, Added(None)] = None,
        window: PositiveInt | None = None,
    ) -> None:
        hidden = inner_channels(expand_ratio, context.dim)
        if hidden % num_heads:
            raise ValueError(f"num_heads {num_heads} does not divide the {hidden} inner channels")
        _check_decay(decay, learned=decay_learned, per=decay_per, floor=decay_floor)
        learned = {"channel": hidden, "head": num_heads}[decay_per] if decay_learned else 0

        def operator(max_length: int) -> EncodedToeplitzOperator:
            encoders = [
                RelativePositionEncoder(
                    hidden // num_heads, dim=rpe_dim, num_layers=rpe_layers,
                    activation=rpe_activation, norm=rpe_norm, residual=rpe_residual,
                )
                for _ in range(num_heads)
            ]  # fmt: skip
            return EncodedToeplitzOperator(
                encoders,
                hidden,
                causal=context.causal,
                lag_scale=1.0 if rpe_input == "raw" else 1.0 / max_length,
                decay=decay,
                learned_decays=learned,
                decay_floor=decay_floor or 0.0,
                window=window,
            )

        unit = GatedToeplitzUnit(
            context, operator, hidden=hidden, activation=activation, inner_norm=inner_norm
        )
        super().__init__(context, unit)

    def learning_rates(self) -> LearningRates:
        """Exempt learned decays from weight decay, which would pull them towards 1/2."""
        operators = [m for m in self.modules() if isinstance(m, EncodedToeplitzOperator)]
        return {o.decay_logit: None for o in operators if o.decay_logit is not None}


def _check_decay(decay: float | None, *, learned: bool, per: str, floor: float | None) -> None:
    """Raise ValueError for options of the decay that contradict one another."""
    if not learned and (floor is not None or per != "channel"):
        name = "decay_per" if floor is None else "decay_floor"
        raise ValueError(f"{name} concerns learned decays, and decay_learned is false")
    if learned and decay is None and floor is None:
        raise ValueError("decay_learned needs a decay to start from, and decay is null")
    if decay is not None and floor is not None and decay <= floor:
        raise ValueError(
            f"decay {decay}, where learned ones start, is not above decay_floor {floor}"
        )
