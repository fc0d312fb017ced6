"""State spaces whose states all channels share: dense matrices around a diagonal recurrence."""

import abc
from typing import Annotated, Any, Generic, Literal, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from lra.models.base import LearningRates, MixerContext, Recurrence, RecurrentMixer
from lra.models.layers.basic import LinearMap, build_dropout, linear_map
from lra.models.layers.kernel_cache import compute_once
from lra.models.layers.state_space import complex_parameter
from lra.models.ops.recurrences import scan, scan_both_ways

NumStates = Annotated[int, Field(ge=1, le=2**16)]
Gate = Literal["glu", "half_glu1", "half_glu2"]


class SharedStates(nn.Module, abc.ABC):
    """Complex states h[k] = poles * h[k - 1] + B x[k], and Re(C h) of them.

    With two directions, further states run from the other end of the sequence. They have the same
    poles and B. The initial C is (directions, dim, states).
    """

    def __init__(self, readout: Tensor) -> None:
        super().__init__()
        self.directions = len(readout)
        self.readout = complex_parameter(readout)

    readout_scale = 1.0
    """Factor on C: 2 if each state stands for a conjugate pair."""

    @abc.abstractmethod
    def discretize(self) -> tuple[Tensor, Tensor]:
        """Return the poles, (states,), and B, (states, dim), complex."""

    def run(self, x: Tensor) -> Tensor:
        """Compute Re(C h): (batch, length, dim) -> the same shape, in single precision or above."""
        with torch.autocast(x.device.type, enabled=False):
            poles, into, readouts = self.matrices()
            driven = drive(x.to(into.dtype), into)
            if self.directions == 1:
                return read(scan(poles, driven), readouts[0])
            ahead, back = map(read, scan_both_ways(poles, driven), readouts)
            return ahead + back

    def matrices(self) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return the poles, (states,), and B and C as `drive` and `read` take them.

        All groups of a batch use the same ones, see `cache_kernels`.
        """

        def compute() -> tuple[Tensor, Tensor, list[Tensor]]:
            poles, into = self.discretize()
            readouts = torch.view_as_real(self.readouts().conj().resolve_conj()).flatten(2)
            return poles, torch.view_as_real(into).transpose(1, 2).flatten(0, 1), list(readouts)

        return compute_once(self, "matrices", compute)

    def readouts(self) -> Tensor:
        """Return C, times its scale: (directions, dim, states) complex."""
        return self.readout_scale * torch.view_as_complex(self.readout)


States = TypeVar("States", bound=SharedStates)


def drive(x: Tensor, into: Tensor) -> Tensor:
    """Compute B x: (..., dim) real and B (2 states, dim) in pairs -> (..., states) complex."""
    return torch.view_as_complex(linear_map(x, into).unflatten(-1, (-1, 2)))


def read(states: Tensor, readout: Tensor) -> Tensor:
    """Compute Re(C h) of (..., states) and of conjugate C (dim, 2 states) in pairs: (..., dim)."""
    return linear_map(torch.view_as_real(states).flatten(-2), readout)


def cascade(poles: Tensor, driven: Tensor, *, reverse: bool = False) -> list[Tensor]:
    """Run recurrences of order one, each over the states of the one before.

    Args:
        poles: (recurrences, states) complex.
        driven: (batch, length, states) complex.
        reverse: whether they run from the last position to the first.
    Returns: the states of each, (batch, length, states).
    """
    states: list[Tensor] = []
    for factors in poles:
        driven = scan(factors, driven, reverse=reverse)
        states.append(driven)
    return states


class SharedStateMixer(RecurrentMixer, Generic[States]):
    """The layer of S5, LRU and LinOSS: y = Re(C h) + D x, gelu, dropout, and a gate.

    gelu is the tanh approximation, as in flax. The context's inner dropout acts on the output of
    gelu; it zeroes whole channels if the context has tied dropout.

    Args:
        states: h.
        gate: with g = gelu(y), "glu" is W_1 g * sigmoid(W_2 g), "half_glu1" is g * sigmoid(W g),
            and "half_glu2" is y * sigmoid(W g).
        state_lr: highest learning rate of all parameters of the states but C, which have no weight
            decay. None: the run's rate.
    """

    def __init__(
        self, context: MixerContext, states: States, *, gate: Gate, state_lr: float | None
    ) -> None:
        super().__init__()
        self.context = context
        self.states = states
        self.gate = gate
        self.state_lr = state_lr
        self.direct = nn.Parameter(torch.randn(context.dim))
        self.output = LinearMap(context.dim, context.dim * (2 if gate == "glu" else 1))
        self.dropout = build_dropout(context.inner_dropout, tied=context.tied_dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)
        return self.project(x, self.states.run(x).to(x.dtype))

    def project(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the direct term D x to what the states give, activate and gate: (..., dim)."""
        y = mixed + self.direct.to(x.dtype) * x
        active = self.dropout(functional.gelu(y, approximate="tanh"))
        gate = self.output(active)
        if self.gate == "glu":
            return functional.glu(gate, dim=-1)
        return (active if self.gate == "half_glu1" else y) * torch.sigmoid(gate)

    def learning_rates(self) -> LearningRates:
        dynamics = [p for name, p in self.states.named_parameters() if name != "readout"]
        return dict.fromkeys(dynamics, self.state_lr)

    def freeze(self, length: int) -> Recurrence:
        return _SharedRecurrence(self)


class _SharedRecurrence(Recurrence):
    """One recurrence of order one, or a `cascade` of several."""

    def __init__(self, mixer: SharedStateMixer[Any]) -> None:
        self.mixer = mixer
        poles, self.into, (self.readout, *_) = mixer.states.matrices()
        self.poles = torch.atleast_2d(poles)

    def initial_state(self, batch: int) -> Tensor:
        """Return zeros: (batch, recurrences, states) complex."""
        return self.poles.new_zeros(batch, *self.poles.shape)

    @torch.no_grad()
    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        driven = drive(x.to(self.into.dtype), self.into)
        states: list[Tensor] = []
        for decayed in (self.poles * state).unbind(dim=1):
            driven = decayed + driven
            states.append(driven)
        mixed = read(driven, self.readout).to(x.dtype)
        return self.mixer.project(x, mixed), torch.stack(states, dim=1)

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, Tensor]:
        states = cascade(self.poles, drive(x.to(self.into.dtype), self.into))
        mixed = read(states[-1], self.readout).to(x.dtype)
        return self.mixer.project(x, mixed), torch.stack([s[:, -1] for s in states], dim=1)
