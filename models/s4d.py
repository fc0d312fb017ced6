"""S4D: diagonal state spaces.

Gu et al., "On the Parameterization and Initialization of Diagonal State Space Models",
NeurIPS 2022 (arXiv:2206.11893).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from models.base import MixerContext
from models.layers.recurrence import DiagonalStateSpace
from models.layers.state_space import (
    Rate,
    StateSize,
    StateSpaceKernel,
    StateSpaceMixer,
    Step,
    check_copies,
    complex_parameter,
    initial_log_steps,
    num_directions,
    per_channel,
    random_complex,
)
from models.ops.hippo import normal_plus_low_rank
from models.ops.vandermonde import vandermonde_product

Initialization = Literal["lin", "inv", "legs"]
Discretization = Literal["zoh", "bilinear"]


def initial_poles(kind: Initialization, state_size: int) -> Tensor:
    """Return one pole of each conjugate pair, (state_size / 2,) complex128 (S4D, section 4).

    Lin: -1/2 + i pi n. Inv: -1/2 + i N/pi (N / (2n + 1) - 1). LegS: the poles of the normal
    part of HiPPO-LegS.
    """
    n = torch.arange(state_size // 2, dtype=torch.float64)
    if kind == "legs":
        return normal_plus_low_rank(state_size)[0]
    frequency = torch.pi * n
    if kind == "inv":
        frequency = state_size / torch.pi * (state_size / (2 * n + 1) - 1)
    return torch.complex(torch.full_like(n, -0.5), frequency)


class DiagonalKernel(StateSpaceKernel):
    """K[l] = 2 Re(sum over pairs of C B' exp(Delta A) ** l), or its bilinear likeness.

    With d = Delta A: zero-order hold has the pole exp(d) and B' = B (exp(d) - 1) / A; the
    bilinear transform has (1 + d/2) / (1 - d/2) and B' = Delta B / (1 - d/2) (S4D, section 3.2).
    The real parts of A are -exp(log_decay), always negative.
    """

    def __init__(
        self,
        *,
        channels: int,
        directions: int,
        copies: int,
        poles: Tensor,
        log_step: nn.Parameter,
        discretization: Discretization,
    ) -> None:
        super().__init__()
        self.discretization = discretization
        self.channels = channels
        self.log_step = log_step
        self.log_decay = nn.Parameter((-poles.real).log().float().repeat(copies, 1))
        self.frequency = nn.Parameter(poles.imag.float().repeat(copies, 1))
        self.input = complex_parameter(torch.ones(copies, len(poles), dtype=torch.complex64))
        self.readout = complex_parameter(random_complex(directions, channels, len(poles)))

    def state_parameters(self) -> list[nn.Parameter]:
        """See `StateSpaceKernel.state_parameters`."""
        return [self.log_decay, self.frequency, self.input]

    def discretize(self) -> tuple[Tensor, Tensor]:
        """Return the poles' logarithms and the weights.

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

    def kernel(self, length: int) -> Tensor:
        """See `StateSpaceKernel.kernel`."""
        return vandermonde_product(*self.discretize(), length)

    def recurrence(self, length: int) -> DiagonalStateSpace:
        """See `StateSpaceKernel.recurrence`."""
        log_poles, weights = self.discretize()
        return DiagonalStateSpace(log_poles.exp(), weights[0])


class S4D(StateSpaceMixer):
    """Diagonal state-space layer, O(length (log length + states)); O(states) a step.

    Args:
        state_size: N, states of a channel, conjugates included.
        num_copies: sets of poles, each for an equal share of the channels. None: one each.
        initialization: of the poles: lin, inv or legs.
        discretization: zero-order hold or bilinear.
        step_min: smallest time step at the start.
        step_max: largest time step at the start.
        state_lr: highest learning rate of poles and B, which never decay. None: the run's.
        step_lr: that of the time steps. None: the run's.
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
        discretization: Discretization = "zoh",
        step_min: Step = 0.001,
        step_max: Step = 0.1,
        state_lr: Rate | None = 0.001,
        step_lr: Rate | None = 0.001,
    ) -> None:
        kernel = DiagonalKernel(
            channels=context.dim,
            directions=num_directions(context),
            copies=check_copies(num_copies, context.dim),
            poles=initial_poles(initialization, state_size),
            log_step=initial_log_steps(context.dim, step_min, step_max),
            discretization=discretization,
        )
        super().__init__(context, kernel, state_lr=state_lr, step_lr=step_lr)
