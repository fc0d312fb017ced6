"""The interface of a token mixer: what it is built from, and what it guarantees."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class DecayingAt:
    """A separate learning rate for a parameter that has the run's weight decay."""

    lr: float


LearningRates = Mapping[nn.Parameter, float | DecayingAt | None]
"""Highest learning rates of parameters without weight decay (except `DecayingAt`); None: the run's.
"""


@dataclass(frozen=True, kw_only=True)
class MixerContext:
    """Facts about the model and the task that a mixer is built for."""

    dim: int
    """Channels in and out."""
    max_length: int
    """Longest sequence that the mixer gets, in positions."""
    layer: int
    """Index of the mixer's block, from 0."""
    depth: int
    """Number of blocks."""
    grid: tuple[int, int] | None = None
    """(height, width) of an image if the mixer mixes along both of its axes, else None."""
    causal: bool = False
    """Whether position i may only depend on positions up to i."""
    inner_dropout: float = 0.0
    """Dropout probability within the mixer, for mixers that have dropout there."""
    tied_dropout: bool = False
    """Whether dropout zeroes a channel at all positions of a sequence at once."""
    shared: nn.Module | None = None
    """The module that `Mixer.shared` built for all blocks; None for a mixer that is built alone."""

    @property
    def num_directions(self) -> int:
        """1 for a causal mixer, which looks back only, else 2."""
        return 1 if self.causal else 2

    @classmethod
    def of(
        cls, *, dim: int, length: int, causal: bool = False, grid: tuple[int, int] | None = None
    ) -> MixerContext:
        """Describe a mixer that is used outside of the suite's model, for sequences of a length."""
        return cls(dim=dim, max_length=length, layer=0, depth=1, causal=causal, grid=grid)


