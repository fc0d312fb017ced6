"""S4: structured state spaces, HiPPO-LegS in normal plus low-rank form.

Gu, Goel and Re, "Efficiently Modeling Long Sequences with Structured State Spaces", ICLR 2022
(arXiv:2111.00396), Algorithm 1, Theorems 2 and 3, and appendix C. The low rank is P P* instead
of P Q*, the stable form of Goel et al., "It's Raw!", ICML 2022 (S4, section 3.4).

Symbols of the paper and their names here:
    H: context.dim, the channels
    N: state_size
    u: x
    x: state
    Lambda: poles, made of log_decay and frequency
    P: low_rank
    B: input
    C with a tilde: readout, what is learned
    D: StateSpaceMixer.direct
    Delta: exp(log_step)
    A', B' (A and B with a bar): NormalPlusLowRankConvolution.transition
    C' (C with a bar): NormalPlusLowRankConvolution.effective_readout
    K (with a bar): NormalPlusLowRankConvolution.kernels
    omega: w
    k_00, k_01: c_b, c_p
    k_10, k_11: the last two rows of sums
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from lra.common.options import Added
from lra.models.base import MixerContext
from lra.models.layers.state_space import (
    Rate,
    StateSize,
    StateSpaceConvolution,
    StateSpaceMixer,
    Step,
    TimeInvariantRecurrence,
    check_copies,
    complex_parameter,
    initial_log_steps,
    per_channel,
    random_complex,
    real_dtype,
)
from lra.models.ops.hippo import INPUT_CLIP, clip_imaginary, diagonalize_legs
from lra.models.ops.toeplitz import fast_fft_length
from lra.models.s4.cauchy import in_chunks, resolvent_sums


class NormalPlusLowRankConvolution(StateSpaceConvolution):
    """Kernels K[l] = C' A' ** l B' for A = diag(poles) - P P*, by their generating function.

    A' = (I - Delta A / 2)^-1 (I + Delta A / 2) and B' = (I - Delta A / 2)^-1 Delta B are the
    bilinear transforms (S4, equation 3). The sum over l < L of K[l] w ** l is, at the L-th roots
    of unity w, Delta C ((1 - w) I - Delta A (1 + w) / 2)^-1 B with C = C' (I - A' ** L) (Lemmas
    C.3 and C.4). That matrix is diagonal plus one of rank one, so Woodbury's identity makes four
    sums of fractions of it (Algorithm 1). C is what is learned, with L at least the task's
    longest sequence; shorter ones take the first lags of its kernel. One state of each conjugate
    pair is kept. Options are those of `S4`.
    """

    def __init__(
        self,
        context: MixerContext,
        *,
        copies: int,
        state_size: int,
        log_step: nn.Parameter,
        input_clip: float | None,
    ) -> None:
        super().__init__()
        poles, low_rank, into = (v.repeat(copies, 1) for v in diagonalize_legs(state_size)[:3])
        if input_clip is not None:
            into = clip_imaginary(into, input_clip)
        self.channels = context.dim
        self.length = fast_fft_length(context.max_length)
        self.log_step = log_step
        self.log_decay = nn.Parameter((-poles.real).log().to(real_dtype()))
        self.frequency = nn.Parameter(poles.imag.to(real_dtype()))
        self.low_rank = complex_parameter(low_rank)
        self.input = complex_parameter(into)
        shape = context.num_directions, context.dim, state_size // 2
        self.readout = complex_parameter(random_complex(*shape))
        with torch.no_grad():
            # Drawn as C', learned as C.
            full = self._full_readout()
            half = _first_half(full - full @ self._transition_power())
            self.readout.copy_(torch.view_as_real(half.resolve_conj()))

    def state_parameters(self) -> list[nn.Parameter]:
        return [self.log_decay, self.frequency, self.low_rank, self.input]

    def dynamics(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the poles, P, B and the time steps of every channel.

        Returns: three of (channels, states) complex, one state of each conjugate pair, and
            (channels, 1).
        """
        poles = torch.complex(-self.log_decay.exp(), self.frequency)
        p, b = torch.view_as_complex(self.low_rank), torch.view_as_complex(self.input)
        every = [per_channel(values, self.channels) for values in (poles, p, b)]
        return every[0], every[1], every[2], self.log_step.exp()[:, None]

    def kernels(self, length: int) -> Tensor:
        readout, period = torch.view_as_complex(self.readout), self.length
        if length > period:
            readout, period = self._prolonged(length)
        poles, p, b, step = self.dynamics()
        rows = torch.stack([*(readout * b), *(readout * p), p.conj() * b, p.conj() * p])
        directions = len(readout)

        def response(angles: Tensor) -> Tensor:
            """Apply steps 2 and 3 of Algorithm 1: -> (directions, channels, frequencies)."""
            sums = resolvent_sums(rows, step * poles, angles)
            c_b, c_p = sums[:directions], sums[directions : 2 * directions]
            w = torch.polar(torch.ones_like(angles), -angles)
            rank = step * (1 + w) / 2
            return step * (c_b - rank * c_p * sums[-2] / (1 + rank * sums[-1]))

        angles = torch.arange(period // 2 + 1, dtype=step.dtype, device=step.device)
        spectrum = in_chunks(response, angles * (2 * torch.pi / period), poles.numel())
        return torch.fft.irfft(spectrum, n=period)[..., :length]

    def transition(self) -> tuple[Tensor, Tensor]:
        """Write A' and B' out over all states, in double precision, conjugates second.

        Returns: (channels, 2 * states, 2 * states) and (channels, 2 * states, 1), complex.
        """
        poles, p, b, step = self.dynamics()
        poles, p, b = (torch.cat([v, v.conj()], dim=1).to(torch.complex128) for v in (poles, p, b))
        a = torch.diag_embed(poles) - p[:, :, None] * p[:, None, :].conj()
        step = step[..., None].double()
        half = step * a / 2
        identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        both = torch.cat([identity + half, step * b[..., None]], dim=-1)
        solved = torch.linalg.solve(identity - half, both)
        return solved[..., :-1], solved[..., -1:]

    def effective_readout(self) -> Tensor:
        """Return C' over all states, in double precision.

        Returns: (directions, channels, 1, 2 * states) complex, conjugates second.
        """
        power = self._transition_power()
        identity = torch.eye(power.shape[-1], dtype=power.dtype, device=power.device)
        return torch.linalg.solve(identity - power, self._full_readout(), left=False)

    def recurrence(self, length: int) -> NormalPlusLowRankRecurrence:
        """Return the first direction's recurrence, which serves any length."""
        return NormalPlusLowRankRecurrence(self)

    def _full_readout(self) -> Tensor:
        half = torch.view_as_complex(self.readout)[..., None, :].to(torch.complex128)
        return torch.cat([half, half.conj()], dim=-1)

    def _transition_power(self) -> Tensor:
        """Return A' ** self.length: (channels, 2 * states, 2 * states)."""
        return torch.linalg.matrix_power(self.transition()[0], self.length)

    def _prolonged(self, length: int) -> tuple[Tensor, int]:
        """Double the period, with C (I + A' ** period) for C, until it reaches the length.

        Returns: C, (directions, channels, states) complex, and its period, in positions.
        """
        doublings = math.ceil(math.log2(length / self.length))
        full, power, period = self._full_readout(), self._transition_power(), self.length
        for _ in range(doublings):
            full, power, period = full + full @ power, power @ power, 2 * period
        return _first_half(full).to(torch.view_as_complex(self.readout).dtype), period


class NormalPlusLowRankRecurrence(TimeInvariantRecurrence):
    """The recurrence s' = A' s + B' x, y = C' s' in O(states) a step (S4, Theorem 2).

    With D = (I - Delta diag(poles) / 2)^-1, Woodbury's identity makes (I - Delta A / 2)^-1 equal
    to D - D P g P* D, where g = (2 / Delta + P* D P)^-1 (appendix C.2).
    """

    def __init__(self, convolution: NormalPlusLowRankConvolution) -> None:
        self.convolution = convolution
        self.poles, self.p, self.b, self.step_size = (v.detach() for v in convolution.dynamics())
        self.num_channels = convolution.channels
        self.diagonal = 1 / (1 - self.step_size * self.poles / 2)
        capacitance = 2 / self.step_size + _both(self.p.conj() * self.diagonal * self.p)
        self.projected = self.diagonal * self.p / capacitance
        self.readout = 2 * _first_half(convolution.effective_readout()[0]).to(self.poles.dtype)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        drift = self.poles * state - self.p * _both(self.p.conj() * state)
        right = state + self.step_size * (drift / 2 + self.b * x[..., None])
        solved = self.diagonal * right
        state = solved - self.projected * _both(self.p.conj() * solved)
        return (self.readout * state).sum(dim=-1).real, state

    def advance_by(self, steps: int) -> Callable[[Tensor], Tensor]:
        """See `TimeInvariantRecurrence.advance_by`; by A' written out over all states."""
        half = self.poles.shape[1]
        power = torch.linalg.matrix_power(self.convolution.transition()[0], steps)[:, :half]
        of_states, of_conjugates = (part.to(self.poles.dtype) for part in power.split(half, dim=-1))

        def advance(state: Tensor) -> Tensor:
            moved = torch.einsum("cnm,bcm->bcn", of_states, state)
            return moved + torch.einsum("cnm,bcm->bcn", of_conjugates, state.conj())

        return advance


def _first_half(full: Tensor) -> Tensor:
    """Drop the conjugates of a readout: (..., 1, 2 * states) -> (..., states)."""
    return full[..., 0, : full.shape[-1] // 2]


def _both(products: Tensor) -> Tensor:
    """Sum over states and their conjugates: (..., states) complex -> (..., 1) real."""
    return 2 * products.real.sum(dim=-1, keepdim=True)


class S4(StateSpaceMixer):
    """Structured state-space layer, O(length (log length + states)); O(states) a step.

    Args:
        state_size: N, states per channel, conjugates included.
        num_copies: number of sets of poles, P and B, each for an equal number of channels. None:
            one set per channel.
        step_min: smallest initial time step.
        step_max: largest initial time step.
        input_clip: bound on the initial imaginary part of B. None: no bound.
        state_lr: highest learning rate of poles, P and B, which have no weight decay. None: the
            run's rate.
        step_lr: highest learning rate of the time steps, which have no weight decay. None: the
            run's rate.
        readout_lr: highest learning rate of C, which has the run's weight decay. None: the run's
            rate.
    Raises: ValueError if num_copies does not divide the channels, or step_min exceeds step_max.
    """

    name = "s4"

    def __init__(
        self,
        context: MixerContext,
        *,
        state_size: StateSize = 64,
        num_copies: PositiveInt | None = 1,
        step_min: Step = 0.001,
        step_max: Step = 0.1,
        input_clip: Annotated[
            Annotated[float, Field(gt=0, le=1e3)] | None, Added(None)
        ] = INPUT_CLIP,
        state_lr: Rate | None = 0.001,
        step_lr: Rate | None = 0.001,
        readout_lr: Annotated[Rate | None, Added(None)] = None,
    ) -> None:
        convolution = NormalPlusLowRankConvolution(
            context,
            copies=check_copies(num_copies, context.dim),
            state_size=state_size,
            log_step=initial_log_steps(context.dim, step_min, step_max),
            input_clip=input_clip,
        )
        super().__init__(
            context, convolution, state_lr=state_lr, step_lr=step_lr, readout_lr=readout_lr
        )
