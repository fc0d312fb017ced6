"""Everything that Pathfinder's images are put together from, drawn beforehand.

A dash points in one of the whole degrees, if it is the first of its contour, or to one of the
integer points around its tail. For each of these directions there is a dash, the halo that keeps
others away, and the footprint that a first dash needs free. Directions, in radians, turn from x
(right) to y (down); offsets are (y, x) in pixels from the tail.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from tasks.pathfinder.law import Law

DEGREES = 360
_LANCZOS_REACH = 3


HEAD, NEXT_TAIL, FIRST_TIP, LAST_TIP, OTHER_CONTOUR = range(5)
"""Rows of Stamps.vectors. A contour's tips lie a margin before its first tail and, as the point
that its last dash heads for, about a margin after its last head: inferred from the statistics."""


class Lists(NamedTuple):
    """Lists of unlike lengths end to end: list i is items[starts[i] : starts[i + 1]]."""

    starts: np.ndarray
    """(lists + 1,) int64."""
    items: np.ndarray
    """(total, columns) int64."""


class Stamps(NamedTuple):
    """The pieces of a law's images, for all margins: the directions of one after the other's."""

    margins: np.ndarray
    """(margins + 1,) int64, first direction of each margin; its first 360 are whole degrees."""
    finds_place: np.ndarray
    """(directions,) bool, whether a contour can start so."""
    lines: Lists
    """By direction: (y, x, value) of the dash where it is not 0."""
    halos: Lists
    """By direction: (y, x, value) of the halo where it is not 0."""
    footprints: Lists
    """By direction: (y, x) that must be free of halos."""
    turns: Lists
    """By direction: (direction, y, x) of the next dash, and the point it heads for."""
    turn_weights: np.ndarray
    """(total of turns,) float64."""
    disks: Lists
    """By margin: (y, x) of a disk with the margin for radius."""
    vectors: np.ndarray
    """(directions, 5, 2) float64 (y, x), from a tail to what the numbers above name."""
    markers: np.ndarray
    """(c, c, c, c) uint8: a marker at (y, x) of a canvas with c rows and columns."""


@functools.lru_cache(maxsize=16)
def stamps(law: Law) -> Stamps:
    """Draw the pieces of a law's images."""
    angles, points = zip(*(_directions(law, margin) for margin in law.margins), strict=True)
    bases = np.cumsum([0, *map(len, angles)], dtype=np.int64)
    drawn = [
        [_draw_dash(law, margin, angle) for angle in of_margin]
        for margin, of_margin in zip(law.margins, angles, strict=True)
    ]
    footprints = [
        _footprint(halo, law.dash_length + margin)
        for margin, of_margin in zip(law.margins, drawn, strict=True)
        for _, halo in of_margin
    ]
    turns = [
        turn
        for base, angle, point in zip(bases[:-1], angles, points, strict=True)
        for turn in _turns(law, angle, point, base + DEGREES)
    ]
    return Stamps(
        margins=bases,
        finds_place=np.array([_finds_place(footprint, law) for footprint in footprints]),
        lines=_lists([_pixels(line) for of_margin in drawn for line, _ in of_margin]),
        halos=_lists([_pixels(halo) for of_margin in drawn for _, halo in of_margin]),
        footprints=_lists(footprints),
        turns=_lists([turn for turn, _ in turns]),
        turn_weights=np.concatenate([weights for _, weights in turns]),
        disks=_lists([np.argwhere(_disk(margin)) - margin for margin in law.margins]),
        vectors=np.concatenate(
            [
                _vectors(law, margin, angle, point)
                for margin, angle, point in zip(law.margins, angles, points, strict=True)
            ]
        ),
        markers=_draw_markers(law),
    )


