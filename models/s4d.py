"""S4D: state-space models with diagonal matrices.

Gu et al., "On the Parameterization and Initialization of Diagonal State Space Models",
NeurIPS 2022 (arXiv:2206.11893), sections 3 and 4. The two ways of tuning its frequencies, S4D-FT:
Yu et al., "Tuning Frequency Bias of State Space Models", ICLR 2025 (arXiv:2410.02035), section 5.

Symbols of the paper and their names here:
    H: context.dim, the channels
    N: state_size
    A: the poles, -exp(log_decay) + i frequency
    B: input
    C: readout
    D: StateSpaceMixer.direct
    Delta: exp(log_step)
    A' (A with a bar): the exponentials of the first result of DiagonalConvolution.discretize
    B' C (B with a bar): half of the second result of DiagonalConvolution.discretize
    K (with a bar): DiagonalConvolution.kernels
    V_L: the matrix of powers in vandermonde_product

and of the second:
    alpha: frequency_scale
    beta: exponent
"""

from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from lra.common.options import Added
from lra.models.base import LearningRates, MixerContext
from lra.models.layers.state_space import (
    DiagonalStateSpace,
    Rate,
    StateSize,
    StateSpaceConvolution,
    StateSpaceMixer,
    Step,
    check_copies,
    complex_parameter,
    initial_log_steps,
    per_channel,
    random_complex,
    real_dtype,
)
from lra.models.ops.hippo import INPUT_CLIP, clip_imaginary, diagonalize_legs
from lra.models.ops.toeplitz import LagKernel
from lra.models.ops.vandermonde import vandermonde_product

Initialization = Literal["lin", "inv", "legs"]
Discretization = Literal["zoh", "bilinear"]
InputStart = Literal["hippo", "ones"]
FrequencyScale = Annotated[float, Field(gt=0, le=1e3)]


