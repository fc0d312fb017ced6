"""What the state-space mixers have in common: two kernels, a gated output, own learning rates."""

from __future__ import annotations

import abc
import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from models.base import MixerContext, Part, RecurrentMixer
from models.layers.kernel_cache import kernel_for, multiply_shared
from models.layers.recurrence import Recurrence, WrappedRecurrence

StateSize = Annotated[int, Field(ge=2, le=2**12, multiple_of=2)]
Rate = Annotated[float, Field(gt=0)]
Step = Annotated[float, Field(gt=0, le=1e3)]


class StateSpaceKernel(nn.Module, abc.ABC):
    """Causal kernels of every channel, one per direction."""

    log_step: nn.Parameter
    """(channels,) logarithm of each channel's time step, Delta."""

    @abc.abstractmethod
    def kernel(self, length: int) -> Tensor:
        """Generate the kernels for lags 0..length - 1: (directions, channels, length)."""

    def resolution(self, length: int) -> int:
        """Return a number that is the same for lengths that see the same kernel."""
        return 0

    @abc.abstractmethod
    def state_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the dynamics, time steps apart."""

    @abc.abstractmethod
    def recurrence(self, length: int) -> Recurrence:
        """Return a recurrence over channels, of the first direction's kernel for a length."""


class StateSpaceMixer(RecurrentMixer):
    """W (gelu(K x + D x)) with a gated linear unit as W: the layer of S4, S4D and DSS.

    K is causal with one kernel, and bidirectional with another for the positions ahead
    (S4, appendix D; Goel et al., Sashimi, 2022).

    Args:
        state_lr: highest learning rate of the dynamics' parameters. None: the run's.
        step_lr: that of the time steps. None: the run's.
    """

    def __init__(
        self,
        context: MixerContext,
        kernel: StateSpaceKernel,
        *,
        state_lr: float | None,
        step_lr: float | None,
    ) -> None:
        super().__init__()
        self.context = context
        self.kernel = kernel
        self.state_lr = state_lr
        self.step_lr = step_lr
        self.direct = nn.Parameter(torch.randn(context.dim))
        self.output = nn.Linear(context.dim, 2 * context.dim)

    def learning_rates(self) -> dict[nn.Parameter, float | None]:
        """See `Mixer.learning_rates`."""
        rates = dict.fromkeys(self.kernel.state_parameters(), self.state_lr)
        return {**rates, self.kernel.log_step: self.step_lr}

    def coefficients(self, length: int) -> tuple[Tensor, int]:
        """Join the kernels of the directions, once within `shared_kernels`.

        Returns: (num_lags, channels) for increasing lags, and the first lag.
        """
        return kernel_for(self._key(length), length, self._coefficients)

    def _key(self, length: int) -> tuple[object, int]:
        return self, self.kernel.resolution(length)

    def _coefficients(self, length: int) -> tuple[Tensor, int]:
        with torch.autocast(self.direct.device.type, enabled=False):
            kernels = self.kernel.kernel(length)
        ahead = kernels[1:, :, : length - 1].flip(-1)
        return torch.cat([*ahead, kernels[0]], dim=-1).T, (1 - length) * len(ahead)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See `Mixer.forward`."""
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0)
        return self.gated(x, self.mixed(x))

    def mixed(self, x: Tensor) -> Tensor:
        """Multiply by the kernels: x (batch, length, dim) -> the same shape."""
        return multiply_shared(self._key(x.shape[1]), self.coefficients, x)

    def parts(self) -> dict[str, Part]:
        """See `Mixer.parts`."""
        kernel = Part(lambda x: self.coefficients(x.shape[1])[0])
        return {**super().parts(), "mixing": Part(self.mixed), "kernel": kernel}

    def gated(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the direct term, and project: both (..., dim) -> (..., dim)."""
        hidden = functional.gelu(mixed + self.direct.to(x.dtype) * x)
        return functional.glu(self.output(hidden), dim=-1)

    @torch.no_grad()
    def recurrence(self, length: int) -> Recurrence:
        """See `RecurrentMixer.recurrence`; the state serves any length."""
        if not self.context.causal:
            raise ValueError("only a causal mixer has a recurrence (model.causal=true)")
        states = self.kernel.recurrence(length)
        return WrappedRecurrence(states, before=lambda x: x, after=self.gated)


def num_directions(context: MixerContext) -> int:
    """Return how many kernels a mixer needs."""
    return 1 if context.causal else 2


def initial_log_steps(channels: int, step_min: float, step_max: float) -> nn.Parameter:
    """Draw time steps, evenly on a logarithmic scale: (channels,).

    Raises: ValueError for an empty range.
    """
    if step_min > step_max:
        raise ValueError(f"step_min {step_min} exceeds step_max {step_max}")
    low, high = math.log(step_min), math.log(step_max)
    return nn.Parameter(torch.rand(channels) * (high - low) + low)


def complex_parameter(values: Tensor) -> nn.Parameter:
    """Store complex numbers as pairs of real ones: (...) -> (..., 2).

    Optimizers, `module.double()` and bfloat16 then treat them as what they are.
    """
    return nn.Parameter(torch.view_as_real(values.resolve_conj()).float().clone())


def random_complex(*shape: int) -> Tensor:
    """Draw complex normal numbers of variance 1."""
    return torch.randn(*shape, dtype=torch.complex64)


def per_channel(values: Tensor, channels: int) -> Tensor:
    """Repeat the dynamics of each copy for its share of the channels.

    Args:
        values: (copies, states).
    Returns: (channels, states).
    """
    return values.repeat(channels // values.shape[0], 1)


def check_copies(num_copies: int | None, channels: int) -> int:
    """Return the number of copies of the dynamics; None stands for one per channel.

    Raises: ValueError if the copies cannot share the channels evenly.
    """
    copies = channels if num_copies is None else num_copies
    if channels % copies:
        raise ValueError(f"num_copies {num_copies} does not divide model.dim {channels}")
    return copies
