"""The torus of toroidal attention: places on circles or lines, with several platters at each.

The encoding of positions is periodic and their distance is circular, so that no position is an end.
The guide to the mixer claims these properties, and here they hold exactly.

Symbols of the description and their names here:
    N: period of an axis that wraps
    D: num_platters
    (i, k): a place on the axes and a platter
    theta_i w_m + phi_k p_m: `Torus.angles`, where d is the channels of a head on a platter
    delta: `Torus.distance` + `Torus.platter_distance`
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from models.ops.rotary import geometric_rates

Harmonics = Literal["integer", "rope"]


@dataclass(frozen=True)
class Torus:
    """Axes of places, which are all circles or all lines, and platters.

    A line is half of a circle of twice its length, so its two ends are as far apart as possible.
    """

    sizes: tuple[int, ...]
    """Places along each axis: (length,), or (height, width)."""
    num_platters: int
    wrap: bool = True
    """Whether axes are circles."""
    depth_wrap: bool = False
    """Whether platters lie on a circle, too."""

    @property
    def periods(self) -> tuple[int, ...]:
        """Places around the circle of each axis."""
        return tuple(size if self.wrap else 2 * size for size in self.sizes)

    @property
    def platter_period(self) -> int:
        """Places around the circle of the platters."""
        return self.num_platters if self.depth_wrap else 2 * self.num_platters

    def with_room(self, length: int) -> Torus:
        """Return this torus, or one of `length` places if it has one axis and that is shorter."""
        if len(self.sizes) == 1 and length > self.sizes[0]:
            return replace(self, sizes=(length,))
        return self

    def coordinates(self, position: Tensor) -> Tensor:
        """Return the coordinates of positions (...) int64, in raster order: (..., axes) int64."""
        if len(self.sizes) == 1:
            return position[..., None]
        coordinates: list[Tensor] = []
        for size in reversed(self.sizes):
            coordinates.insert(0, position % size)
            position = position // size
        return torch.stack(coordinates, dim=-1)

    def angles(
        self, places: Tensor, channels: int, harmonics: Harmonics, periods: Tensor | None = None
    ) -> Tensor:
        """Compute the angles that encode places and platters.

        With integer harmonics pair m turns h[m] times around each circle, h from 1 up to half of
        the period, evenly on a log axis; so it is the same after a period. The harmonics "rope"
        are the description's: theta_i w_m with theta_i = 2 pi i / N and
        w_m = 10000 ** (-2 m / channels), on a line RoFormer's theta_i = i; phi_k p_m with
        phi_k = 2 pi k / D and p_m = 10000 ** (-2 m / (channels max(2 D, 3))). They have no period.

        The first axis has every pair, or on two axes every second one; all turn with the platters.

        Args:
            places: (..., positions, axes) int64.
            channels: of a head on a platter.
            periods: (..., 1), of the one axis, where they are not the torus's own.
        Returns: (..., positions, num_platters, channels / 2) in radians, double precision.
        """
        pairs = channels // 2
        own = torch.zeros((), dtype=torch.float64, device=places.device)
        platters = torch.arange(self.num_platters, device=places.device)
        if harmonics == "rope":
            scale = max(2 * self.num_platters, 3)
            rates = geometric_rates(pairs, own, channels * scale) / self.num_platters
            beneath = 2 * math.pi * platters.double()[:, None] * rates
        else:
            beneath = _turns(platters, pairs, self.platter_period)
        across: list[Tensor] = []
        for axis, period in enumerate(self.periods):
            place = places[..., axis]
            if harmonics == "integer":
                across.append(_turns(place, pairs // len(self.sizes), period, periods))
                continue
            around = period if periods is None else periods.double()
            unit = 2 * math.pi / around if self.wrap else 1.0
            rates = geometric_rates(pairs, own)[axis :: len(self.sizes)]
            across.append((place.double() * unit)[..., None] * rates)
        dealt = torch.stack(across, dim=-1).flatten(-2)
        return dealt[..., None, :] + beneath

    def count_steps(self, query: Tensor, key: Tensor, periods: Tensor | None = None) -> Tensor:
        """Count the steps between places along each axis, on a circle the shorter way around.

        Places are (..., queries or keys, axes), steps (..., queries, keys, axes); see `angles`.
        """
        lag = (query[..., :, None, :] - key[..., None, :, :]).abs()
        if not self.wrap:
            return lag
        around = (
            _filled(self.periods, lag.device) if periods is None else periods[..., None, None, :]
        )
        lag = lag % around
        return torch.minimum(lag, around - lag)

    def distance(self, steps: Tensor, periods: Tensor | None = None) -> Tensor:
        """Divide the steps of `count_steps` along each axis by its size, and sum: float64.

        The result, (..., queries, keys), is at most half for each circle.
        """
        around = (
            _filled(self.sizes, steps.device) if periods is None else periods[..., None, None, :]
        )
        return (steps / around.double()).sum(dim=-1)

    def platter_distance(self, device: torch.device) -> Tensor:
        """Return steps between platters divided by their number: (platters, platters) float64."""
        platters = torch.arange(self.num_platters, device=device)
        lag = (platters[:, None] - platters).abs()
        return torch.minimum(lag, self.platter_period - lag).double() / self.num_platters


def _filled(numbers: tuple[int, ...], device: torch.device) -> Tensor:
    """Write whole numbers to a device, (numbers,) int64, without a copy that waits for a GPU."""
    return torch.cat([torch.full((1,), number, device=device) for number in numbers])


def integer_harmonics(count: int, periods: Tensor) -> Tensor:
    """Return whole numbers from 1 to half of each period, evenly on a log axis: (..., count)."""
    highest = torch.div(periods, 2, rounding_mode="floor").clamp(min=1).double()
    exponents = torch.linspace(0, 1, count, dtype=torch.float64, device=periods.device)
    return (highest[..., None] ** exponents).round()


def _turns(place: Tensor, count: int, period: int, periods: Tensor | None = None) -> Tensor:
    """Return the angles of places with integer harmonics: (..., positions, count).

    Whole numbers are divided by the period last, so that the angles are exactly periodic.
    """
    if periods is None:
        periods = _filled((period,), place.device)
    around = periods[..., None]
    return 2 * math.pi * ((place[..., None] * integer_harmonics(count, periods)) % around) / around


@dataclass(frozen=True)
class Pairs:
    """Tables over queries and keys, each (batch or 1, queries, keys); platters count separately."""

    distance: Tensor
    """Distance on the torus, float64."""
    allowed: Tensor | None
    """Whether the query may attend to the key. None: every query may attend to every key."""

    def among(self, real: Tensor, same: Tensor | None) -> Pairs:
        """Allow attention to real places, (batch, keys), and to the same place, (queries, keys).

        Else a padded place might be left with nothing to attend to.
        """
        allowed = real[:, None]
        allowed = allowed if same is None else allowed | same
        return Pairs(self.distance, allowed if self.allowed is None else self.allowed & allowed)

    def bias(self, weight: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """Return the bias of the scores: minus the weighted distance, or -inf for no attention.

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
    """Build the tables of all platters from the steps between places, see `Torus.count_steps`.

    Attention is allowed, (..., queries, keys), between all if that is None.
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
        """Build the tables of queries and keys, int64 positions in increasing order."""
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

        A block has at most so many places and platters, more only where one row of a grid has more.
        """
        in_a_row = math.prod(self.torus.sizes[1:])
        size = max(1, most // self.torus.num_platters // in_a_row) * in_a_row
        return [
            (torch.arange(start, stop), self._keys_of(start, stop, length))
            for start in range(0, length, size)
            for stop in [min(start + size, length)]
        ]
