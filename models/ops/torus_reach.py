"""Which places and platters of a torus may attend to which, and the biases of their distances."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from models.ops.torus import Torus


@dataclass(frozen=True)
class Pairs:
    """Tables over queries and keys, each (batch or 1, queries, keys); platters count separately."""

    distance: Tensor
    """Distance on the torus, float64."""
    allowed: Tensor | None
    """Whether the query may attend to the key. None: every query may attend to every key."""

    def among(self, real: Tensor, same: Tensor | None) -> Pairs:
        """Allow attention to real places only.

        Args:
            real: (batch, keys) bool.
            same: (queries, keys) bool, whether query and key are of the same place, where there
                is attention, too: a padded place might be left with nothing to attend to.
        """
        allowed = real[:, None]
        allowed = allowed if same is None else allowed | same
        return Pairs(self.distance, allowed if self.allowed is None else self.allowed & allowed)

    def bias(self, weight: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """Return the bias of the scores: minus the weighted distance, or -inf for no attention.

        Args:
            weight: (heads,) of the distance. None: distances cost nothing.
            dtype: of the result.
        Returns: (batch or 1, heads or 1, queries, keys); None if it is 0.
        """
        if weight is None and self.allowed is None:
            return None
        if weight is None:
            table = torch.zeros_like(self.distance, dtype=dtype)[:, None]
        else:
            table = -weight.to(dtype).view(-1, 1, 1) * self.distance.to(dtype)[:, None]
        if self.allowed is not None:
            table = table.masked_fill(~self.allowed[:, None], -torch.inf)
        return table

    def summed(self, x: Tensor) -> Tensor:
        """Sum over pairs (batch, heads, queries, keys), each times its distance: (heads,)."""
        distance = self.distance.to(x.dtype)
        if len(distance) == 1:
            return x.sum(dim=0).flatten(1) @ distance.flatten()
        return torch.einsum("bhqk,bqk->h", x, distance)


def pairs_of(
    torus: Torus, steps: Tensor, allowed: Tensor | None, periods: Tensor | None = None
) -> Pairs:
    """Build the tables of all platters from the steps between places.

    Args:
        torus: of the places.
        steps: (..., queries, keys, axes) int64, see `Torus.count_steps`.
        allowed: (..., queries, keys) bool, whether there is attention. None: between all.
        periods: (..., 1), of the one axis, where they are not the torus's own.
    """
    platters = torus.num_platters
    across = torus.distance(steps, periods)
    across = across.view(-1, across.shape[-2], 1, across.shape[-1], 1)
    distance = (across + torus.platter_distance(steps.device)[:, None]).flatten(3).flatten(1, 2)
    if allowed is not None:
        allowed = allowed.reshape(-1, *allowed.shape[-2:])
        allowed = allowed.repeat_interleave(platters, 1).repeat_interleave(platters, 2)
    return Pairs(distance, allowed)


@dataclass(frozen=True)
class Reach:
    """Which places attend to which."""

    torus: Torus
    causal: bool = False
    """Whether position i attends to j <= i only, on all platters."""
    window: int | None = None
    """Steps along each axis are fewer than this; causal windows cover earlier positions only."""

    @property
    def is_limited(self) -> bool:
        """Whether a place may not attend to every other."""
        return self.causal or self.window is not None

    def pairs(self, query: Tensor, key: Tensor, periods: Tensor | None = None) -> Pairs:
        """Build the tables of queries and keys.

        Args:
            query: (queries,) int64, positions in increasing order.
            key: (keys,) int64, the same.
            periods: (batch, 1), of the one axis, where they are not the torus's own.
        """
        steps = self.torus.count_steps(
            self.torus.coordinates(query), self.torus.coordinates(key), periods
        )
        allowed = self._allowed(query, key, steps)
        return pairs_of(self.torus, steps, allowed, periods)

    def _allowed(self, query: Tensor, key: Tensor, steps: Tensor) -> Tensor | None:
        """Tell which position may attend to which: ((batch), queries, keys); None for all."""
        allowed = None
        if self.causal:
            allowed = query[:, None] >= key
        if self.window is not None:
            if self.causal and len(self.torus.sizes) == 1:
                near = query[:, None] - key < self.window
            else:
                near = (steps < self.window).all(dim=-1)
            allowed = near if allowed is None else allowed & near
        return allowed

    def _keys_of(self, start: int, stop: int, length: int) -> Tensor:
        """List the positions that any of the queries in a range may attend to: (keys,) int64."""
        key = torch.arange(stop if self.causal else length)
        if self.window is None:
            return key
        if self.causal and len(self.torus.sizes) == 1:
            return key[max(0, start - self.window + 1) :]
        rows = self.torus.coordinates(key)[:, 0]
        first, last = int(rows[start]), int(rows[stop - 1])
        period = self.torus.periods[0]
        ahead = (rows[key] - first) % period  # steps along the circle from the first query
        extent = last - first  # may be more than a period
        near = (ahead < extent + self.window) | (period - ahead < self.window)
        return key[near]

    def most_queries(self, length: int, scores: int) -> int:
        """Return how many queries, platters counted, have about so many scores in all."""
        row = math.prod(self.torus.sizes[1:]) * self.torus.num_platters
        rows, fit = -(-length * self.torus.num_platters // row), scores / row**2
        count = fit / rows
        if self.window is not None:
            margin = self.window - 1  # on each side, in rows
            count = max(count, (margin**2 + fit) ** 0.5 - margin)
        blocks = max(1, round(rows / count))
        return -(-rows // blocks) * row

    def blocks(self, length: int, most: int) -> list[tuple[Tensor, Tensor]]:
        """Cut queries into blocks: the positions of each, and those that it may attend to.

        Args:
            length: positions in all.
            most: places and platters of a block, more only where one row of a grid has more. On
                a grid a window cuts rows alone from what a block sees.
        """
        in_a_row = math.prod(self.torus.sizes[1:])
        size = max(1, most // self.torus.num_platters // in_a_row) * in_a_row
        return [
            (torch.arange(start, stop), self._keys_of(start, stop, length))
            for start in range(0, length, size)
            for stop in [min(start + size, length)]
        ]
