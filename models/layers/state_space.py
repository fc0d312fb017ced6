"""Parts that S4, S4D and DSS share: kernels per direction, and the layer around them."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Mapping
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from models.base import DecayingAt, MixerContext, Recurrence, RecurrentMixer
from models.layers.convolution_mixer import ConvolutionMixer, Output, join_directions
from models.layers.long_convolution import LongConvolution
from models.layers.recurrence import TimeInvariantRecurrence, WrappedRecurrence
from models.ops.toeplitz import LagKernel

StateSize = Annotated[int, Field(ge=2, le=2**12, multiple_of=2)]
Rate = Annotated[float, Field(gt=0)]
Step = Annotated[float, Field(gt=0, le=1e3)]


class StateSpaceConvolution(LongConvolution):
    """One causal kernel per channel and direction, joined to one kernel over all lags.

    With one direction the convolution is causal. With two it is bidirectional: the second kernel is
    for later positions (Goel et al., "It's Raw!", ICML 2022).
    """

    log_step: nn.Parameter
    """(channels, ...) logarithm of each channel's time step, Delta."""
    readout: nn.Parameter
    """(directions, channels, states, 2) C, as pairs of real numbers."""

    @abc.abstractmethod
    def kernels(self, length: int) -> Tensor:
        """Generate the kernels for lags 0..length - 1: (directions, channels, length)."""

    @abc.abstractmethod
    def state_parameters(self) -> list[nn.Parameter]:
        """Return the parameters without weight decay, except the time steps."""

    @abc.abstractmethod
    def recurrence(self, length: int) -> TimeInvariantRecurrence:
        """Return the recurrence of the first direction's kernel.

        Args:
            length: positions over which it must be equal to the kernel.
        Returns: a recurrence from (batch, channels) to (batch, channels).
        """

    def generate(self, length: int) -> LagKernel:
        """Join the kernels of the directions, see `LongConvolution.generate`."""
        return join_directions(self.kernels(length), length)


class StateSpaceMixer(ConvolutionMixer[StateSpaceConvolution], RecurrentMixer):
    """The layer of S4, S4D and DSS, see `ConvolutionMixer`.

    Args:
        context: facts about the model and the task.
        convolution: K.
        state_lr: highest learning rate of the parameters of `state_parameters`. None: the run's.
        step_lr: highest learning rate of the time steps. None: the run's.
        readout_lr: highest learning rate of C, with the run's weight decay. None: the run's.
        output: "glu", or "linear" for W without a gate.
        drops_convolved: whether there is dropout before gelu as well.
    """

    def __init__(
        self,
        context: MixerContext,
        convolution: StateSpaceConvolution,
        *,
        state_lr: float | None,
        step_lr: float | None,
        readout_lr: float | None = None,
        output: Output = "glu",
        drops_convolved: bool = True,
    ) -> None:
        super().__init__(context, convolution, output=output, drops_convolved=drops_convolved)
        self.state_lr = state_lr
        self.step_lr = step_lr
        self.readout_lr = readout_lr

    def learning_rates(self) -> Mapping[nn.Parameter, float | DecayingAt | None]:
        """Return the learning rates of the dynamics, see `Mixer.learning_rates`."""
        rates: dict[nn.Parameter, float | DecayingAt | None] = {}
        if self.readout_lr is not None:
            rates[self.convolution.readout] = DecayingAt(self.readout_lr)
        rates |= dict.fromkeys(self.convolution.state_parameters(), self.state_lr)
        return {**rates, self.convolution.log_step: self.step_lr}

    def freeze(self, length: int) -> Recurrence:
        """Return a recurrence whose state does not grow with the length."""
        return WrappedRecurrence(
            self.convolution.recurrence(length),
            functools.partial(self.convolution.convolve_prefix, length=length),
            before=lambda x: x,
            after=self.project,
        )


def num_directions(context: MixerContext) -> int:
    """Return the number of kernels per channel: 1 if the context is causal, else 2."""
    return 1 if context.causal else 2


def initial_log_steps(channels: int, step_min: float, step_max: float) -> nn.Parameter:
    """Draw time steps evenly on a logarithmic scale, and return their logarithms.

    Returns: (channels,).
    Raises: ValueError if step_min exceeds step_max.
    """
    if step_min > step_max:
        raise ValueError(f"step_min {step_min} exceeds step_max {step_max}")
    low, high = math.log(step_min), math.log(step_max)
    return nn.Parameter(torch.rand(channels) * (high - low) + low)


def real_dtype() -> torch.dtype:
    """Return the type of the parameters of state spaces.

    It is torch's default type, but at least single precision, because torch has neither complex
    numbers nor Fourier transforms in bfloat16.
    """
    return torch.promote_types(torch.get_default_dtype(), torch.float32)


def complex_dtype() -> torch.dtype:
    """Return the type of complex numbers whose parts have `real_dtype`."""
    return real_dtype().to_complex()


def complex_parameter(values: Tensor) -> nn.Parameter:
    """Store complex numbers as pairs of real ones: (...) complex -> (..., 2) real.

    Optimizers and `module.double()` then treat them correctly.
    """
    return nn.Parameter(torch.view_as_real(values.resolve_conj()).to(real_dtype()).clone())


def random_complex(*shape: int) -> Tensor:
    """Draw complex normal numbers of variance 1, of `complex_dtype`."""
    return torch.randn(*shape, dtype=complex_dtype())


def per_channel(values: Tensor, channels: int) -> Tensor:
    """Repeat the values of each set of poles for all channels that use the set.

    Args:
        values: (copies, states).
        channels: a multiple of the copies.
    Returns: (channels, states).
    """
    return values.repeat(channels // values.shape[0], 1)


def check_copies(num_copies: int | None, channels: int) -> int:
    """Return the number of sets of poles.

    Args:
        num_copies: the option; None for one set per channel.
        channels: of the mixer.
    Raises: ValueError if the copies do not divide the channels.
    """
    copies = channels if num_copies is None else num_copies
    if channels % copies:
        raise ValueError(f"num_copies {num_copies} does not divide model.dim {channels}")
    return copies
