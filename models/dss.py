"""DSS: diagonal state spaces whose kernels are normalised by a softmax or exponentially.

Gupta, Gu and Berant, "Diagonal State Spaces are as Effective as Structured State Spaces",
NeurIPS 2022 (arXiv:2203.14343), Proposition 1 and appendix A.

Symbols of the paper and their names here:
    L: max(length, max_length)
    H: context.dim, the channels
    N: num_states
    Lambda, lambda_i: the poles, made of decay and frequency
    Delta: exp(log_step)
    w: readout
    P: the exponents in vandermonde_product
    K: NormalizedConvolution.kernels
    D: StateSpaceMixer.direct
    reciprocal_epsilon: reciprocal
    epsilon: SMALLEST_SQUARE
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from lra.common.options import Added
from lra.models.base import MixerContext
from lra.models.layers.state_space import (
    DiagonalStateSpace,
    Output,
    Rate,
    StateSpaceConvolution,
    StateSpaceMixer,
    Step,
    complex_parameter,
    initial_log_steps,
    random_complex,
    real_dtype,
)
from lra.models.ops.hippo import diagonalize_legs
from lra.models.ops.vandermonde import vandermonde_product

Normalization = Literal["softmax", "exp"]
SMALLEST_SQUARE = 1e-18
"""Added to the squared absolute value of a denominator, so that it is not 0. The published code
adds 1e-7, which distorts the kernels of short sequences, whose squares are that small."""


def reciprocal(x: Tensor) -> Tensor:
    """Compute 1 / x for complex x of any shape, finite at 0."""
    return x.conj() / (x.real.square() + x.imag.square() + SMALLEST_SQUARE)


class NormalizedConvolution(StateSpaceConvolution):
    """Kernels K[l] = Re(sum of w / pole * s[l]) with a normalised s (DSS, Proposition 1).

    Without normalisation, s[l] is exp(pole * Delta * l). With "softmax" it is divided by its sum
    over the task's longest sequence, or over the sequence itself if that is longer. Poles are
    unrestricted then; for a growing pole, term and sum are scaled by the last, largest term. With
    "exp" it is multiplied by exp(pole * Delta) - 1, and the poles' real parts are -exp(decay).
    With separate steps, pole * Delta is Re(pole) * Delta_1 + i Im(pole) * Delta_2. Other options
    are those of `DSS`.
    """

    def __init__(
        self,
        context: MixerContext,
        *,
        directions: int,
        poles: Tensor,
        log_step: nn.Parameter,
        separate_steps: bool,
        normalization: Normalization,
    ) -> None:
        super().__init__()
        self.channels = context.dim
        self.normalization = normalization
        self.max_length = context.max_length
        self.log_step = log_step
        if separate_steps:
            self.log_step = nn.Parameter(log_step.detach()[:, None].repeat(1, 2))
        is_free = normalization == "softmax"
        decay = poles.real if is_free else (-poles.real).log()
        self.decay = nn.Parameter(decay.to(real_dtype()))
        self.frequency = nn.Parameter(poles.imag.to(real_dtype()))
        # Real and imaginary parts of variance 1 each, as in the published code.
        readout = 2**0.5 * random_complex(directions, context.dim, len(poles))
        self.readout = complex_parameter(readout)

    def state_parameters(self) -> list[nn.Parameter]:
        """Return the poles' parameters and, as published, the readout."""
        return [self.decay, self.frequency, self.readout]

    def discretize(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return pole * Delta, the weights, and the lag at which each term has its weight.

        Returns: (channels, states) complex, (directions, channels, states) complex and
            (channels, states) real.
        """
        real = self.decay if self.normalization == "softmax" else -self.decay.exp()
        poles = torch.complex(real, self.frequency)
        steps = self._scaled(poles)
        readout = torch.view_as_complex(self.readout)
        shift = torch.zeros_like(steps.real)
        if self.normalization == "exp":
            return steps, readout * (torch.expm1(steps) * reciprocal(poles)), shift
        longest = max(length, self.max_length)
        grows = (real > 0).to(real)
        falling = steps * (1 - 2 * grows)
        weight = torch.expm1(falling) * reciprocal(torch.expm1(falling * longest) * poles)
        return steps, readout * weight, shift + grows * (longest - 1)

    def _scaled(self, poles: Tensor) -> Tensor:
        """Multiply poles by the time steps: (states,) -> (channels, states)."""
        step = self.log_step.exp()
        if step.ndim == 1:
            return step[:, None] * poles
        return torch.complex(step[:, :1] * poles.real, step[:, 1:] * poles.imag)

    def resolution(self, length: int) -> int:
        """Return the length that the softmax sums over, see `LongConvolution.resolution`."""
        return max(length, self.max_length)

    def kernels(self, length: int) -> Tensor:
        log_poles, weights, shift = self.discretize(length)
        return vandermonde_product(log_poles, weights, length, shift)

    def recurrence(self, length: int) -> DiagonalStateSpace:
        log_poles, weights, shift = self.discretize(length)
        # Where poles grow, weights are below what single precision holds.
        log_poles = log_poles.to(torch.complex128)
        weights = weights[0] * torch.exp(-log_poles * shift)
        return DiagonalStateSpace(log_poles.exp(), weights)


class DSS(StateSpaceMixer):
    """Diagonal state-space layer with normalised kernels, at the cost of S4D.

    Args:
        num_states: N, complex states per channel, without conjugates.
        bidirectional: whether a second kernel covers later positions if the context is not
            causal. Without it the mixer is causal in any context.
        output: "glu" for a linear map with a gate at the end, or "linear" for one without.
        normalization: "softmax", over the task's longest sequence, or "exp".
        step_min: smallest initial time step.
        step_max: largest initial time step.
        separate_steps: whether the real and the imaginary parts of poles have separate time
            steps.
        state_lr: highest learning rate of poles and readout, which have no weight decay. None:
            the run's rate.
        step_lr: highest learning rate of the time steps, which have no weight decay. None: the
            run's rate.
    Raises: ValueError if step_min exceeds step_max.
    """

    name = "dss"

    def __init__(
        self,
        context: MixerContext,
        *,
        num_states: Annotated[int, Field(ge=1, le=2**11)] = 64,
        bidirectional: Annotated[bool, Added(True)] = True,
        output: Annotated[Output, Added("glu")] = "glu",
        normalization: Normalization = "softmax",
        step_min: Step = 0.001,
        step_max: Step = 0.1,
        separate_steps: Annotated[bool, Added(False)] = False,
        state_lr: Rate | None = 0.001,
        step_lr: Rate | None = 0.001,
    ) -> None:
        convolution = NormalizedConvolution(
            context,
            directions=context.num_directions if bidirectional else 1,
            poles=diagonalize_legs(2 * num_states).poles,
            log_step=initial_log_steps(context.dim, step_min, step_max),
            separate_steps=separate_steps,
            normalization=normalization,
        )
        rates = {"state_lr": state_lr, "step_lr": step_lr}
        super().__init__(context, convolution, **rates, output=output, drops_convolved=False)
        self.looks_ahead = bidirectional