class Mixer(nn.Module, abc.ABC):
    """A token mixer: a module that moves information between positions.

    The block around it has the residual connection and the norm. A subclass sets `name`. Its
    constructor takes the context and then its options, as typed keyword-only arguments, which the
    harness reads from the signature. It raises ValueError for options that do not work together,
    and for a causal context if the mixer has no causal form.
    """

    name: ClassVar[str]
    """The mixer's name for `--mixer`."""
    has_native_grid: ClassVar[bool] = False
    """Whether it mixes along both axes of an image when the context has a grid. It then keeps the
    grid in a `GridModule`, which the model gives the size of other images."""
    reach: tuple[int, int] | None = None
    """(behind, ahead): how many positions on each side a result depends on, if that number is
    fixed. (0, 0): each position is independent of all others. None: any that causality allows."""
    looks_ahead: bool = True
    """Whether a result depends on later positions if the context is not causal."""
    takes_longer: ClassVar[bool] = True
    """Whether it also mixes sequences longer than the context's max_length. If not, because it has
    parameters for each position, `forward` raises ValueError for them (`check_length`)."""

    @classmethod
    def shared(cls, context: MixerContext, **options: Any) -> nn.Module | None:
        """Build a module that the mixers of all blocks share, or None; called once per model.

        It gets the context of the first block and the mixers' options. Each mixer finds the module
        in its `context.shared` and registers it as a submodule.
        """
        return None

    @abc.abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix positions.

        Args:
            x: (batch, length, dim).
            mask: (batch, length) bool, True at real positions, which come first in each row.
                None: all positions are real.
        Returns: (batch, length, dim). Results at real positions depend on real positions only: they
            are the same for any content of the padding, also infinite or NaN, and for any amount
            of padding up to a length of max_length, and so are their gradients. Results at
            padded positions are undefined.
        """

    @staticmethod
    def without_padding(x: Tensor, mask: Tensor | None) -> Tensor:
        """Set padded positions of x, (batch, length, channels), to 0, whatever they hold."""
        return x if mask is None else x.masked_fill(~mask[..., None], 0)

    @staticmethod
    def check_length(length: int, max_length: int) -> None:
        """Raise ValueError for a sequence that is longer than the positions with parameters."""
        if length > max_length:
            raise ValueError(f"got {length} positions, expected at most {max_length}")

    def begin_step(self) -> bool:
        """Prepare for a training step, and return whether buffers changed at random.

        A mixer that changes its buffers at random does so here, and not in `forward`, where the
        backward pass of an earlier call may still need the old ones. If several processes train a
        model, the buffers of the main process are then copied to the others.
        """
        return False

    def learning_rates(self) -> LearningRates:
        """Return the rates of parameters with a rate of their own, or without weight decay."""
        return {}


def begin_step(model: nn.Module) -> bool:
    """Call `Mixer.begin_step` of all mixers, once before each step of the optimizer."""
    mixers = [module for module in model.modules() if isinstance(module, Mixer)]
    have_changed = [mixer.begin_step() for mixer in mixers]
    return any(have_changed)


class GridModule(nn.Module):
    """A module whose sequences are images of a grid, (height, width), in raster order."""

    def __init__(self, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid

    def take_grid(self, grid: tuple[int, int]) -> None:
        """Change the size of the grid, for a trained model that is evaluated on other images."""
        self.grid = grid

    def on_grid(self, x: Tensor) -> Tensor:
        """Arrange positions, (batch, height * width, ...), as (batch, height, width, ...).

        Raises: ValueError for another number of positions.
        """
        self.check_length(x.shape[1])
        return x.unflatten(1, self.grid)

    def along_rows(self, mix: Callable[..., Tensor], *parts: Tensor) -> Tensor:
        """Apply a function of sequences to each row.

        Args:
            mix: maps parts, (sequences, length, channels of each part), to one tensor.
            parts: (batch, height * width, channels), in raster order.
        Returns: (batch, height * width, channels of the result of mix).
        Raises: ValueError for another number of positions than the grid has.
        """
        rows = (self.on_grid(part).flatten(0, 1) for part in parts)
        return mix(*rows).unflatten(0, (-1, self.grid[0])).flatten(1, 2)

    def along_columns(self, mix: Callable[..., Tensor], *parts: Tensor) -> Tensor:
        """Apply a function of sequences to each column, see `along_rows`."""
        columns = (self.on_grid(part).transpose(1, 2).flatten(0, 1) for part in parts)
        mixed = mix(*columns).unflatten(0, (-1, self.grid[1]))
        return mixed.transpose(1, 2).flatten(1, 2)

    def check_length(self, length: int) -> None:
        """Raise ValueError for another number of positions than the grid has."""
        height, width = self.grid
        if length != height * width:
            raise ValueError(f"got {length} positions, expected the {height} x {width} of the grid")


class GatedMixer(Mixer):
    """A mixer with a gate in place of the residual connection: x + gate * (value - x).

    Here x is the input of the block, before its norm, or the mixer's own without a block.
    """

    @abc.abstractmethod
    def value_and_gate(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix positions; return value and gate, in [0, 1], (batch, length, 2 * dim)."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)
        value, gate = self.value_and_gate(x, mask).chunk(2, dim=-1)
        return gate * (value - x)


State = Tensor | tuple[Tensor, ...]
"""The state of a recurrence: one tensor or several, each (batch, ...)."""


class Recurrence(abc.ABC):
    """A causal mixer that processes one position at a time, with a state and a fixed cost.

    A `RecurrentMixer` whose state does not depend on the length may be its own recurrence.
    """

    @abc.abstractmethod
    def initial_state(self, batch: int) -> State:
        """Return the state before the first position."""

    @abc.abstractmethod
    def step(self, x: Tensor, state: Any) -> tuple[Tensor, State]:
        """Process a position: x (batch, dim) and a state -> (batch, dim) and the next state."""

    def prefill(self, x: Tensor) -> tuple[Tensor, State]:
        """Process the first positions of sequences, one or more: x (batch, length, dim).

        A subclass can do so as fast as in a full pass.

        Returns: all results, (batch, length, dim), and the state after the last. A
            `GatedRecurrence` returns values and gates, (batch, length, 2 * dim).
        """
        step = self.value_and_gate if isinstance(self, GatedRecurrence) else self.step
        state, results = self.initial_state(len(x)), []
        for position in x.unbind(dim=1):
            result, state = step(position, state)
            results.append(result)
        return torch.stack(results, dim=1), state


class GatedRecurrence(Recurrence):
    """The recurrence of a `GatedMixer`."""

    @abc.abstractmethod
    def value_and_gate(self, x: Tensor, state: Any) -> tuple[Tensor, State]:
        """Process a position: x (batch, dim) -> value and gate, (batch, 2 * dim), and the state."""

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, State]:
        parts, state = self.value_and_gate(x, state)
        value, gate = parts.chunk(2, dim=-1)
        return gate * (value - x), state


class RecurrentMixer(Mixer):
    """A mixer whose causal form can also process one position at a time."""

    context: MixerContext
    """The context of the constructor; a subclass sets it."""

    @torch.no_grad()
    def recurrence(self, length: int) -> Recurrence:
        """Convert the mixer into a recurrence that equals `forward`, in evaluation, up to a length.

        Raises: ValueError if the context was not causal, or has a grid.
        """
        if not self.context.causal:
            raise ValueError("only a causal mixer has a recurrence (model.causal=true)")
        if self.context.grid is not None:
            raise ValueError("a mixer of both axes of an image has no recurrence (model.axes=flat)")
        return self.freeze(length)

    def freeze(self, length: int) -> Recurrence:
        """Build the result of `recurrence` for a causal mixer; gradients are disabled."""
        if not isinstance(self, Recurrence):
            raise NotImplementedError(f"{type(self).__name__} has neither freeze nor step")
        return self

    def state_size(self, length: int) -> int:
        """Count the real numbers in the state of one sequence of a length; complex ones are two."""
        state = self.recurrence(length).initial_state(1)
        tensors = (state,) if isinstance(state, Tensor) else state
        return sum(t.numel() * (2 if t.is_complex() else 1) for t in tensors)
