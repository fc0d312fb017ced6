"""Recurrences that several mixers use."""

from __future__ import annotations

import abc
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from models.base import PrefillRecurrence, Recurrence
from models.ops.toeplitz import LagKernel
from models.ops.vandermonde import block_length


class TimeInvariantRecurrence(Recurrence):
    """A recurrence s' = A s + B x whose state is one tensor."""

    @abc.abstractmethod
    def initial_state(self, batch: int) -> Tensor:
        """Return zeros."""

    @abc.abstractmethod
    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `Recurrence.step`."""

    @abc.abstractmethod
    def advance_by(self, steps: int) -> Callable[[Tensor], Tensor]:
        """Return the map A ** steps, from a state to the state after that many zero inputs."""

    def state_after(self, x: Tensor) -> Tensor:
        """Compute the state after the first positions: x (batch, length, channels) -> (batch, ...).

        Positions are divided into about sqrt(length) chunks. All chunks run at the same time, from
        zero states, and their final states are then combined.
        """
        batch, length, _ = x.shape
        chunk = block_length(length)
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


class WrappedRecurrence(PrefillRecurrence):
    """A convolution as a recurrence, with maps at single positions before and after it.

    Args:
        inner: the convolution's recurrence.
        convolve: the convolution of whole sequences, (batch, length, channels).
        before: maps x to the input of the convolution.
        after: maps x and the output of the convolution to the output.
    """

    def __init__(
        self,
        inner: TimeInvariantRecurrence,
        convolve: Callable[[Tensor], Tensor],
        *,
        before: Callable[[Tensor], Tensor],
        after: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        self.inner = inner
        self.convolve = convolve
        self.before = before
        self.after = after

    def initial_state(self, batch: int) -> Tensor:
        """Return the initial state of the inner recurrence."""
        return self.inner.initial_state(batch)

    @torch.no_grad()
    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `Recurrence.step`."""
        mixed, state = self.inner.step(self.before(x), state)
        return self.after(x, mixed), state

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `PrefillRecurrence.prefill`."""
        given = self.before(x)
        return self.after(x, self.convolve(given)), self.inner.state_after(given)


class DiagonalStateSpace(TimeInvariantRecurrence):
    """The recurrence s' = poles * s + weights * x, y = Re(sum of s'), O(states) a step.

    Its kernel at lag l is Re(sum of weights * poles ** l). Weights act on the input and not on the
    output. States are then as large as the outputs, even with growing poles and tiny weights.

    Args:
        poles: (channels, states) or (1, states) complex.
        weights: (channels, states) complex.
    """

    def __init__(self, poles: Tensor, weights: Tensor) -> None:
        self.poles = poles
        self.weights = weights

    def initial_state(self, batch: int) -> Tensor:
        """Return zeros: (batch, channels, states) complex."""
        return self.weights.new_zeros(batch, *self.weights.shape)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Process a position.

        Args:
            x: (batch, channels).
            state: (batch, channels, states) complex.
        Returns: (batch, channels) and the next state.
        """
        state = self.poles * state + self.weights * x[..., None]
        return state.real.sum(dim=-1).to(x.dtype), state

    def advance_by(self, steps: int) -> Callable[[Tensor], Tensor]:
        """See `TimeInvariantRecurrence.advance_by`."""
        precise = self.poles.to(torch.promote_types(self.poles.dtype, torch.float64))
        power = (precise**steps).to(self.poles.dtype)
        return lambda state: power * state


class PeriodicStateSpace(DiagonalStateSpace):
    """A `DiagonalStateSpace` whose poles are damped roots of unity, the first half of them.

    Args:
        poles: (1, period // 2 + 1) complex.
        weights: (channels, period // 2 + 1) complex.
        period: positions; the poles are roots of this order.
        damping: the absolute value of all poles.
    """

    def __init__(self, poles: Tensor, weights: Tensor, *, period: int, damping: float) -> None:
        super().__init__(poles, weights)
        self.period = period
        self.damping = damping

    def state_after(self, x: Tensor) -> Tensor:
        """See `TimeInvariantRecurrence.state_after`; a Fourier transform of up to a period."""
        backwards = x.to(self.weights.real.dtype).transpose(1, 2).flip(-1)
        if self.damping < 1:
            ages = torch.arange(x.shape[1], dtype=backwards.dtype, device=x.device)
            backwards = backwards * self.damping**ages
        return self.weights * torch.fft.rfft(backwards, n=self.period).conj()


def diagonal_from_kernel(kernel: LagKernel, damping: float = 1.0) -> PeriodicStateSpace:
    """Convert a causal kernel into a diagonal state-space model, exactly over its length.

    This is the closed form of ETSC (Qin and Zhong, "Accelerating Toeplitz Neural Network with
    Constant-time Inference Complexity", EMNLP 2023). For n lags, a damping d and the n-th root
    of unity w, t[l] = sum over k of c[k] (d w ** k) ** l, where c is the discrete Fourier
    transform of t[l] / d ** l, divided by n. Real kernels need half of the roots. Beyond n
    positions the model's kernel repeats itself, scaled by d ** n. A d ** n of 10 ** -k costs k
    digits of precision.

    Args:
        kernel: for lags 0..n - 1.
        damping: in (0, 1], the absolute value of all poles.
    Returns: a model of n // 2 + 1 states per channel.
    Raises: ValueError for a damping outside (0, 1].
    """
    if not 0 < damping <= 1:
        raise ValueError(f"got damping {damping}, expected a number in (0, 1]")
    coefficients = kernel.coefficients.detach()
    length = coefficients.shape[1]
    # In double precision: this runs once, and its errors would stay in every step.
    t = coefficients.double()
    lags = torch.arange(length, dtype=torch.float64, device=t.device)
    spectrum = torch.fft.rfft(t / damping**lags) / length
    # rfft leaves out the conjugate of every root but 1 and, of an even number, -1.
    doubled = torch.full((length // 2 + 1,), 2.0, dtype=torch.float64, device=t.device)
    doubled[0] = 1.0
    if length % 2 == 0:
        doubled[-1] = 1.0
    turns = torch.arange(length // 2 + 1, dtype=torch.float64, device=t.device) / length
    poles = torch.polar(torch.full_like(turns, damping), 2 * torch.pi * turns)
    precision = torch.promote_types(coefficients.dtype, torch.complex64)
    weights = (spectrum * doubled).to(precision)
    return PeriodicStateSpace(poles[None].to(precision), weights, period=length, damping=damping)


def latest_in_slots(x: Tensor, size: int) -> Tensor:
    """Arrange the latest positions in a ring: slot p % size holds position p, or zeros.

    Args:
        x: (batch, length, ...), positions from 0 on.
        size: slots.
    Returns: (batch, size, ...).
    """
    length = x.shape[1]
    slots = x.new_zeros(len(x), size, *x.shape[2:])
    positions = torch.arange(max(0, length - size), length, device=x.device)
    slots[:, positions % size] = x[:, positions]
    return slots
