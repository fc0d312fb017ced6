"""Places of the names in figures: beside bubbles and at the ends of lines, none over another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

LETTER, LINE = 6.4, 14
"""Pixels of a letter of a name, and of a line of names."""
PADDING = 30
"""Pixels between the outermost bubbles and the edges of their panel."""

Box = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""


def place_beside(
    points: Sequence[dict[str, Any]],
    axes: Sequence[bool],
    size: tuple[float, float],
    largest: float,
) -> None:
    """Give the bubbles of a panel their names, with `dx` and `dy` from the middle of a bubble.

    A name takes the nearest free place, where it covers no bubble, interval or other name, or else
    the one where it covers least.

    Args:
        axes: whether the x and the y axis are logarithmic.
        size: width and height of the panel in pixels.
        largest: area of the bubble of each unit of size, in square pixels.
    """
    columns = [[p["x"]] for p in points], [_ends(p) for p in points]
    xs, ys = (
        _to_pixels(column, room, is_logarithmic=log)
        for column, room, log in zip(columns, size, axes, strict=True)
    )
    spots = [(x, size[1] - y[0], math.sqrt(largest * p["size"]) / 2 + 1)
             for (x,), y, p in zip(xs, ys, points, strict=True)]  # fmt: skip
    taken: list[Box] = [(x - r, y - r, x + r, y + r) for x, y, r in spots]
    taken += [(s[0] - 1, size[1] - max(y), s[0] + 1, size[1] - min(y))
              for s, y in zip(spots, ys, strict=True)]  # fmt: skip

    names: dict[int, Box] = {}

    def cost(box: Box, number: int) -> float:
        """Weigh what a name covers, how far from its bubble it is, and other bubbles near it."""
        others = [one for other, one in names.items() if other != number]
        covered = sum(_overlap(box, other) for other in (*taken, *others))
        outside = sum(max(0, end) for end in (-box[0], -box[1], box[2] - size[0], box[3] - size[1]))
        far, *near = (_distance(box, spots[n]) for n in (number, *range(len(spots))))
        return 100 * (covered + outside) + far + 15 * sum(one < far for one in near)

    for number in 3 * [*range(len(points))]:
        x, y, radius = spots[number]
        places = _places_around(radius, LETTER * len(points[number]["row"]), LINE - 1)
        boxes = [(x + a, y + b, x + c, y + d) for a, b, c, d in places]
        names[number] = min(boxes, key=lambda box, number=number: cost(box, number))
    for point, spot, box in zip(points, spots, (names[n] for n in range(len(points))), strict=True):
        left, top, right, bottom = (box[side] - spot[side % 2] for side in range(4))
        point |= {"name": point["row"], "dx": (left + right) / 2, "dy": (top + bottom) / 2}
        far = _distance(box, spot)
        if far > LINE / 2 or any(_distance(box, other) < far for other in spots):
            point["leader"] = f"M0,0L{min(max(0, left), right)},{min(max(0, top), bottom)}"


def _ends(point: dict[str, Any]) -> list[float]:
    """List the number of a bubble, and the ends of its interval if it has one."""
    return [point["y"], *(point[end] for end in ("low", "high") if point.get(end) is not None)]


def _to_pixels(
    column: Sequence[Sequence[float]], room: float, *, is_logarithmic: bool
) -> list[list[float]]:
    """Map numbers to pixels like a scale of Vega with padding."""
    scaled = [[math.log(v) if is_logarithmic else v for v in values] for values in column]
    low, high = min(map(min, scaled)), max(map(max, scaled))
    unit = (room - 2 * PADDING) / (high - low) if high > low else 0.0
    start = PADDING if high > low else room / 2
    return [[start + unit * (value - low) for value in values] for values in scaled]


def _places_around(radius: float, width: float, height: float) -> Iterator[Box]:
    """List boxes around a bubble at (0, 0), the nearest first."""
    for gap in range(2, 60, 3):
        far, near = radius + gap, 0.7 * (radius + gap)
        yield far, -height / 2, far + width, height / 2
        yield -far - width, -height / 2, -far, height / 2
        for side in (-1, 1):
            top, level = sorted((side * far, side * (far + height)))
            yield -width / 2, top, width / 2, level
            top, level = sorted((side * near, side * (near + height)))
            yield near, top, near + width, level
            yield -near - width, top, -near, level


def _distance(box: Box, spot: tuple[float, float, float]) -> float:
    """Return the distance of a box from a bubble's edge."""
    x, y, radius = spot
    across, down = max(box[0] - x, x - box[2], 0), max(box[1] - y, y - box[3], 0)
    return math.hypot(across, down) - radius


def _overlap(one: Box, other: Box) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, wide) * max(0.0, tall)


def place_at_ends(
    points: Sequence[dict[str, Any]], rows: Sequence[str], gap: float, *, is_logarithmic: bool
) -> None:
    """Give the last point of each row in a panel its name, with its place on the axis `name_y`.

    Args:
        gap: least distance of two names, as a part of the panel's height.
    """
    scale, back = (math.log, math.exp) if is_logarithmic else (float, float)
    values = [scale(value) for point in points for value in _ends(point)]
    step = gap * (max(values) - min(values))
    lines = [[point for point in points if point["row"] == row] for row in rows]
    ends = [max(line, key=lambda point: point["x"]) for line in lines if line]
    ends.reverse()  # of equal ends the first row stands above
    ends.sort(key=lambda point: point["y"])
    places = [*itertools.accumulate((scale(point["y"]) for point in ends),
                                    lambda below, own: max(own, below + step))]  # fmt: skip
    # Names that would stand above the panel move down.
    for number in reversed(range(len(places))):
        above = max(values) if number + 1 == len(places) else places[number + 1] - step
        places[number] = min(places[number], above)
    for point, place in zip(ends, places, strict=True):
        point |= {"name": point["row"], "name_y": back(place)}
