"""Places of the names in figures: beside bubbles and at the ends of lines, none over another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

LETTER, LINE = 6.4, 14
"""Pixels of a letter of a name, and of a line of names."""
PADDING = 30
"""Pixels between the outermost bubbles and the edges of their panel."""
_GAPS = range(2, 60, 3)
_SIDES = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1))


def place_beside(
    points: Sequence[dict[str, Any]], axes: Sequence[bool], size: Sequence[float], scale: float
) -> None:
    """Give the bubbles of a panel their names, with `dx` and `dy` from the middle of a bubble.

    A name takes the nearest place where it covers no bubble, interval or other name, or else the
    one where it covers least. Where it is not next to its bubble alone, a `leader` joins the two.

    Args:
        axes: whether the x and the y axis are logarithmic.
        size: width and height of the panel in pixels.
        scale: area of the bubble of each unit of size, in square pixels.
    """
    # In pixels (bubbles, 4): across, down, and down of the ends of intervals.
    spots = np.array([[p["x"], p["y"], *(_end(p, end) for end in ("low", "high"))] for p in points])
    sides = ((slice(1), PADDING, size[0] - PADDING), (slice(1, 4), size[1] - PADDING, PADDING))
    for is_logarithmic, (part, start, stop) in zip(axes, sides, strict=True):
        numbers = np.log(spots[:, part]) if is_logarithmic else spots[:, part]
        span = [numbers.min(), numbers.max()]
        spots[:, part] = (
            np.interp(numbers, span, [start, stop]) if np.ptp(span) else (start + stop) / 2
        )
    radii = np.sqrt([scale * point["size"] for point in points]) / 2 + 1
    # Boxes have a middle and half of a width and a height; the first ones are around the panel.
    taken = [(-500, 0, 500, 9e3), (size[0] + 500, 0, 500, 9e3), (0, -500, 9e3, 500),
             (0, size[1] + 500, 9e3, 500)]  # fmt: skip
    taken += [(x, y, radius, radius) for (x, y, *_), radius in zip(spots, radii, strict=True)]
    taken += [(x, (low + high) / 2, 1, abs(high - low) / 2) for x, _, low, high in spots]
    names: dict[int, tuple[float, ...]] = {}
    for number in 3 * [*range(len(points))]:
        half = min(LETTER * len(points[number]["row"]), size[0]) / 2, LINE / 2 - 0.5
        reach = [[radii[number] + gap] for gap in _GAPS for _ in _SIDES]
        steps = np.array([*_SIDES] * len(_GAPS))
        reach *= np.where(steps.all(axis=1, keepdims=True), 0.7, 1)  # corners are farther
        shifts = steps * (reach + np.array(half))
        middles = spots[number, :2] + shifts
        others = np.array([*taken, *(box for other, box in names.items() if other != number)])
        apart = np.abs(middles[:, None] - others[:, :2])
        covered = np.clip(others[:, 2:] + half - apart, 0, None).prod(axis=2).sum(axis=1)
        beside = np.clip(np.abs(middles[:, None] - spots[:, :2]) - half, 0, None)
        distances = np.hypot(*np.moveaxis(beside, 2, 0)) - radii
        far = distances[:, number]
        nearer = (distances < far[:, None]).sum(axis=1)
        best = (100 * covered + far + 15 * nearer).argmin()
        names[number] = (*middles[best], *half)
        dx, dy = map(float, shifts[best])
        points[number].update(name=points[number]["row"], dx=dx, dy=dy, leader=None)
        if far[best] > LINE / 2 or nearer[best]:
            x, y = (
                math.copysign(max(0, abs(d) - h), d) for d, h in zip((dx, dy), half, strict=True)
            )
            points[number]["leader"] = f"M0,0L{x},{y}"


def _end(point: dict[str, Any], name: str) -> float:
    """Return an end of a point's interval; without one, its number."""
    return point["y"] if point.get(name) is None else point[name]


def place_at_ends(
    points: Sequence[dict[str, Any]], rows: Sequence[str], gap: float, *, is_logarithmic: bool
) -> None:
    """Give the last point of each row in a panel its name, with its place on the axis `name_y`.

    Args:
        gap: least distance of two names, as a part of the panel's height.
    """
    scale, back = (math.log, math.exp) if is_logarithmic else (float, float)
    values = [scale(_end(point, name)) for point in points for name in ("y", "low", "high")]
    step = gap * (max(values) - min(values))
    lines = [[point for point in points if point["row"] == row] for row in reversed(rows)]
    ends = [max(line, key=lambda point: point["x"]) for line in lines if line]
    ends.sort(key=lambda point: point["y"])  # of equal ends the first row stands above
    places = itertools.accumulate((scale(point["y"]) for point in ends),
                                  lambda below, own: max(own, below + step))  # fmt: skip
    top = max(values) + step
    for point, place in reversed([*zip(ends, places, strict=True)]):
        top = min(place, top - step)
        point |= {"name": point["row"], "name_y": back(top)}
