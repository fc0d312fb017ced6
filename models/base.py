"""What every token mixer is built from and promises."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Added:
    """Marks an option that a mixer was given later, in its type: Annotated[int, Added(1)].

    While the option has this value, runs have the hash that they had before it was there.
    """

    default: Any


@dataclass(frozen=True)
class DecayingAt:
    """A learning rate of a parameter's own, for one that decays as the run's others do."""

    lr: float


@dataclass(frozen=True, kw_only=True)
class MixerContext:
    """What a mixer may know about the model and the task it is built for."""

    dim: int
    """Channels in and out."""
    max_length: int
    """Longest sequence the mixer will see, in positions."""
    layer: int
    """0-based index of the block the mixer sits in."""
    depth: int
    """Number of blocks."""
    grid: tuple[int, int] | None = None
    """(height, width) for a mixer that mixes along the axes of a grid itself, else None."""
    causal: bool = False
    """Whether position i may only depend on positions up to i."""
    inner_dropout: float = 0.0
    """Fraction to drop within the mixer, where it has a place for that."""
    tied_dropout: bool = False
    """Whether a channel is dropped at all positions of what the mixer is given or at none."""
    shared: nn.Module | None = None
    """What `Mixer.shared` built for the mixers of all blocks; None for one that is built alone."""

    @classmethod
    def of(
        cls, *, dim: int, length: int, causal: bool = False, grid: tuple[int, int] | None = None
    ) -> MixerContext:
        """Describe a mixer that is used by itself, as a module of one's own code.

        Args:
            dim: channels in and out.
            length: longest sequence that it will see, in positions.
            causal: whether position i may only depend on positions up to i.
            grid: (height, width) for a mixer that mixes along both axes of images itself.
        """
        return cls(dim=dim, max_length=length, layer=0, depth=1, causal=causal, grid=grid)


class Mixer(nn.Module, abc.ABC):
    """A map over positions, without residual or outer norm (those belong to the block).

    A subclass sets `name`, and takes the context, then its options as typed keyword-only
    arguments; the harness reads the option names, types and defaults off that signature.
    It raises ValueError for a combination of options that cannot work, a causal context
    that its maths does not allow included.
    """

    name: ClassVar[str]
    """What `--mixer` calls it."""
    has_native_grid: ClassVar[bool] = False
    """Whether it mixes along both axes itself when the context has a grid."""
    reach: tuple[int, int] | None = None
    """Positions behind and ahead that a position's result depends on, where these are few whatever
    the length; (0, 0) if only pooling joins positions. None: all that causality admits."""
    looks_ahead: bool = True
    """Whether, in a context that is not causal, it depends on later ones."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make sure of the context before any constructor takes something out of it.

        Raises: TypeError for anything else in its place.
        """
        given = [*args[:1], *([kwargs["context"]] if "context" in kwargs else [])]
        if given and not isinstance(given[0], MixerContext):  # a copy is made without arguments
            raise TypeError(
                f"{cls.__name__}: got {given[0]!r} as context, expected a MixerContext, "
                f"MixerContext.of(dim=64, length=1024) for instance; options are named"
            )
        return super().__new__(cls)

    @classmethod
    def shared(cls, context: MixerContext, **options: Any) -> nn.Module | None:
        """Build what the mixers of all blocks have in common, once for a model.

        Each of them finds it in its `context.shared`, and keeps it as a module of its own.

        Args:
            context: the first block's.
            options: those of the mixers.
        Returns: None if there is nothing.
        """
        return None

    @abc.abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix positions.

        Args:
            x: (batch, length, dim).
            mask: (batch, length) bool, True at real positions, which come first in each row;
                None when all are real.
        Returns: (batch, length, dim). Real positions depend on real positions alone,
            whatever the padding holds, infinities and NaN included, and however long it is
            (up to max_length in all); padded ones are undefined.
        """

    def begin_step(self) -> None:
        """Prepare for a training step; `begin_step` of this module calls it.

        A mixer that changes its buffers at random during training does so here: within `forward`
        the backward pass of an earlier call may still need them. Where several processes train a
        model together, the buffers of the main process replace those of the others after it.
        """

    def learning_rates(self) -> Mapping[nn.Parameter, float | DecayingAt | None]:
        """Name the parameters that train at a rate of their own, or without weight decay.

        Returns: by parameter its highest learning rate, None for the run's; it does not decay
            then. `DecayingAt` stands for a rate with the run's decay.
        """
        return {}


