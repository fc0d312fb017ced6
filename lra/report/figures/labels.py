"""Where the texts of a figure stand: beside bubbles and at the ends of lines, none over another."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lra.report.figures.drawing import arrange, label_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_COLUMN = 1.035
"""Where labels of lines start, as a multiple of the width of the axes."""
_GAP = 5
"""Pixels between two labels of lines."""


@dataclass(frozen=True)
class LineEnd:
    """The last point of a line, in data coordinates, and what is written there."""

    x: float
    y: float
    text: str
    colour: str


def label_ends(axes: Axes, ends: Sequence[LineEnd]) -> None:
    """Name lines in a column right of the axes, each as near to its end as the others allow.

    A thin line joins each end to its name. Limits and scales of the axes must be final.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    labels = [
        axes.text(
            _COLUMN, 0.5, label_text(end.text), transform=axes.transAxes, fontsize=8, va="center"
        )
        for end in ends
    ]
    arrange(figure)
    frame = axes.get_window_extent()
    where = [axes.transAxes.inverted().transform(axes.transData.transform((end.x, end.y)))
             for end in ends]  # fmt: skip
    heights = [(label.get_window_extent().height + _GAP) / frame.height for label in labels]
    places = apart([float(y) for _, y in where], heights, 0.0, 1.0)
    for end, label, (x, y), place in zip(ends, labels, where, places, strict=True):
        label.set_y(place)
        axes.plot(
            [x, _COLUMN - 0.008], [y, place], transform=axes.transAxes, clip_on=False,
            color=end.colour, linewidth=0.8, linestyle=":", zorder=1.5,
        )  # fmt: skip


def apart(
    wanted: Sequence[float], heights: Sequence[float], low: float, high: float
) -> list[float]:
    """Place intervals near where they are wanted, without overlaps, between two bounds.

    Args:
        wanted: wanted middles.
        heights: lengths of the intervals.
        low: where the lowest may start.
        high: where the highest must end; if they do not all fit, they end above it.
    Returns: middles, in the order of `wanted`, of the least sum of squared distances from it.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    starts = list(itertools.accumulate((heights[i] for i in order), initial=0.0))
    # Stacked from 0, each would have to be shifted by so much. Shifts may not fall from one to the
    # next: isotonic regression, by pooling neighbours that do.
    pools: list[list[float]] = []
    for i, start in zip(order, starts, strict=False):
        pools.append([wanted[i] - heights[i] / 2 - start])
        while len(pools) > 1 and statistics.fmean(pools[-2]) > statistics.fmean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    shifts = [statistics.fmean(pool) for pool in pools for _ in pool]
    placed = [0.0] * len(order)
    for i, start, shift in zip(order, starts, shifts, strict=False):
        placed[i] = max(low, min(shift, high - starts[-1])) + start + heights[i] / 2
    return placed


@dataclass(frozen=True)
class _Box:
    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def inside(self, other: _Box) -> bool:
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.bottom <= self.bottom
            and self.top <= other.top
        )

    def nearest_point(self, x: float, y: float) -> tuple[float, float]:
        """Return the point of the box that is nearest to a given one."""
        return min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)

    def distance(self, x: float, y: float) -> float:
        """Return how far a point is from the box."""
        return math.dist(self.nearest_point(x, y), (x, y))


def place_labels(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    areas: Sequence[float],
    colours: Sequence[str],
) -> list[str]:
    """Write a label for each bubble, so that no label covers another or leaves the axes.

    A label is as near to its bubble as other bubbles and labels allow, and has a thin line to its
    bubble if it is not beside it. Limits and scales of the axes must be final.

    Args:
        axes: axes that the bubbles are drawn in.
        points: centres of the bubbles, in data coordinates.
        texts: the labels.
        areas: areas of the bubbles, in square points.
        colours: colours of the lines from labels to bubbles.
    Returns: labels for which there is no place.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    arrange(figure)
    scale = 72 / figure.dpi  # pixels to points
    extent = axes.get_window_extent()
    frame = _Box(*(edge * scale for edge in extent.extents))
    where = [tuple(axes.transData.transform(point) * scale) for point in points]
    radii = [math.sqrt(area / math.pi) for area in areas]
    taken: list[_Box] = []
    left_out: list[str] = []
    for i in sorted(range(len(texts)), key=lambda i: (-where[i][1], where[i][0], texts[i])):
        label = axes.annotate(
            label_text(texts[i]), points[i], xytext=(0, 0), textcoords="offset points", fontsize=8,
            ha="center", va="center", in_layout=False, annotation_clip=False,
        )  # fmt: skip
        size = label.get_window_extent()
        half = (size.width * scale / 2 + 3, size.height * scale / 2 + 1)
        circles = list(zip(where, radii, strict=True))
        best = _best_place(circles[i], half, circles, frame, taken)
        if best is None:
            label.remove()
            left_out.append(texts[i])
            continue
        box, (dx, dy) = best
        taken.append(box)
        label.set_position((dx, dy))
        if box.distance(*where[i]) > radii[i] + 4:
            _join(axes, points[i], where[i], box, colours[i])
    return left_out


def _join(
    axes: Axes, point: tuple[float, float], middle: tuple[float, ...], box: _Box, colour: str
) -> None:
    """Draw a thin line from a bubble, in data coordinates and in points, to its label."""
    near = box.nearest_point(*middle)
    axes.annotate(
        "", point, xytext=(near[0] - middle[0], near[1] - middle[1]), textcoords="offset points",
        arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 1.0}, zorder=1,
        in_layout=False, annotation_clip=False,
    )  # fmt: skip


_Circle = tuple[tuple[float, ...], float]
"""A circle by its middle (x, y) and its radius."""


def _best_place(
    own: _Circle,
    half: tuple[float, float],
    circles: Sequence[_Circle],
    frame: _Box,
    taken: Sequence[_Box],
) -> tuple[_Box, tuple[float, float]] | None:
    """Find a place for a label of half sizes `half` near the circle `own`; None if there is none.

    Returns: the label's box, and the offset of its middle from that of the circle.
    """
    (x, y), radius = own
    found = []
    for away in range(2, 160, 6):
        if found and min(place[0] for place in found) <= away:
            break  # nothing further away can be better
        for direction in range(16):
            angle = 2 * math.pi * direction / 16
            # The middle of a box that nearly touches a circle of radius `radius + away` there.
            dx = (radius + away) * math.cos(angle) + half[0] * math.cos(angle)
            dy = (radius + away) * math.sin(angle) + half[1] * math.sin(angle)
            box = _Box(x + dx - half[0], y + dy - half[1], x + dx + half[0], y + dy + half[1])
            if not box.inside(frame) or any(box.overlaps(other) for other in taken):
                continue
            covered = sum(box.distance(*middle) < reach for middle, reach in circles)
            found.append((away + 40 * covered, direction % 4 != 0, direction, box, (dx, dy)))
    if not found:
        return None
    *_, box, offset = min(found, key=lambda candidate: candidate[:3])
    return box, offset
