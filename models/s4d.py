"""S4D: diagonal state spaces.

Gu et al., "On the Parameterization and Initialization of Diagonal State Space Models",
NeurIPS 2022 (arXiv:2206.11893), sections 3 and 4.

Symbols of the paper and their names here:
    L: length
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
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from models.base import Added, MixerContext
from models.layers.recurrence import DiagonalStateSpace
from models.layers.state_space import (
    Rate,
    StateSize,
    StateSpaceConvolution,
    StateSpaceMixer,
    Step,
    check_copies,
    complex_parameter,
    initial_log_steps,
    num_directions,
    per_channel,
    random_complex,
)
from models.ops.hippo import INPUT_CLIP, clip_imaginary, normal_plus_low_rank
from models.ops.vandermonde import vandermonde_product

Initialization = Literal["lin", "inv", "legs"]
Discretization = Literal["zoh", "bilinear"]
InputStart = Literal["hippo", "ones"]


def initial_poles(kind: Initialization, state_size: int) -> Tensor:
    """Return one pole of each conjugate pair (S4D, section 4).

    Args:
        kind: "lin" for -1/2 + i pi n (equation 9), "inv" for -1/2 + i N / pi (N / (2 n + 1) - 1)
            (equation 8), "legs" for the poles of the normal part of HiPPO-LegS.
        state_size: N, even.
    Returns: (state_size / 2,) complex128.
    """
    n = torch.arange(state_size // 2, dtype=torch.float64)
    if kind == "legs":
        return normal_plus_low_rank(state_size)[0]
    frequency = torch.pi * n
    if kind == "inv":
        frequency = state_size / torch.pi * (state_size / (2 * n + 1) - 1)
    return torch.complex(torch.full_like(n, -0.5), frequency)


def initial_input(start: InputStart, state_size: int) -> Tensor:
    """Return where B starts.

    Args:
        start: "hippo" for that of HiPPO-LegS, clipped as in the published code, or "ones".
        state_size: N, even.
    Returns: (state_size / 2,) complex128.
    """
    if start == "hippo":
        return clip_imaginary(normal_plus_low_rank(state_size)[2], INPUT_CLIP)
    return torch.ones(state_size // 2, dtype=torch.complex128)


class DiagonalConvolution(StateSpaceConvolution):
    """Kernels K[l] = 2 Re(sum over conjugate pairs of C B' A' ** l) (S4D, equation 7).

    With d = Delta A, zero-order hold has A' = exp(d) and B' = B (exp(d) - 1) / A; the bilinear
    transform has A' = (1 + d / 2) / (1 - d / 2) and B' = Delta B / (1 - d / 2) (S4D, section 3.1).
    The real parts of A are -exp(log_decay), always negative (S4D, section 3.3).

    Args:
        channels: kernels, one each in every direction.
        directions: 1 for a causal convolution, 2 for a bidirectional one.
        copies: sets of poles and B, each for an equal number of channels.
        poles: (states,) complex, one of each conjugate pair, where A starts.
        into: (states,) complex, where B starts.
        log_step: (channels,) logarithms of the time steps.
        discretization: zero-order hold, "zoh", or "bilinear".
    """

    def __init__(
        self,
        *,
        channels: int,
        directions: int,
        copies: int,
        poles: Tensor,
        into: Tensor,
        log_step: nn.Parameter,
        discretization: Discretization,
    ) -> None:
        super().__init__()
        self.discretization = discretization
        self.channels = channels
        self.log_step = log_step
        self.log_decay = nn.Parameter((-poles.real).log().float().repeat(copies, 1))
        self.frequency = nn.Parameter(poles.imag.float().repeat(copies, 1))
        self.input = complex_parameter(into.repeat(copies, 1))
        self.readout = complex_parameter(random_complex(directions, channels, len(poles)))

    def state_parameters(self) -> list[nn.Parameter]:
        """See `StateSpaceConvolution.state_parameters`."""
        return [self.log_decay, self.frequency, self.input]

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
        """See `StateSpaceConvolution.kernels`."""
        return vandermonde_product(*self.discretize(), length)

    def recurrence(self, length: int) -> DiagonalStateSpace:
        """See `StateSpaceConvolution.recurrence`."""
        log_poles, weights = self.discretize()
        return DiagonalStateSpace(log_poles.exp(), weights[0])


class S4D(StateSpaceMixer):
    """Diagonal state-space layer, O(length (log length + states)); O(states) a step.

    Args:
        state_size: N, states of a channel, conjugates included.
        num_copies: sets of poles and B, each for an equal number of channels. None: one per
            channel.
        initialization: where the poles start, see `initial_poles`: lin, inv or legs.
        input_start: where B starts, see `initial_input`: hippo or ones. None: as published, hippo
            with legs and ones with lin and inv.
        discretization: zero-order hold or bilinear.
        step_min: smallest time step at the start.
        step_max: largest time step at the start.
        state_lr: highest learning rate of poles and B, which never decay. None: the run's.
        step_lr: highest learning rate of the time steps. None: the run's.
        readout_lr: highest learning rate of the readout C, which decays. None: the run's.
    Raises: ValueError if num_copies does not divide the channels, or step_min exceeds step_max.
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
        discretization: Discretization = "zoh",
        step_min: Step = 0.001,
        step_max: Step = 0.1,
        state_lr: Rate | None = 0.001,
        step_lr: Rate | None = 0.001,
        readout_lr: Annotated[Rate | None, Added(None)] = None,
    ) -> None:
        start = input_start or ("hippo" if initialization == "legs" else "ones")
        convolution = DiagonalConvolution(
            channels=context.dim,
            directions=num_directions(context),
            copies=check_copies(num_copies, context.dim),
            poles=initial_poles(initialization, state_size),
            into=initial_input(start, state_size),
            log_step=initial_log_steps(context.dim, step_min, step_max),
            discretization=discretization,
        )
        super().__init__(
            context, convolution, state_lr=state_lr, step_lr=step_lr, readout_lr=readout_lr
        )
