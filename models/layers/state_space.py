"""What S4, S4D, DSS and other long convolutions share: the layer around them and recurrences."""

import abc
import functools
import math
from collections.abc import Callable
from typing import Annotated, Any, Generic, Literal, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from lra.models.base import (
    DecayingAt,
    LearningRates,
    Mixer,
    MixerContext,
    Recurrence,
    RecurrentMixer,
)
from lra.models.layers.basic import Dropout, LinearMap, build_dropout
from lra.models.layers.long_convolution import LongConvolution
from lra.models.ops.toeplitz import LagKernel, diagonal_from_kernel

Output = Literal["glu", "linear"]
StateSize = Annotated[int, Field(ge=2, le=2**12, multiple_of=2)]
Rate = Annotated[float, Field(gt=0)]
Step = Annotated[float, Field(ge=1e-12, le=1e3)]
Convolution = TypeVar("Convolution", bound=LongConvolution)


class ConvolutionMixer(Mixer, Generic[Convolution]):
    """The layer GLU(W gelu(K x + D x)), or the same without GLU; K x is a convolution.

    The context's inner dropout acts on the output of gelu, as in the code of DSS, and on whole
    channels if it is tied. With `drops_convolved` it also acts on the input, as in that of S4.

    Args:
        convolution: K, with dim channels or a multiple of them. Each copy of the channels has its
            own kernels, and W joins the copies.
        output: "glu", or "linear" for W without a gate.
        drops_convolved: whether there is dropout before gelu as well.
    """

    def __init__(
        self,
        context: MixerContext,
        convolution: Convolution,
        *,
        output: Output = "glu",
        drops_convolved: bool = True,
    ) -> None:
        super().__init__()
        self.context = context
        self.convolution = convolution
        self.is_gated = output == "glu"
        self.copies = convolution.channels // context.dim
        self.direct = nn.Parameter(torch.randn(convolution.channels))
        self.output = LinearMap(convolution.channels, context.dim * (2 if self.is_gated else 1))
        self.dropout = build_dropout(context.inner_dropout, tied=context.tied_dropout)
        self.convolved_dropout = Dropout(context.inner_dropout if drops_convolved else 0.0)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)
        if self.copies > 1:
            x = x.repeat(1, 1, self.copies)
        return self.project(x, self.convolution(x))

    def project(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add D x to the convolution's output, (..., channels), activate and project."""
        mixed = self.convolved_dropout(mixed + self.direct.to(x.dtype) * x)
        y = self.output(self.dropout(functional.gelu(mixed)))
        return functional.glu(y, dim=-1) if self.is_gated else y


def join_directions(kernels: Tensor, length: int) -> LagKernel:
    """Join kernels, (directions, channels, length): of lags 0, 1, ... and of lags -1, -2, ..."""
    ahead = kernels[1:, :, : length - 1].flip(-1)
    return LagKernel(torch.cat([*ahead, kernels[0]], dim=-1), (1 - length) * len(ahead))


class TimeInvariantRecurrence(Recurrence):
    """A recurrence s' = A s + B x whose state is one tensor, of the type of its poles."""

    poles: Tensor
    """(channels, states) or, of all channels, (1, states)."""
    num_channels: int

    def initial_state(self, batch: int) -> Tensor:
        """Return zeros: (batch, channels, states)."""
        return self.poles.new_zeros(batch, self.num_channels, self.poles.shape[1])

    @abc.abstractmethod
    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Process a position: x (batch, channels), state -> (batch, channels), the next state."""

    @abc.abstractmethod
    def advance_by(self, steps: int) -> Callable[[Tensor], Tensor]:
        """Return the map A ** steps, from a state to the state after that many zero inputs."""

    def state_after(self, x: Tensor) -> Tensor:
        """Compute the state after the first positions: x (batch, length, channels) -> (batch, ...).

        Positions are divided into about sqrt(length) chunks. All chunks run at the same time, from
        zero states, and their final states are then combined.
        """
        batch, length, _ = x.shape
        chunk = max(1, math.isqrt(length))
        count = -(-length // chunk)
        padded = functional.pad(x, (0, 0, count * chunk - length, 0))  # zeros keep a zero state
        ends = self.initial_state(batch * count)
        for position in padded.unflatten(1, (count, chunk)).flatten(0, 1).unbind(dim=1):
            _, ends = self.step(position, ends)
        advance = self.advance_by(chunk)
        state = self.initial_state(batch)
        for end in ends.unflatten(0, (batch, count)).unbind(dim=1):
            state = advance(state) + end
        return state


class DiagonalStateSpace(TimeInvariantRecurrence):
    """The recurrence s' = poles * s + weights * x, y = Re(sum of s'), O(states) a step.

    Its kernel at lag l is Re(sum of weights * poles ** l). Weights act on the input and not on the
    output. States are then as large as the outputs, even with growing poles and tiny weights.
    """

    def __init__(self, poles: Tensor, weights: Tensor) -> None:
        self.poles = poles
        self.weights = weights
        self.num_channels = len(weights)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.poles * state + self.weights * x[..., None]
        return state.real.sum(dim=-1).to(x.dtype), state

    def advance_by(self, steps: int) -> Callable[[Tensor], Tensor]:
        precise = self.poles.to(torch.promote_types(self.poles.dtype, torch.float64))
        power = (precise**steps).to(self.poles.dtype)
        return lambda state: power * state


class PeriodicStateSpace(DiagonalStateSpace):
    """The recurrence of any causal kernel over a length, O(length) states a channel.

    This is the closed form of ETSC (Qin and Zhong, "Accelerating Toeplitz Neural Network with
    Constant-time Inference Complexity", EMNLP 2023), see `diagonal_from_kernel`. Beyond the length
    the kernel would repeat itself.
    """

    def __init__(self, kernel: LagKernel, length: int) -> None:
        super().__init__(*diagonal_from_kernel(kernel, length))
        self.length = length

    def state_after(self, x: Tensor) -> Tensor:
        """See `TimeInvariantRecurrence.state_after`; the state is a Fourier transform of x."""
        backwards = x.to(self.weights.real.dtype).transpose(1, 2).flip(-1)
        return self.weights * torch.fft.rfft(backwards, n=self.length).conj()


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
        """Return the recurrence of the first direction's kernel, equal to it over a length."""

    def generate(self, length: int) -> LagKernel:
        return join_directions(self.kernels(length), length)


class StateSpaceMixer(ConvolutionMixer[StateSpaceConvolution], RecurrentMixer):
    """The layer of S4, S4D and DSS, see `ConvolutionMixer`.

    The highest learning rates are state_lr of the parameters of `state_parameters`, step_lr of the
    time steps and readout_lr of C, which has the run's weight decay. None: the run's.
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

    def learning_rates(self) -> LearningRates:
        rates: dict[nn.Parameter, float | DecayingAt | None] = {}
        if self.readout_lr is not None:
            rates[self.convolution.readout] = DecayingAt(self.readout_lr)
        rates |= dict.fromkeys(self.convolution.state_parameters(), self.state_lr)
        return {**rates, self.convolution.log_step: self.step_lr}

    def freeze(self, length: int) -> Recurrence:
        """Return a recurrence whose state does not grow with the length."""
        return ConvolutionRecurrence(self, self.convolution.recurrence(length), length)


class ConvolutionRecurrence(Recurrence):
    """The layer of a `ConvolutionMixer`, whose convolution is a recurrence up to a length."""

    def __init__(
        self, mixer: ConvolutionMixer[Any], inner: TimeInvariantRecurrence, length: int
    ) -> None:
        self.inner = inner
        self.convolve = functools.partial(mixer.convolution.convolve_prefix, length=length)
        self.project = mixer.project

    def initial_state(self, batch: int) -> Tensor:
        return self.inner.initial_state(batch)

    @torch.no_grad()
    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        mixed, state = self.inner.step(x, state)
        return self.project(x, mixed), state

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.project(x, self.convolve(x)), self.inner.state_after(x)


def initial_log_steps(channels: int, step_min: float, step_max: float) -> nn.Parameter:
    """Draw time steps evenly on a logarithmic scale, and return their logarithms, (channels,).

    Raises: ValueError if step_min exceeds step_max.
    """
    if step_min > step_max:
        raise ValueError(f"step_min {step_min} exceeds step_max {step_max}")
    low, high = math.log(step_min), math.log(step_max)
    return nn.Parameter(torch.rand(channels) * (high - low) + low)


def real_dtype() -> torch.dtype:
    """Return the type of the parameters of state spaces: torch's default, or single precision.

    In bfloat16 torch has neither complex numbers nor Fourier transforms.
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
    """Repeat the values of each set of poles, (copies, states), for its channels."""
    return values.repeat(channels // values.shape[0], 1)


def check_copies(num_copies: int | None, channels: int) -> int:
    """Return the number of sets of poles; None is one set per channel.

    Raises: ValueError if the copies do not divide the channels.
    """
    copies = channels if num_copies is None else num_copies
    if channels % copies:
        raise ValueError(f"num_copies {num_copies} does not divide model.dim {channels}")
    return copies