def initial_poles(kind: Initialization, state_size: int) -> Tensor:
    """Return one pole of each conjugate pair (S4D, section 4): (state_size / 2,) complex128.

    They are -1/2 + i pi n for "lin" (equation 9), -1/2 + i N / pi (N / (2 n + 1) - 1) for "inv"
    (equation 8), and those of the normal part of HiPPO-LegS for "legs".
    """
    n = torch.arange(state_size // 2, dtype=torch.float64)
    if kind == "legs":
        return diagonalize_legs(state_size).poles
    frequency = torch.pi * n
    if kind == "inv":
        frequency = state_size / torch.pi * (state_size / (2 * n + 1) - 1)
    return torch.complex(torch.full_like(n, -0.5), frequency)


def initial_input(start: InputStart, state_size: int) -> Tensor:
    """Return the initial B, (state_size / 2,): ones, or HiPPO-LegS's, clipped as published."""
    if start == "hippo":
        return clip_imaginary(diagonalize_legs(state_size).into, INPUT_CLIP)
    return torch.ones(state_size // 2, dtype=torch.complex128)


def spectral_tilt(kernels: Tensor, exponent: Tensor) -> LagKernel:
    """Multiply the spectrum of kernels by (1 + f) ** exponent, f the frequency in [0, 1/2].

    The spectrum is that of circulant matrices of twice the length. The published code multiplies
    the spectrum of the output instead. The filter has zero phase, so it is not causal.

    Kernels, (2, channels, length), are for lags 0, 1, ... and -1, -2, ...; exponents, (channels,).
    """
    length = kernels.shape[-1]
    response = torch.fft.rfft(torch.cat([kernels[0], kernels[1].flip(-1)], dim=-1))
    steps = torch.arange(length + 1, dtype=response.real.dtype, device=response.device)
    tilted = response * (1 + steps / (2 * length)) ** exponent[:, None]
    circle = torch.fft.irfft(tilted, n=2 * length)
    return LagKernel(torch.cat([circle[:, length + 1 :], circle[:, :length]], dim=1), 1 - length)


class DiagonalConvolution(StateSpaceConvolution):
    """Kernels K[l] = 2 Re(sum over conjugate pairs of C B' A' ** l) (S4D, equation 7).

    With d = Delta A, zero-order hold has A' = exp(d) and B' = B (exp(d) - 1) / A; the bilinear
    transform has A' = (1 + d / 2) / (1 - d / 2) and B' = Delta B / (1 - d / 2) (S4D, section 3.1).
    The real parts of A are -exp(log_decay), always negative (S4D, section 3.3).

    Args:
        poles: (states,) complex, the initial A, one pole of each conjugate pair.
        into: (states,) complex, the initial B.
        log_step: (channels,) logarithms of the time steps.
        is_tilted: whether the spectrum over max_length is multiplied by a learned power of the
            frequency.
    """

    input: Tensor

    def __init__(
        self,
        context: MixerContext,
        *,
        copies: int,
        poles: Tensor,
        into: Tensor,
        log_step: nn.Parameter,
        discretization: Discretization,
        is_tilted: bool,
        learns_input: bool,
    ) -> None:
        super().__init__()
        self.discretization = discretization
        self.channels = context.dim
        self.log_step = log_step
        self.log_decay = nn.Parameter((-poles.real).log().to(real_dtype()).repeat(copies, 1))
        self.frequency = nn.Parameter(poles.imag.to(real_dtype()).repeat(copies, 1))
        b = complex_parameter(into.repeat(copies, 1))
        if learns_input:
            self.input = b
        else:
            self.register_buffer("input", b.detach())
        shape = context.num_directions, context.dim, len(poles)
        self.readout = complex_parameter(random_complex(*shape))
        self.max_length = context.max_length
        self.exponent = nn.Parameter(torch.zeros(context.dim)) if is_tilted else None

    def generate(self, length: int) -> LagKernel:
        """See `LongConvolution.generate`.

        A kernel with a changed spectrum is computed for the longest length and then cut, because
        the change depends on the length and padding must not change the kernel.
        """
        if self.exponent is None:
            return super().generate(length)
        return spectral_tilt(self.kernels(self.resolution(length)), self.exponent).cut(length)

    def resolution(self, length: int) -> int:
        """Return the length whose frequencies tilt the kernel, see `LongConvolution.resolution`."""
        return 0 if self.exponent is None else max(length, self.max_length)

    def state_parameters(self) -> list[nn.Parameter]:
        learned = [self.input] if isinstance(self.input, nn.Parameter) else []
        return [self.log_decay, self.frequency, *learned]

    def discretize(self) -> tuple[Tensor, Tensor]:
        """Return the logarithms of A' and the weights 2 C B'.

        Returns: (channels, states) and (directions, channels, states), complex.
        """
        a = per_channel(torch.complex(-self.log_decay.exp(), self.frequency), self.channels)
        b = per_channel(torch.view_as_complex(self.input), self.channels)
        weights = 2 * torch.view_as_complex(self.readout) * b
        step = self.log_step.exp()[:, None]
        d = step * a
        if self.discretization == "zoh":
            return d, weights * (torch.expm1(d) / a)
        return torch.log1p(d / 2) - torch.log1p(-d / 2), weights * (step / (1 - d / 2))

    def kernels(self, length: int) -> Tensor:
        return vandermonde_product(*self.discretize(), length)

    def recurrence(self, length: int) -> DiagonalStateSpace:
        log_poles, weights = self.discretize()
        return DiagonalStateSpace(log_poles.exp(), weights[0])


class S4D(StateSpaceMixer):
    """Diagonal state-space layer, O(length (log length + states)); O(states) a step.

    Args:
        state_size: N, states per channel, conjugates included.
        num_copies: number of sets of poles and B, each for an equal number of channels. None: one
            set per channel.
        initialization: initial poles, "lin", "inv" or "legs", see `initial_poles`.
        input_start: initial B, "hippo" or "ones", see `initial_input`. None: as published, "hippo"
            for legs, and "ones" for lin and inv.
        learns_input: whether B is learned. In S4D-FT it is not.
        discretization: "zoh" (zero-order hold) or "bilinear".
        step_min: smallest initial time step.
        step_max: largest initial time step.
        state_lr: highest learning rate of poles and B, which have no weight decay. None: the run's
            rate.
        step_lr: highest learning rate of the time steps, which have no weight decay. None: the
            run's rate.
        readout_lr: highest learning rate of C, which has the run's weight decay. None: the run's
            rate.
        frequency_scale: alpha, a factor on the initial imaginary parts of the poles.
        spectral_exponent: whether the spectrum of each channel is multiplied by (1 + f) ** beta
            with a learned beta that starts at 0. Such a filter is not causal.
        exponent_lr: highest learning rate of beta, which has no weight decay. None: the run's rate.
    Raises: ValueError if num_copies does not divide the channels, if step_min exceeds step_max,
        for spectral_exponent in a causal context, and for exponent_lr without spectral_exponent.
    """

    name = "s4d"

    def __init__(
        self,
        context: MixerContext,
        *,
        state_size: StateSize = 64,
        num_copies: PositiveInt | None = 1,
        initialization: Initialization = "legs",
        input_start: Annotated[InputStart | None, Added("ones")] = None,
        learns_input: Annotated[bool, Added(True)] = True,
        discretization: Discretization = "zoh",
        step_min: Step = 0.001,
        step_max: Step = 0.1,
        state_lr: Rate | None = 0.001,
        step_lr: Rate | None = 0.001,
        readout_lr: Annotated[Rate | None, Added(None)] = None,
        frequency_scale: Annotated[FrequencyScale, Added(1.0)] = 1.0,
        spectral_exponent: Annotated[bool, Added(False)] = False,
        exponent_lr: Annotated[Rate | None, Added(None)] = None,
    ) -> None:
        if spectral_exponent and context.causal:
            raise ValueError("spectral_exponent filters by later positions, too: it is not causal")
        if exponent_lr is not None and not spectral_exponent:
            raise ValueError("exponent_lr concerns spectral_exponent, which is false")
        poles = initial_poles(initialization, state_size)
        start = input_start or ("hippo" if initialization == "legs" else "ones")
        convolution = DiagonalConvolution(
            context,
            copies=check_copies(num_copies, context.dim),
            poles=torch.complex(poles.real, frequency_scale * poles.imag),
            into=initial_input(start, state_size),
            log_step=initial_log_steps(context.dim, step_min, step_max),
            discretization=discretization,
            is_tilted=spectral_exponent,
            learns_input=learns_input,
        )
        super().__init__(
            context, convolution, state_lr=state_lr, step_lr=step_lr, readout_lr=readout_lr
        )
        self.exponent_lr = exponent_lr

    def learning_rates(self) -> LearningRates:
        assert isinstance(self.convolution, DiagonalConvolution)
        exponent = self.convolution.exponent
        exponent_rate = {} if exponent is None else {exponent: self.exponent_lr}
        return {**super().learning_rates(), **exponent_rate}
