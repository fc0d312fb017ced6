"""Places of the names in figures: beside bubbles and at the ends of lines, none over another."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Points = Sequence[dict[str, Any]]
LETTER, LINE = 6.4, 14
"""Pixels of a letter of a name, and of a line of names."""
PADDING = 30
"""Pixels between the outermost bubbles and the edges of their panel."""
_SLIGHT = 5
"""Square pixels that a name may cover."""
_ALONG = np.linspace(0, 1, 12)[1:, None]
"""Parts of a leader, each of which is an obstacle."""
_GAPS = range(2, 60, 3)
_SIDES = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1))


def place_beside(
    points: Points, axes: Sequence[bool], size: Sequence[float], scale: float, cheap: int = 1
) -> None:
    """Give the bubbles of a panel their names, with `dx` and `dy` from the middle of a bubble.

    A name takes the nearest place where it covers no bubble, interval or other name, or else the
    one where it covers least. Where it is not next to its bubble alone, a `leader` joins the two.
    A name that would cover something is left out, unless its row is the user's own or no other row
    is both better and cheaper.

    Args:
        axes: whether the x and the y axis are logarithmic.
        size: width and height of the panel in pixels.
        scale: area of the bubble of each unit of size, in square pixels.
        cheap: 1 if more of what the x axis shows is cheaper, as with speeds, and else -1.
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
    bubbles = [(x, y, radius, radius) for (x, y, *_), radius in zip(spots, radii, strict=True)]
    taken += bubbles
    taken += [(x, (low + high) / 2, 1, abs(high - low) / 2) for x, _, low, high in spots]
    placed: dict[int, list[tuple[float, ...]]] = {}
    matters = [
        p.get("own") or not any(q["y"] > p["y"] and cheap * (q["x"] - p["x"]) > 0 for q in points)
        for p in points
    ]
    order = sorted(range(len(points)), key=lambda number: not matters[number])
    for turn, number in itertools.product(range(4), order):
        half = min(LETTER * len(points[number]["row"]), size[0]) / 2, LINE / 2 - 0.5
        reach = [[radii[number] + gap] for gap in _GAPS for _ in _SIDES]
        steps = np.array([*_SIDES] * len(_GAPS))
        reach *= np.where(steps.all(axis=1, keepdims=True), 0.7, 1)  # corners are farther
        shifts = steps * (reach + np.array(half))
        middles = spots[number, :2] + shifts
        placed[number] = []
        rest = [*itertools.chain(*placed.values())]
        others = np.array([*taken, *rest])
        apart = np.abs(middles[:, None] - others[:, :2])
        covered = np.clip(others[:, 2:] + half - apart, 0, None).prod(axis=2).sum(axis=1)
        beside = np.clip(np.abs(middles[:, None] - spots[:, :2]) - half, 0, None)
        distances = np.hypot(*np.moveaxis(beside, 2, 0)) - radii
        far = distances[:, number]
        nearer = (distances < far[:, None]).sum(axis=1)
        ways = np.copysign(np.clip(np.abs(shifts) - half, 0, None), shifts)
        crossed = np.array([*bubbles[:number], *bubbles[number + 1 :], *rest]).reshape(-1, 4)
        leaders = spots[number, :2] + ways[:, None] * _ALONG
        inside = np.abs(leaders[:, :, None] - crossed[:, :2]) < crossed[:, 2:]
        covered += 4 * inside.all(axis=3).sum(axis=(1, 2))
        best = (100 * covered + far + 15 * nearer).argmin()
        points[number].update(name=None, leader=None)
        if turn > 1 and covered[best] > _SLIGHT and not matters[number]:
            continue
        placed[number] = [(*middles[best], *half)]
        dx, dy = map(float, shifts[best])
        points[number].update(name=points[number]["row"], dx=dx, dy=dy)
        if far[best] > LINE / 2 or nearer[best]:
            x, y = map(float, ways[best])
            points[number]["leader"] = f"M0,0L{x},{y}"
            placed[number] += [(*dot, 1, 1) for dot in leaders[best]]


def _end(point: dict[str, Any], name: str) -> float:
    """Return an end of a point's interval; without one, its number."""
    return point["y"] if point.get(name) is None else point[name]


def place_at_ends(points: Points, rows: Sequence[str], gap: float, *, is_logarithmic: bool) -> None:
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
    heights = itertools.accumulate((scale(point["y"]) for point in ends),
                                  lambda below, height: max(height, below + step))  # fmt: skip
    top = max(values) + step
    for point, height in reversed([*zip(ends, heights, strict=True)]):
        top = min(height, top - step)
        point |= {"name": point["row"], "name_y": back(top)}
