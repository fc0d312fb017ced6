"""LinOSS: linear oscillatory state spaces, forced harmonic oscillators that all channels share.

Rusch and Rus, "Oscillatory State-Space Models", ICLR 2025 (arXiv:2410.03943), section 2. Initial
values, and what the paper leaves open, follow tk-rusch/linoss.

Symbols of the paper and their names here:
    m: state_size, oscillators
    A: relu(stiffness), the squares of the frequencies
    Delta t: sigmoid(step)
    u: x, the input
    y, of y'' = -A y + B u: the second states of the cascade, see OscillatorStates
    B, C, D: OscillatorStates.input, SharedStates.readout, SharedStateMixer.direct
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from lra.models.base import MixerContext
from lra.models.layers.shared_states import (
    NumStates,
    SharedStateMixer,
    SharedStates,
    cascade,
    drive,
    read,
)
from lra.models.layers.state_space import Rate, complex_parameter, real_dtype

Discretization = Literal["im", "imex"]


class OscillatorStates(SharedStates):
    """The oscillators y[k] = trace(M) y[k - 1] - det(M) y[k - 2] + gain B x[k].

    The paper's recurrence is one of pairs of velocity and position, h[k] = M h[k - 1] + F[k]. This
    is what it says of the position y alone, as the forces of k - 1 cancel in both discretizations.
    With the eigenvalues p and q of M it is a cascade of two recurrences of order one,

        w[k] = p w[k - 1] + gain B x[k],  y[k] = q y[k - 1] + w[k],

    which needs no eigenvectors. It holds for A = 0 as well, where M has one eigenvalue alone and
    cannot be diagonalized. With s = Delta t ** 2 A, the eigenvalues of the implicit discretization
    are 1 / (1 +- i sqrt(s)), and its gain is Delta t ** 2 / (1 + s). Those of the implicit-explicit
    one are 1 - s / 2 +- sqrt(s / 4 - 1) sqrt(s), and its gain is Delta t ** 2. Towards s = 0 the
    gradient of A loses digits: in single precision it has a relative error of about 1e-8 / sqrt(s).

    Options are those of `LinOSS`.
    """

    def __init__(
        self, context: MixerContext, *, state_size: int, discretization: Discretization
    ) -> None:
        super().__init__(_draw_complex(context.num_directions, context.dim, state_size))
        self.discretization = discretization
        self.stiffness = nn.Parameter(torch.rand(state_size, dtype=real_dtype()))
        self.step = nn.Parameter(torch.rand(state_size, dtype=real_dtype()))
        self.input = complex_parameter(_draw_complex(state_size, context.dim))

    def discretize(self) -> tuple[Tensor, Tensor]:
        """Return the eigenvalues p and q, (2, states), and gain B, (states, dim), complex."""
        step = self.step.sigmoid()
        # As relu, but for the infinite gradient of a root at 0. Its square is nothing beside 1.
        a = self.stiffness.clamp(min=torch.finfo(self.stiffness.dtype).eps ** 2)
        root = step * a.sqrt()
        if self.discretization == "im":
            p = 1 / torch.complex(torch.ones_like(root), root)
            poles, gain = torch.stack([p, p.conj()]), step**2 / (1 + root**2)
        else:
            inside = root**2 / 4 - 1
            # The gradient of a root at 0 is infinite. Below 0 the eigenvalues keep their size of 1.
            inside = inside - torch.finfo(inside.dtype).eps * (inside == 0)
            half = root * torch.complex(inside, torch.zeros_like(inside)).sqrt()
            poles, gain = 1 - root**2 / 2 + torch.stack([half, -half]), step**2
        return poles, gain[:, None] * torch.view_as_complex(self.input)

    def run(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            poles, into, readouts = self.matrices()
            driven = drive(x.to(into.dtype), into)
            mixed = [
                read(cascade(poles, driven, reverse=bool(backwards))[-1], readout)
                for backwards, readout in enumerate(readouts)
            ]
            return torch.stack(mixed).sum(dim=0)


def _draw_complex(*shape: int) -> Tensor:
    """Draw both parts evenly up to the inverse root of the last size, (...) complex."""
    parts = torch.rand(*shape, 2, dtype=real_dtype())
    return torch.view_as_complex((2 * parts - 1) / math.sqrt(shape[-1]))


class LinOSS(SharedStateMixer[OscillatorStates]):
    """Linear oscillators, O(length m channels); O(m channels) a step.

    Args:
        state_size: m, oscillators that all channels share.
        discretization: "im" (implicit), whose oscillations decay, or "imex" (implicit-explicit),
            which conserves energy. As published, A has no upper bound, and states of "imex" grow
            exponentially where Delta t ** 2 A exceeds 4. It is at most 0.54 at the start.
        state_lr: highest learning rate of A, B and the time steps, which have no weight decay.
            None: the run's rate.
    """

    name = "linoss"

    def __init__(
        self,
        context: MixerContext,
        *,
        state_size: NumStates = 64,
        discretization: Discretization = "im",
        state_lr: Rate | None = None,
    ) -> None:
        states = OscillatorStates(context, state_size=state_size, discretization=discretization)
        super().__init__(context, states, gate="glu", state_lr=state_lr)
