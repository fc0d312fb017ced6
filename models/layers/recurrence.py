"""Running a mixer one position at a time, at a cost that does not depend on the position."""

from __future__ import annotations

import abc
from collections.abc import Callable

import torch
from torch import Tensor


class Recurrence(abc.ABC):
    """A causal mixer as a state and a step."""

    @abc.abstractmethod
    def initial_state(self, batch: int) -> Tensor:
        """Return the state before the first position: (batch, ...)."""

    @abc.abstractmethod
    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Take in a position: x (batch, dim) and a state -> (batch, dim) and the next state."""


class WrappedRecurrence(Recurrence):
    """A recurrence between maps of single positions.

    Args:
        before: maps x to what the recurrence takes in.
        after: maps x and what the recurrence puts out to the output.
    """

    def __init__(
        self,
        inner: Recurrence,
        *,
        before: Callable[[Tensor], Tensor],
        after: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        self.inner = inner
        self.before = before
        self.after = after

    def initial_state(self, batch: int) -> Tensor:
        """See `Recurrence.initial_state`: that of the inner one."""
        return self.inner.initial_state(batch)

    @torch.no_grad()
    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `Recurrence.step`."""
        mixed, state = self.inner.step(self.before(x), state)
        return self.after(x, mixed), state


class DiagonalStateSpace(Recurrence):
    """s' = poles * s + weights * x, y = Re(sum of s') for every channel: O(states) a step.

    Its kernel at lag l is Re(sum of weights * poles ** l). Weighted on the way in, states are
    of the size of what they put out, also where poles grow and weights are tiny.

    Args:
        poles: (channels, states) or (1, states) complex.
        weights: (channels, states) complex.
    """

    def __init__(self, poles: Tensor, weights: Tensor) -> None:
        self.poles = poles
        self.weights = weights

    def initial_state(self, batch: int) -> Tensor:
        """See `Recurrence.initial_state`: (batch, channels, states) complex zeros."""
        return self.weights.new_zeros(batch, *self.weights.shape)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `Recurrence.step`; x is (batch, channels)."""
        state = self.poles * state + self.weights * x[..., None]
        return state.real.sum(dim=-1).to(x.dtype), state


def diagonal_from_kernel(coefficients: Tensor, damping: float = 1.0) -> DiagonalStateSpace:
    """Convert a causal kernel into a diagonal state-space model, exactly over its length.

    With n lags and d the damping, t[l] = sum over k of c[k] (d w ** k) ** l for the n-th root
    of unity w, where c is the discrete Fourier transform of t[l] / d ** l, over n (Qin and
    Zhong, "Accelerating Toeplitz Neural Network with Constant-time Inference Complexity",
    EMNLP 2023: the closed form of ETSC). Real kernels need half of the roots. Beyond n
    positions the model's kernel repeats itself, scaled by d ** n; a small d ** n costs as
    many digits.

    Args:
        coefficients: (n, channels), real, for lags 0..n - 1.
        damping: in (0, 1]; the absolute value of all poles.
    Returns: a model of n // 2 + 1 states a channel.
    Raises: ValueError for a damping outside (0, 1].
    """
    if not 0 < damping <= 1:
        raise ValueError(f"got damping {damping}, expected a number in (0, 1]")
    length = coefficients.shape[0]
    # In double precision: this runs once, and its errors would stay in every step.
    kernel = coefficients.detach().double()
    lags = torch.arange(length, dtype=torch.float64, device=kernel.device)
    spectrum = torch.fft.rfft((kernel / damping ** lags[:, None]).T) / length
    # rfft leaves out the conjugate of every root but 1 and, of an even number, -1.
    doubled = torch.full((length // 2 + 1,), 2.0, dtype=torch.float64, device=kernel.device)
    doubled[0] = 1.0
    if length % 2 == 0:
        doubled[-1] = 1.0
    turns = torch.arange(length // 2 + 1, dtype=torch.float64, device=kernel.device) / length
    poles = torch.polar(torch.full_like(turns, damping), 2 * torch.pi * turns)
    precision = torch.promote_types(coefficients.dtype, torch.complex64)
    return DiagonalStateSpace(poles[None].to(precision), (spectrum * doubled).to(precision))
