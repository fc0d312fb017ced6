"""Names beside the bubbles of a figure, where they hide least."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

_FONT_SIZE = 7
_DIRECTIONS = 16
_DISTANCES = (1, 5, 10, 16, 24, 34)
"""Distances of a name from its bubble that are tried, in points."""
_LONGEST_WITHOUT_LINE = 2
"""Points from a bubble beyond which a line leads to its name."""


def name_bubbles(figure: Figure, names: Sequence[str]) -> None:
    """Write names beside their bubbles; the places of axes must be final."""
    for axes in figure.axes:
        bubbles = bubbles_of(axes)
        taken: list[Bbox] = []
        for name in filter(bubbles.__contains__, names):
            taken.append(_place(axes, name, bubbles, taken))


def bubbles_of(axes: Axes) -> dict[str, PathCollection]:
    """Return the bubbles of a panel by name."""
    from matplotlib.collections import PathCollection

    handles, names = axes.get_legend_handles_labels() if axes.get_visible() else ([], [])
    return {
        str(name): handle
        for handle, name in zip(handles, names, strict=True)
        if isinstance(handle, PathCollection)
    }


def centre_of(bubble: PathCollection) -> tuple[float, float]:
    """Return where a bubble is, in the units of its axes."""
    ((x, y),) = np.asarray(bubble.get_offsets())
    return float(x), float(y)


def _place(
    axes: Axes, name: str, bubbles: dict[str, PathCollection], taken: Sequence[Bbox]
) -> Bbox:
    """Write a name near its bubble, where it hides least; return its box.

    All lengths are in points, as the dots of a PDF are of another size than those of the layout.
    """
    from matplotlib.transforms import Affine2D

    scale = Affine2D().scale(72 / axes.figure.dpi)
    circles = {
        name: (*(axes.transData + scale).transform(centre_of(one)), _radius(one))
        for name, one in bubbles.items()
    }
    x, y, radius = circles[name]
    text = axes.annotate(
        name, (x, y), xycoords="figure points", fontsize=_FONT_SIZE, ha="center", va="center",
        annotation_clip=False,
    )  # fmt: skip
    places = list(_places(x, y, radius, text.get_window_extent().transformed(scale)))
    room = axes.bbox.transformed(scale)
    costs = [_cost(box, room, taken, circles.values()) + 0.4 * far for box, far in places]
    best, distance = places[int(np.argmin(costs))]
    text.set_position(((best.x0 + best.x1) / 2, (best.y0 + best.y1) / 2))
    if distance > _LONGEST_WITHOUT_LINE:
        nearest = (min(max(x, best.x0), best.x1), min(max(y, best.y0), best.y1))
        arrow = {"arrowstyle": "-", "linewidth": 0.4, "color": "0.3", "shrinkA": 0,
                 "shrinkB": radius}  # fmt: skip
        axes.annotate(
            "", (x, y), nearest, "figure points", "figure points", arrow, annotation_clip=False
        )
    return best


def _radius(bubble: PathCollection) -> float:
    """Return the radius of a bubble in points."""
    return math.sqrt(float(bubble.get_sizes()[0])) / 2


def _places(x: float, y: float, radius: float, box: Bbox) -> Iterator[tuple[Bbox, float]]:
    """List boxes around a bubble, each with its distance from the bubble."""
    from matplotlib.transforms import Bbox

    for distance, k in itertools.product(_DISTANCES, range(_DIRECTIONS)):
        angle = 2 * math.pi * k / _DIRECTIONS
        cos, sin = math.cos(angle), math.sin(angle)
        reach = radius + distance
        # The box touches the circle of this radius from outside.
        middle = x + reach * cos + box.width / 2 * cos, y + reach * sin + box.height / 2 * sin
        corner = middle[0] - box.width / 2, middle[1] - box.height / 2
        yield Bbox.from_bounds(*corner, box.width, box.height), distance


def _cost(
    box: Bbox, room: Bbox, taken: Iterable[Bbox], circles: Iterable[tuple[float, float, float]]
) -> float:
    """Say how much a place for a label hides: other labels above all, then bubbles."""
    outside = box.x0 < room.x0 or box.x1 > room.x1 or box.y0 < room.y0 or box.y1 > room.y1
    hidden = sum(_overlap(box, other) for other in taken) / (box.width * box.height)
    covered = sum(
        max(0.0, 1 - math.hypot(dx, dy) / radius)
        for x, y, radius in circles
        for dx in [max(box.x0 - x, 0, x - box.x1)]
        for dy in [max(box.y0 - y, 0, y - box.y1)]
    )
    return 1000.0 * outside + (500.0 + 500.0 * hidden) * (hidden > 0) + 30.0 * covered


def _overlap(first: Bbox, second: Bbox) -> float:
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return width * height if width > 0 and height > 0 else 0.0
