"""Recurrences that mixers have in common."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from models.base import Recurrence, State
from models.ops.toeplitz import LagKernel


class WrappedRecurrence(Recurrence):
    """A recurrence with a map of single positions before it and one after it.

    Args:
        inner: the recurrence.
        before: maps x to the input of `inner`.
        after: maps x and the output of `inner` to the output.
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

    def initial_state(self, batch: int) -> State:
        """Return the initial state of the inner recurrence."""
        return self.inner.initial_state(batch)

    @torch.no_grad()
    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """See `Recurrence.step`."""
        mixed, state = self.inner.step(self.before(x), state)
        return self.after(x, mixed), state


class DiagonalStateSpace(Recurrence):
    """The recurrence s' = poles * s + weights * x, y = Re(sum of s'), O(states) a step.

    Its kernel at lag l is Re(sum of weights * poles ** l). Weights act on the input and not on
    the output, so that states are as large as the outputs, also where poles grow and weights
    are tiny.

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
        """Take in a position.

        Args:
            x: (batch, channels).
            state: (batch, channels, states) complex.
        Returns: (batch, channels) and the next state.
        """
        state = self.poles * state + self.weights * x[..., None]
        return state.real.sum(dim=-1).to(x.dtype), state


def diagonal_from_kernel(kernel: LagKernel, damping: float = 1.0) -> DiagonalStateSpace:
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
    return DiagonalStateSpace(poles[None].to(precision), (spectrum * doubled).to(precision))
