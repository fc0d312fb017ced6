"""S5: a state space with many inputs and outputs, whose diagonal states all channels share.

Smith, Warrington and Linderman, "Simplified State Space Layers for Sequence Modeling", ICLR 2023
(arXiv:2208.04933), sections 3 and 4 and appendix B. Settings, and what the paper leaves open,
follow lindermanlab/S5. The map of the gate starts as torch starts linear maps; with
configs/mixers/s5.yaml it starts as released, by the law of flax.

Symbols of the paper and their names here:
    H: context.dim, the channels in and out
    P: state_size, conjugates included
    J: num_blocks, HiPPO matrices on the diagonal at the start
    Lambda: the poles in continuous time, log_decay and frequency
    B (with a tilde): S5States.input
    C (with a tilde): SharedStates.readout
    D: SharedStateMixer.direct
    Delta: exp(log_step), one for each state
"""

from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from lra.models.base import DecayingAt, LearningRates, MixerContext
from lra.models.initial_values import draw_truncated_normal
from lra.models.layers.shared_states import Gate, SharedStateMixer, SharedStates
from lra.models.layers.state_space import (
    Rate,
    StateSize,
    Step,
    complex_dtype,
    complex_parameter,
    initial_log_steps,
    random_complex,
    real_dtype,
)
from lra.models.ops.hippo import diagonalize_legs

Discretization = Literal["zoh", "bilinear"]
ReadoutStart = Literal["lecun", "truncated", "complex"]
RateGroups = Literal["standard", "input_and_readout_decay", "input_fast", "no_decay"]

HIGHEST_REAL_PART = -1e-4
"""Largest real part of a clipped pole (lindermanlab/S5, clip_eigs)."""


class S5States(SharedStates):
    """The states of S5, one of each conjugate pair; options are those of `S5`."""

    readout_scale = 2.0

    def __init__(
        self,
        context: MixerContext,
        *,
        state_size: int,
        num_blocks: int,
        readout_start: ReadoutStart,
        clip_poles: bool,
        discretization: Discretization,
        log_step: nn.Parameter,
    ) -> None:
        poles, _, _, v = diagonalize_legs(state_size // num_blocks)
        vectors = torch.block_diag(*[v] * num_blocks).to(complex_dtype())
        super().__init__(_initial_readout(readout_start, context, vectors))
        self.clip_poles = clip_poles
        self.discretization = discretization
        self.log_step = log_step
        self.real_part = nn.Parameter(poles.real.to(real_dtype()).repeat(num_blocks))
        self.frequency = nn.Parameter(poles.imag.to(real_dtype()).repeat(num_blocks))
        start = draw_truncated_normal(torch.empty(state_size, context.dim), state_size**-0.5)
        self.input = complex_parameter(vectors.mH @ start.to(vectors.dtype))

    def discretize(self) -> tuple[Tensor, Tensor]:
        """See `SharedStates.discretize` (S5, equation 6 and appendix A)."""
        real = self.real_part.clamp(max=HIGHEST_REAL_PART) if self.clip_poles else self.real_part
        a = torch.complex(real, self.frequency)
        b = torch.view_as_complex(self.input)
        step = self.log_step.exp()
        d = step * a
        if self.discretization == "zoh":
            return d.exp(), (torch.expm1(d) / a)[:, None] * b
        return (1 + d / 2) / (1 - d / 2), (step / (1 - d / 2))[:, None] * b


def _initial_readout(start: ReadoutStart, context: MixerContext, vectors: Tensor) -> Tensor:
    """Draw C: (directions, dim, states) complex.

    The two laws of flax's lecun_normal differ as the published code calls it, once for the whole
    matrix, whose deviation is (P H) ** -1/2, or row by row, P ** -1/2.
    """
    (size, states), directions, dim = vectors.shape, context.num_directions, context.dim
    if start == "complex":
        return random_complex(directions, dim, states)
    deviation = size**-0.5 if start == "truncated" else (size * dim) ** -0.5
    drawn = draw_truncated_normal(torch.empty(directions, dim, size, 2), deviation)
    return torch.view_as_complex(drawn) @ vectors


class S5(SharedStateMixer[S5States]):
    """State space whose P states all channels share, O(length P channels); O(P channels) a step.

    Args:
        state_size: P, states that all channels share, conjugates included.
        num_blocks: J. Poles start as those of J HiPPO-LegS matrices of size P / J.
        readout_start: initial C. "lecun" and "truncated" are real distributions times the
            matrices' eigenvectors, of standard deviation (P channels) ** -1/2 and P ** -1/2;
            "complex" is normal of variance 1 in the eigenvectors' basis.
        clip_poles: whether real parts of poles are clipped to at most -1e-4.
        discretization: "zoh" (zero-order hold) or "bilinear".
        step_min: smallest initial time step.
        step_max: largest initial time step.
        gate: gate after the state space, see `SharedStateMixer`.
        state_lr: highest learning rate of poles, B and time steps, which have no weight decay
            unless another option says so. None: the run's rate.
        rate_groups: groups of learning rates in the published code. "standard" is as above; in
            "input_and_readout_decay" B has weight decay; in "input_fast" B has weight decay and
            the run's rate; in "no_decay" C and D have state_lr and no weight decay.
        step_has_run_lr: whether time steps have the run's learning rate and weight decay.
    Raises: ValueError if state_size / num_blocks is not an even whole number, or if step_min
        exceeds step_max.
    """

    name = "s5"

    def __init__(
        self,
        context: MixerContext,
        *,
        state_size: StateSize = 16,
        num_blocks: PositiveInt = 1,
        readout_start: ReadoutStart = "lecun",
        clip_poles: bool = True,
        discretization: Discretization = "zoh",
        step_min: Step = 0.001,
        step_max: Step = 0.1,
        gate: Gate = "half_glu1",
        state_lr: Rate | None = 0.001,
        rate_groups: RateGroups = "standard",
        step_has_run_lr: bool = False,
    ) -> None:
        if state_size % (2 * num_blocks):
            raise ValueError(
                f"num_blocks {num_blocks} does not cut state_size {state_size} into even parts"
            )
        states = S5States(
            context,
            state_size=state_size,
            num_blocks=num_blocks,
            readout_start=readout_start,
            clip_poles=clip_poles,
            discretization=discretization,
            log_step=initial_log_steps(state_size // 2, step_min, step_max),
        )
        super().__init__(context, states, gate=gate, state_lr=state_lr)
        self.rate_groups = rate_groups
        self.step_has_run_lr = step_has_run_lr

    def learning_rates(self) -> LearningRates:
        """Group rates as lindermanlab/S5 does, see `Mixer.learning_rates`."""
        states, slow = self.states, self.state_lr
        rates: dict[nn.Parameter, float | DecayingAt | None] = {
            states.real_part: slow, states.frequency: slow
        }  # fmt: skip
        if not self.step_has_run_lr:
            rates[states.log_step] = slow
        if self.rate_groups == "input_and_readout_decay":
            if slow is not None:
                rates[states.input] = DecayingAt(slow)
        elif self.rate_groups != "input_fast":
            rates[states.input] = slow
        if self.rate_groups == "no_decay":
            rates |= {states.readout: slow, self.direct: slow}
        return rates