def _directions(law: Law, margin: int) -> tuple[np.ndarray, np.ndarray]:
    """List angles, (directions,) float64, and the points of those after the degrees, (n, 2).

    The points are those of a circle around the tail, one for each pixel of its length, rounded
    down.
    """
    radius = law.dash_length + margin
    around = np.arange(0, 2 * np.pi, 1 / radius)
    circle = radius * np.stack([np.sin(around), np.cos(around)], axis=1)
    points = np.unique(np.floor(circle).astype(np.int64), axis=0)
    angles = [math.radians(degree) for degree in range(-DEGREES // 2, DEGREES // 2)]
    return np.array(angles + [math.atan2(y, x) for y, x in points.tolist()]), points


def _vectors(law: Law, margin: int, angles: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Compute Stamps.vectors of a margin with the C library, NumPy's results vary by processor."""
    units = np.array([(math.sin(angle), math.cos(angle)) for angle in angles.tolist()])
    length = law.dash_length
    lengths = [length, length + 2 * margin, -margin, length + margin, law.seed_distance]
    vectors = units[:, None] * np.array(lengths)[:, None]
    vectors[DEGREES:, LAST_TIP] = points
    return vectors


def _turns(
    law: Law, angles: np.ndarray, points: np.ndarray, first: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """List for each angle the turns that may follow and their weights.

    Args:
        first: the direction of the first point.
    """
    turn = np.abs(angles[DEGREES:] - angles[:, None])
    turn = np.minimum(turn, 2 * np.pi - turn)
    weights = np.cos(np.minimum(law.continuity * turn, np.pi / 2)) ** 2
    rows = np.column_stack([first + np.arange(len(points)), points])
    return [(rows[row > 1e-12], row[row > 1e-12]) for row in weights]  # noqa: PLR2004


def _draw_dash(law: Law, margin: int, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw a dash and its halo with the tail in the middle: two (n, n) uint8 of odd n."""
    reach = law.dash_length + math.ceil(law.thickness) + margin
    middle = reach * law.antialias
    length = law.dash_length * law.antialias
    head = [math.ceil(middle + length * part) for part in (math.cos(angle), math.sin(angle))]
    canvas = Image.new("L", (2 * middle + 1, 2 * middle + 1))
    width = round(law.thickness * law.antialias)
    ImageDraw.Draw(canvas).line((middle, middle, *head), fill=255, width=width)
    dilated = Image.fromarray(_dilate(np.asarray(canvas), _disk(margin * law.antialias)))
    return _reduce(canvas, 2 * reach + 1), _reduce(dilated, 2 * reach + 1)


def _footprint(halo: np.ndarray, reach: int) -> np.ndarray:
    """List where a halo is full, (n, 2), one pixel too far down and right, as in the original.

    Args:
        reach: greatest offset that counts.
    """
    offsets = np.argwhere(halo == np.iinfo(np.uint8).max) - len(halo) // 2 + 1
    return offsets[(np.abs(offsets) <= reach).all(axis=1)]


def _finds_place(footprint: np.ndarray, law: Law) -> bool:
    """Tell whether a footprint finds a place in an empty image.

    With the border quirk it does not if the image has a pixel around which the footprint lies
    outside altogether, which it then does around a corner.
    """
    if not law.border_quirk:
        return len(footprint) > 0
    inward = np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)])
    return bool((footprint[:, None] * inward >= 0).all(axis=2).any(axis=0).all())


def _draw_markers(law: Law) -> np.ndarray:
    """Draw a marker at each place of a canvas just large enough for one to stand clear."""
    reach = math.ceil(law.marker_radius) + _LANCZOS_REACH
    side = 2 * reach + 1
    places = np.arange(side)
    squares = (np.arange(side * law.antialias) - law.antialias * places[:, None]) ** 2
    distance = squares[:, None, :, None] + squares[None, :, None, :]
    disks = np.where(distance <= (law.marker_radius * law.antialias) ** 2, 255, 0).astype(np.uint8)
    return np.array([[_reduce(Image.fromarray(disk), side) for disk in row] for row in disks])


def _reduce(canvas: Image.Image, side: int) -> np.ndarray:
    return np.asarray(canvas.resize((side, side), Image.Resampling.LANCZOS))


def _disk(radius: int) -> np.ndarray:
    squares = np.arange(-radius, radius + 1) ** 2
    return squares[:, None] + squares <= radius**2


def _dilate(image: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Let each pixel be the largest around it within a shape with odd sides."""
    reach = len(shape) // 2
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, reach), shape.shape)
    return np.where(shape, windows, 0).max(axis=(2, 3)).astype(np.uint8)


def _pixels(stamp: np.ndarray) -> np.ndarray:
    """List a stamp's (y, x, value) where it is not 0, from its middle."""
    y, x = np.nonzero(stamp)
    return np.column_stack([y - len(stamp) // 2, x - len(stamp) // 2, stamp[y, x]])


def _lists(parts: Sequence[np.ndarray]) -> Lists:
    starts = np.cumsum([0, *map(len, parts)])
    return Lists(starts.astype(np.int64), np.concatenate(parts).astype(np.int64))
