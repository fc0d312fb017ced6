"""LRU: the linear recurrent unit, whose poles start on a ring in the complex plane.

Orvieto et al., "Resurrecting Recurrent Neural Networks for Long Sequences", ICML 2023
(arXiv:2303.06349), section 3 and appendix A.

Symbols of the paper and their names here:
    N: state_size, complex states without conjugates
    H: context.dim
    lambda: exp(-exp(log_decay) + i exp(log_phase))
    nu, theta: the exponentials of log_decay and log_phase
    gamma: exp(log_gain)
    B, C, D: LRUStates.input, SharedStates.readout, SharedStateMixer.direct
"""

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lra.models.base import MixerContext
from lra.models.layers.shared_states import Gate, NumStates, SharedStateMixer, SharedStates
from lra.models.layers.state_space import Rate, complex_parameter, random_complex

Radius = Annotated[float, Field(ge=0, le=1)]
Phase = Annotated[float, Field(gt=0, le=2 * math.pi)]


class LRUStates(SharedStates):
    """The states of LRU, h[k] = lambda h[k - 1] + gamma B x[k] (LRU, equation 7).

    Options are those of `LRU`.
    """

    def __init__(
        self,
        context: MixerContext,
        *,
        state_size: int,
        radius_min: float,
        radius_max: float,
        phase_max: float,
    ) -> None:
        shape = context.num_directions, context.dim, state_size
        super().__init__(random_complex(*shape) * (2 / state_size) ** 0.5)
        # |lambda|^2 is uniform between the squares of the radii: points are even on the ring.
        squares = torch.rand(state_size) * (radius_max**2 - radius_min**2) + radius_min**2
        self.log_decay = nn.Parameter((-0.5 * squares.clamp(min=1e-38).log()).log())
        self.log_phase = nn.Parameter((phase_max * torch.rand(state_size).clamp(min=1e-7)).log())
        self.log_gain = nn.Parameter(0.5 * torch.log1p(-squares))
        self.input = complex_parameter(random_complex(state_size, context.dim) * context.dim**-0.5)

    def discretize(self) -> tuple[Tensor, Tensor]:
        poles = torch.polar((-self.log_decay.exp()).exp(), self.log_phase.exp())
        return poles, self.log_gain.exp()[:, None] * torch.view_as_complex(self.input)


class LRU(SharedStateMixer[LRUStates]):
    """Linear recurrent unit, O(length N channels); O(N channels) a step.

    Args:
        state_size: N, complex states that all channels share.
        radius_min: smallest initial absolute value of the poles.
        radius_max: largest initial absolute value of the poles.
        phase_max: largest initial phase of the poles, in radians.
        gate: gate after the recurrence, see `SharedStateMixer`.
        state_lr: highest learning rate of poles, gains and B, which have no weight decay. None:
            the run's rate.
    Raises: ValueError if radius_min exceeds radius_max.
    """

    name = "lru"

    def __init__(
        self,
        context: MixerContext,
        *,
        state_size: NumStates = 32,
        radius_min: Radius = 0.0,
        radius_max: Annotated[float, Field(gt=0, le=1 - 1e-6)] = 0.99,
        phase_max: Phase = 2 * math.pi,
        gate: Gate = "glu",
        state_lr: Rate | None = None,
    ) -> None:
        if radius_min > radius_max:
            raise ValueError(f"radius_min {radius_min} exceeds radius_max {radius_max}")
        states = LRUStates(
            context,
            state_size=state_size,
            radius_min=radius_min,
            radius_max=radius_max,
            phase_max=phase_max,
        )
        super().__init__(context, states, gate=gate, state_lr=state_lr)
