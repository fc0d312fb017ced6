"""DSS: diagonal state spaces, with a normalised or an exponential kernel.

Gupta, Gu and Berant, "Diagonal State Spaces are as Effective as Structured State Spaces",
NeurIPS 2022 (arXiv:2203.14343), Proposition 1 and appendix A.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from models.base import MixerContext
from models.layers.recurrence import DiagonalStateSpace, Recurrence
from models.layers.state_space import (
    Rate,
    StateSpaceKernel,
    StateSpaceMixer,
    Step,
    complex_parameter,
    initial_log_steps,
    num_directions,
    random_complex,
)
from models.ops.hippo import normal_plus_low_rank
from models.ops.vandermonde import vandermonde_product

Normalization = Literal["softmax", "exp"]
SMALLEST_SQUARE = 1e-18
"""What the denominators' squares are kept away from 0 by. The published code has 1e-7, which
bends kernels of short sequences: their denominators' squares are as small."""


def reciprocal(x: Tensor) -> Tensor:
    """Compute 1 / x for complex x, finite at 0."""
    return x.conj() / (x.real.square() + x.imag.square() + SMALLEST_SQUARE)


class NormalizedKernel(StateSpaceKernel):
    """K[l] = Re(sum of w / pole * s[l]), where s is what the kind makes of exp(pole * Delta * l).

    softmax: s is divided by its sum over the task's longest sequence (a longer one: its own
    length), so poles are free; where they grow, both are scaled by the last, largest term.
    exp: s is multiplied by exp(pole * Delta) - 1, and real parts are -exp of a parameter.
    """

    def __init__(
        self,
        *,
        channels: int,
        directions: int,
        poles: Tensor,
        log_step: nn.Parameter,
        normalization: Normalization,
        max_length: int,
    ) -> None:
        super().__init__()
        self.normalization = normalization
        self.max_length = max_length
        self.log_step = log_step
        is_free = normalization == "softmax"
        self.decay = nn.Parameter((poles.real if is_free else (-poles.real).log()).float())
        self.frequency = nn.Parameter(poles.imag.float())
        self.readout = complex_parameter(random_complex(directions, channels, len(poles)))

    def state_parameters(self) -> list[nn.Parameter]:
        """See `StateSpaceKernel.state_parameters`; the readout too, as published."""
        return [self.decay, self.frequency, self.readout]

    def discretize(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the poles' logarithms, the weights, and the lags they are weighted at.

        Returns: (channels, states), (directions, channels, states) complex, (channels, states).
        """
        real = self.decay if self.normalization == "softmax" else -self.decay.exp()
        poles = torch.complex(real, self.frequency)
        steps = self.log_step.exp()[:, None] * poles
        readout = torch.view_as_complex(self.readout)
        shift = torch.zeros_like(steps.real)
        if self.normalization == "exp":
            return steps, readout * (torch.expm1(steps) * reciprocal(poles)), shift
        longest = max(length, self.max_length)
        grows = (real > 0).to(real)
        falling = steps * (1 - 2 * grows)
        share = torch.expm1(falling) * reciprocal(torch.expm1(falling * longest) * poles)
        return steps, readout * share, shift + grows * (longest - 1)

    def resolution(self, length: int) -> int:
        """See `StateSpaceKernel.resolution`."""
        return max(length, self.max_length)

    def kernel(self, length: int) -> Tensor:
        """See `StateSpaceKernel.kernel`."""
        log_poles, weights, shift = self.discretize(length)
        return vandermonde_product(log_poles, weights, length, shift)

    def recurrence(self, length: int) -> Recurrence:
        """See `StateSpaceKernel.recurrence`."""
        log_poles, weights, shift = self.discretize(length)
        # Where poles grow, weights are below what single precision holds.
        log_poles = log_poles.to(torch.complex128)
        weights = weights[0] * torch.exp(-log_poles * shift)
        return DiagonalStateSpace(log_poles.exp(), weights)


class DSS(StateSpaceMixer):
    """Diagonal state-space layer of normalised kernels; its costs are those of S4D.

    Args:
        num_states: N, complex states of a channel, without conjugates.
        normalization: softmax, over the task's longest sequence, or exp.
        step_min: smallest time step at the start.
        step_max: largest time step at the start.
        state_lr: highest learning rate of poles and readout, which never decay. None: the run's.
        step_lr: that of the time steps. None: the run's.
    Raises: ValueError if step_min exceeds step_max.
    """

    name = "dss"

    def __init__(
        self,
        context: MixerContext,
        *,
        num_states: Annotated[int, Field(ge=1, le=2**11)] = 64,
        normalization: Normalization = "softmax",
        step_min: Step = 0.001,
        step_max: Step = 0.1,
        state_lr: Rate | None = 0.001,
        step_lr: Rate | None = 0.001,
    ) -> None:
        kernel = NormalizedKernel(
            channels=context.dim,
            directions=num_directions(context),
            poles=normal_plus_low_rank(2 * num_states)[0],
            log_step=initial_log_steps(context.dim, step_min, step_max),
            normalization=normalization,
            max_length=context.max_length,
        )
        super().__init__(context, kernel, state_lr=state_lr, step_lr=step_lr)
