"""What every token mixer is built from and promises."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from models.layers.recurrence import Recurrence


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


class Part(NamedTuple):
    """A part of a mixer that can be measured alone."""

    compute: Callable[[Tensor], Tensor]
    """Maps (batch, length, channels) to what the part makes of it, or of its length."""
    channels: int | None = None
    """That it works on; None for the context's."""


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
    joins_positions: ClassVar[bool] = True
    """Whether a position's result depends on others; if not, only pooling joins them."""

    @abc.abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix positions.

        Args:
            x: (batch, length, dim).
            mask: (batch, length) bool, True at real positions; None when all are real.
        Returns: (batch, length, dim). Real positions depend on real positions alone,
            whatever the padding holds and however long it is (up to max_length in all);
            padded ones are undefined.
        """

    def learning_rates(self) -> dict[nn.Parameter, float | None]:
        """Name the parameters that no weight decay touches, each with a learning rate of its own.

        Returns: the highest learning rate by parameter; None stands for the run's.
        """
        return {}

    def parts(self) -> dict[str, Part]:
        """Name what `lra.bench --mode op` can measure of it: whole, and mixing without projections,
        and kernel, where they can be told apart.
        """
        return {"whole": Part(self)}


class LagOperator(nn.Module, abc.ABC):
    """A part of a mixer: a matrix for every channel, whose entries follow the lag."""

    @abc.abstractmethod
    def matrix(self, length: int) -> Tensor:
        """Write the matrices out for sequences of a length: (channels, length, length)."""


class RecurrentMixer(Mixer):
    """A mixer that, where it is causal, can also take one position at a time."""

    @abc.abstractmethod
    def recurrence(self, length: int) -> Recurrence:
        """Freeze the mixer into a recurrence equal to `forward` in evaluation.

        Args:
            length: positions for which the equality is needed.
        Raises: ValueError if the context was not causal.
        """
