"""The torus of toroidal attention: places on circles or lines, with several platters at each.

The encoding of positions is periodic and their distance is circular, so that no position is an end.
The guide to the mixer claims these properties, and here they hold exactly.
models/toroidal/mixer.py lists the symbols of the description.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lra.models.ops.rotary import geometric_rates

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

    def coordinates(self, position: Tensor) -> list[Tensor]:
        """Return the coordinate of positions (...) int64, in raster order, along each axis."""
        if len(self.sizes) == 1:
            return [position]
        height, width = self.sizes
        return [torch.div(position, width, rounding_mode="floor") % height, position % width]

    def angles(self, position: Tensor, channels: int, harmonics: Harmonics) -> Tensor:
        """Compute the angles that encode places and platters.

        With integer harmonics pair m turns h[m] times around each circle, h from 1 up to half of
        the period, evenly on a log axis; so it is the same after a period. The harmonics "rope"
        are the description's: theta_i w_m with theta_i = 2 pi i / N and
        w_m = 10000 ** (-2 m / channels), on a line RoFormer's theta_i = i; phi_k p_m with
        phi_k = 2 pi k / D and p_m = 10000 ** (-2 m / (channels max(2 D, 3))). They have no period.

        The first axis has every pair, or on two axes every second one; all turn with the platters.

        Args:
            position: (..., positions) int64.
            channels: of a head on a platter.
        Returns: (..., positions, num_platters, channels / 2) in radians, double precision.
        """
        pairs, axes = channels // 2, len(self.sizes)
        coordinates = list(zip(self.coordinates(position), self.periods, strict=True))
        platters = torch.arange(self.num_platters, device=position.device)
        if harmonics == "integer":
            across = [_turns(at, pairs // axes, period) for at, period in coordinates]
            beneath = _turns(platters, pairs, self.platter_period)
        else:
            like = torch.zeros((), dtype=torch.float64, device=position.device)
            rates = geometric_rates(pairs, like)
            units = [2 * math.pi / period if self.wrap else 1.0 for period in self.periods]
            across = [
                (coordinate.double() * units[axis])[..., None] * rates[axis::axes]
                for axis, (coordinate, _) in enumerate(coordinates)
            ]
            rates = geometric_rates(pairs, like, channels * max(2 * self.num_platters, 3))
            beneath = 2 * math.pi * platters.double()[:, None] * (rates / self.num_platters)
        return torch.stack(across, dim=-1).flatten(-2)[..., None, :] + beneath


def _turns(coordinate: Tensor, count: int, period: int) -> Tensor:
    """Return the angles of places with integer harmonics: (..., positions, count).

    Whole numbers are divided by the period last, so that the angles are exactly periodic.
    """
    exponents = torch.linspace(0, 1, count, dtype=torch.float64, device=coordinate.device)
    harmonics = (float(max(1, period // 2)) ** exponents).round()
    return 2 * math.pi * ((coordinate[..., None] * harmonics) % period) / period


class Pairs(NamedTuple):
    """Tables over queries and keys, each (batch or 1, queries, keys); platters count separately."""

    distance: Tensor
    """Distance on the torus, float64: steps along each axis divided by its size, and steps between
    platters divided by their number."""
    allowed: Tensor | None
    """Whether the query may attend to the key. None: every query may attend to every key."""

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


@dataclass(frozen=True)
class Reach:
    """Which places attend to which."""

    torus: Torus
    causal: bool = False
    """Whether position i attends to j <= i only, on all platters."""
    window: int | None = None
    """Steps along each axis are fewer than this; causal windows cover earlier positions only."""

    @property
    def _looks_back(self) -> bool:
        """Whether a window is one of earlier positions, on a line."""
        return self.causal and len(self.torus.sizes) == 1

    def pairs(self, query: Tensor, key: Tensor, real: Tensor | None = None) -> Pairs:
        """Build the tables of queries and keys, positions (..., queries or keys) int64.

        Args:
            real: (batch, keys) bool, True at real ones. Any place attends to itself, too, or a
                padded one might be left with nothing to attend to. None: all are real.
        """
        torus, platters = self.torus, self.torus.num_platters
        lag = query[..., :, None] - key[..., None, :]
        steps = [
            _count_steps(at[..., :, None] - to[..., None, :], period if torus.wrap else None)
            for at, to, period in zip(
                torus.coordinates(query), torus.coordinates(key), torus.periods, strict=True
            )
        ]
        platter = torch.arange(platters, device=lag.device)
        beneath = _count_steps(platter[:, None] - platter, torus.platter_period)
        distance = beneath.double()[:, None] / platters
        for some, size in zip(steps, torus.sizes, strict=True):
            parts = some.view(-1, lag.shape[-2], 1, lag.shape[-1], 1).double()
            distance = distance + parts / size
        distance = distance.flatten(3).flatten(1, 2)
        limits = [lag >= 0] if self.causal else []
        if self.window is not None:
            limits += [some < self.window for some in ([lag] if self._looks_back else steps)]
        if real is not None:
            limits.append(real[:, None] | (lag == 0))
        if not limits:
            return Pairs(distance, None)
        allowed = functools.reduce(torch.logical_and, limits)
        allowed = allowed.reshape(-1, *allowed.shape[-2:])
        return Pairs(
            distance, allowed.repeat_interleave(platters, 1).repeat_interleave(platters, 2)
        )

    def _keys_of(self, start: int, stop: int, length: int) -> Tensor:
        """List the positions that any of the queries in a range may attend to: (keys,) int64."""
        key = torch.arange(stop if self.causal else length)
        if self.window is None:
            return key
        if self._looks_back:
            return key[max(0, start - self.window + 1) :]
        rows = self.torus.coordinates(key)[0]
        first, last = int(rows[start]), int(rows[stop - 1])
        period = self.torus.periods[0]
        ahead = (rows - first) % period  # steps along the circle from the first query
        extent = last - first  # may be more than a period
        near = (ahead < extent + self.window) | (period - ahead < self.window)
        return key[near]

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


def _count_steps(lag: Tensor, period: int | None) -> Tensor:
    """Count the steps of a lag, on a circle the shorter way around."""
    if period is None:
        return lag.abs()
    around = lag.abs() % period
    return torch.minimum(around, period - around)
