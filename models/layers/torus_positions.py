"""Positions of attention on a torus: their encoding, and the weight of their distance."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.base import GridModule, MixerContext
from models.ops.torus import Harmonics, Torus


class TorusPositions(nn.Module):
    """The torus of a context's positions, with one weight of the distance per head.

    Args:
        context: has the longest length, and the grid.
        num_heads: heads, each with a weight of its own.
        num_platters: parts of the channels.
        channels: of a head on a platter.
        wrap: whether positions lie on circles.
        depth_wrap: whether platters lie on a circle.
        harmonics: how often channels turn around the circles.
        distance_weight: of the distance in scores at the start. 0: there is none.
    """

    def __init__(
        self,
        context: MixerContext,
        *,
        num_heads: int,
        num_platters: int,
        channels: int,
        wrap: bool,
        depth_wrap: bool,
        harmonics: Harmonics,
        distance_weight: float,
    ) -> None:
        super().__init__()
        self.max_length = context.max_length
        self.grid = None if context.grid is None else GridModule(context.grid)
        self.num_heads = num_heads
        self.num_platters = num_platters
        self.channels = channels
        self.wrap = wrap
        self.depth_wrap = depth_wrap
        self.harmonics: Harmonics = harmonics
        self.distance_logit = None
        if distance_weight:
            # softplus of it is the weight
            logit = distance_weight + math.log(-math.expm1(-distance_weight))
            self.distance_logit = nn.Parameter(torch.full((num_heads,), logit))

    @property
    def torus(self) -> Torus:
        """The torus on which positions and platters lie."""
        sizes = (self.max_length,) if self.grid is None else self.grid.grid
        return Torus(sizes, self.num_platters, wrap=self.wrap, depth_wrap=self.depth_wrap)

    @property
    def distance_weight(self) -> Tensor | None:
        """The weight of the distance in the scores of each head, (heads,); None if it has none."""
        return None if self.distance_logit is None else functional.softplus(self.distance_logit)

    def angles(self, places: Tensor, periods: Tensor | None = None) -> Tensor:
        """Compute the angles that encode places; see `Torus.angles`.

        Args:
            places: (batch or 1, length, axes) int64.
            periods: (batch or 1, 1), where sequences have circles of their own.
        Returns: (batch or 1, length, platters, channels / 2) in radians.
        """
        return self.torus.angles(places, self.channels, self.harmonics, periods)

    def angles_of_all(self, length: int, device: torch.device) -> Tensor:
        """Return the angles of all positions, which are kept: (1, length, platters, channels / 2).

        Raises: ValueError for another number of positions than the grid has.
        """
        if self.grid is not None:
            self.grid.check_length(length)
        return _angles_of_all(self.torus, length, self.channels, self.harmonics, device)


@functools.lru_cache(maxsize=16)
def _angles_of_all(
    torus: Torus, length: int, channels: int, harmonics: Harmonics, device: torch.device
) -> Tensor:
    with torch.inference_mode(False):  # a training run may use them next
        places = torus.coordinates(torch.arange(length, device=device))[None]
        return torus.angles(places, channels, harmonics)