def begin_step(model: nn.Module) -> None:
    """Call `Mixer.begin_step` of all mixers in a model.

    A training loop calls it once for each step of the optimizer, before the first forward pass.
    """
    for module in model.modules():
        if isinstance(module, Mixer):
            module.begin_step()


class GatedMixer(Mixer):
    """A mixer with a gate against what its result is added to: x + gate * (value - x).

    x is what the block was given, before any norm. A mixer that is used by itself takes its own
    input for it, so that `forward` gives what is to be added.
    """

    @abc.abstractmethod
    def value_and_gate(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix positions.

        Args:
            x: (batch, length, dim).
            mask: see `Mixer.forward`.
        Returns: (batch, length, 2 * dim), the value and then the gate, in [0, 1].
        """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See `Mixer.forward`."""
        value, gate = self.value_and_gate(x, mask).chunk(2, dim=-1)
        return gate * (value - x)


State = Tensor | tuple[Tensor, ...]
"""What a recurrence carries from position to position: each tensor is (batch, ...)."""


class Recurrence(abc.ABC):
    """A causal mixer as a state and a step: one position at a time, each at the same cost."""

    @abc.abstractmethod
    def initial_state(self, batch: int) -> State:
        """Return the state before the first position."""

    @abc.abstractmethod
    def step(self, x: Tensor, state: Any) -> tuple[Tensor, State]:
        """Take in a position: x (batch, dim) and a state -> (batch, dim) and the next state."""

    @property
    def state_size(self) -> int:
        """Real numbers in the state of one sequence; a complex one counts as two."""
        state = self.initial_state(1)
        tensors = (state,) if isinstance(state, Tensor) else state
        return sum(t.numel() * (2 if t.is_complex() else 1) for t in tensors)


class GatedRecurrence(Recurrence):
    """The recurrence of a `GatedMixer`."""

    @abc.abstractmethod
    def value_and_gate(self, x: Tensor, state: Any) -> tuple[Tensor, State]:
        """Take in a position: x (batch, dim) -> value and gate, (batch, 2 * dim), and the state."""

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, State]:
        """See `Recurrence.step`."""
        parts, state = self.value_and_gate(x, state)
        value, gate = parts.chunk(2, dim=-1)
        return gate * (value - x), state


class PrefillRecurrence(Recurrence):
    """A recurrence that can also take in many first positions at once, as fast as a full pass."""

    @abc.abstractmethod
    def prefill(self, x: Tensor) -> tuple[Tensor, State]:
        """Take in the first positions of sequences.

        Args:
            x: (batch, length, dim); at least one position, and no more than the recurrence is for.
        Returns: what the steps give for each of them, (batch, length, dim), and the state after
            the last one. A `GatedRecurrence` returns values and gates, (batch, length, 2 * dim).
        """


class RecurrentMixer(Mixer):
    """A mixer that, where it is causal, can also take one position at a time."""

    context: MixerContext
    """What it was built with; a subclass sets it."""

    @torch.no_grad()
    def recurrence(self, length: int) -> Recurrence:
        """Freeze the mixer into a recurrence equal to `forward` in evaluation.

        Args:
            length: positions for which the equality is needed.
        Raises: ValueError if the context was not causal.
        """
        if not self.context.causal:
            raise ValueError("only a causal mixer has a recurrence (model.causal=true)")
        return self.freeze(length)

    @abc.abstractmethod
    def freeze(self, length: int) -> Recurrence:
        """Make what `recurrence` returns of a causal mixer; gradients are off."""

    def state_size(self, length: int) -> int:
        """Return the real numbers that one sequence carries from position to position.

        Args:
            length: positions for which the recurrence is needed.
        Raises: ValueError if the context was not causal.
        """
        return self.recurrence(length).state_size
