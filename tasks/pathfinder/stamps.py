"""The pieces that Pathfinder's images are composed of, drawn beforehand.

The first dash of a contour points in one of the whole degrees, every other dash to one of the
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
"""Rows of Stamps.vectors. The first tip of a contour lies a margin before its first tail; the last
tip is the point that its last dash heads for, about a margin after its last head. Both are inferred
from the statistics."""


class Lists(NamedTuple):
    """Lists of unlike lengths end to end: list i is items[starts[i] : starts[i + 1]]."""

    starts: np.ndarray
    """(lists + 1,) int64."""
    items: np.ndarray
    """(total, columns) int64."""


class Stamps(NamedTuple):
    """The pieces of a law's images; directions are listed margin by margin."""

    margins: np.ndarray
    """(margins + 1,) int64: first direction of each margin, whose first 360 are whole degrees."""
    finds_place: np.ndarray
    """(directions,) bool, whether a contour can start in this direction."""
    lines: Lists
    """(y, x, value) of each direction's dash where it is not 0."""
    halos: Lists
    """(y, x, value) of each direction's halo where it is not 0."""
    footprints: Lists
    """(y, x) of each direction's pixels that must be free of halos."""
    turns: Lists
    """After each direction, (direction, y, x): the next dash and the point it heads for."""
    turn_weights: np.ndarray
    """(turns,) float64, how likely each turn is."""
    disks: Lists
    """For each margin, (y, x) of the disk whose radius it is."""
    vectors: np.ndarray
    """(directions, 5, 2) float64 (y, x), from a tail to HEAD, NEXT_TAIL and so on."""
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
    """List angles, (directions,) float64: whole degrees, then angles to points, (n, 2) float64.

    The points lie on a circle around the tail, one for each pixel of its length, rounded down.
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
        law: law of the images.
        angles: (directions,) of all directions of a margin: whole degrees, then points.
        points: (n, 2) that the later angles point to.
        first: index of the direction to the first point.
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
    head = [math.ceil(middle + length * along) for along in (math.cos(angle), math.sin(angle))]
    canvas = Image.new("L", (2 * middle + 1, 2 * middle + 1))
    width = round(law.thickness * law.antialias)
    ImageDraw.Draw(canvas).line((middle, middle, *head), fill=255, width=width)
    dilated = Image.fromarray(_dilate(np.asarray(canvas), _disk(margin * law.antialias)))
    return _reduce(canvas, 2 * reach + 1), _reduce(dilated, 2 * reach + 1)


def _footprint(halo: np.ndarray, reach: int) -> np.ndarray:
    """List where a halo is full, (n, 2), one pixel too far down and right, as in the original.

    Args:
        halo: (side, side) uint8 of odd side, with the tail in the middle.
        reach: greatest offset to list, in pixels.
    """
    offsets = np.argwhere(halo == np.iinfo(np.uint8).max) - len(halo) // 2 + 1
    return offsets[(np.abs(offsets) <= reach).all(axis=1)]


def _finds_place(footprint: np.ndarray, law: Law) -> bool:
    """Tell whether a footprint finds a place in an empty image.

    With the border quirk it finds none if it would lie wholly outside the image around some pixel;
    in that case it does so around a corner.
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
    """Replace each pixel by the largest around it within a shape with odd sides."""
    reach = len(shape) // 2
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, reach), shape.shape)
    return np.where(shape, windows, 0).max(axis=(2, 3)).astype(np.uint8)


def _pixels(stamp: np.ndarray) -> np.ndarray:
    """List (y, x, value) of a stamp's pixels that are not 0; y and x count from its middle."""
    y, x = np.nonzero(stamp)
    return np.column_stack([y - len(stamp) // 2, x - len(stamp) // 2, stamp[y, x]])


def _lists(arrays: Sequence[np.ndarray]) -> Lists:
    starts = np.cumsum([0, *map(len, arrays)])
    return Lists(starts.astype(np.int64), np.concatenate(arrays).astype(np.int64))
