"""What every token mixer is built from and promises."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn


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
    """(height, width) of a two-dimensional input, else None."""
    causal: bool = False
    """Whether position i may only depend on positions up to i."""


class Mixer(nn.Module, abc.ABC):
    """A map over positions, without residual or outer norm (those belong to the block).

    A subclass sets `name`, and takes the context, then its options as typed keyword-only
    arguments; the harness reads the option names, types and defaults off that signature.
    It raises ValueError for a combination of options that cannot work, a causal context
    that its maths does not allow included.
    """

    name: ClassVar[str]
    """What `--mixer` calls it."""

    @abc.abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix positions.

        Args:
            x: (batch, length, dim).
            mask: (batch, length) bool, True at real positions; None when all are real.
        Returns: (batch, length, dim). Real positions depend on real positions alone,
            whatever the padding holds and however long it is; padded ones are undefined.
        """
