"""The pieces that Pathfinder's images are composed of, drawn beforehand.

The first dash of a contour points in one of the whole degrees and is drawn from its tail. Every
other dash ends in one of the integer points around its pivot, a place near its tail, and is drawn
back from that far end, so that a contour bends in its gaps. The end that a dash is drawn from is
its anchor. For each of these directions there is a dash and the halo that keeps others away, and
for whole degrees also the footprint that a first dash needs free. Directions, in radians, turn from
x (right) to y (down); offsets are (y, x) in pixels from the anchor.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from tasks.pathfinder.law import Law

DEGREES = 360
_FULL = 255
_FARAWAY = 2**10
"""Offset at which coordinates are rounded down, so that a hair below an integer is that integer."""

_NO_WEIGHT = 1e-12
"""A turn that weighs no more than this is a right angle, which rounding keeps from 0."""

_MARKER_REACH = 6
"""Pixels around a disk that Lanczos' filter reads or changes when it halves an image."""

ALONG, BACK_TO_PIVOT, TO_NEXT_PIVOT = range(3)
"""Rows of Stamps.vectors: from one end of a dash to the other; from the head of a first dash back
to its pivot; and from the pivot of a dash to the next one's."""


class Lists(NamedTuple):
    """Lists of unlike lengths end to end: list i is items[starts[i] : starts[i + 1]]."""

    starts: np.ndarray
    """(lists + 1,) int64."""
    items: np.ndarray
    """(total, columns) int64."""


class Stamps(NamedTuple):
    """The pieces of a law's images; directions are listed margin by margin."""

    margins: np.ndarray
    """(margins,) int64, in pixels."""
    bases: np.ndarray
    """(margins + 1,) int64: first direction of each margin, whose first 360 are whole degrees; then
    come the directions to the points around a pivot."""
    usable: np.ndarray
    """(directions,) bool, whether a distractor can start in this direction."""
    openings: Lists
    """For each margin, the directions that contour 0 can start in: (direction, the least y and x
    of the footprint, the largest y and x)."""
    seeds: np.ndarray
    """(360, 2) float64 (y, x): from the start of contour 0 to that of contour 1."""
    lines: Lists
    """(y, x, value) of each direction's dash where it is not 0."""
    halos: Lists
    """(y, x, value) of each direction's halo where it is not 0."""
    footprints: Lists
    """(y, x) of the pixels that must be free, for each direction of a first dash."""
    turns: Lists
    """After each direction, (direction, y, x): the next dash, and its far end from its pivot."""
    turn_weights: np.ndarray
    """(turns,) float64, how likely each turn is where nothing is near."""
    crowds: Lists
    """(y, x, value) of each direction's halo dilated by the margin, where it is not 0."""
    vectors: np.ndarray
    """(directions, 3, 2) float64 (y, x); the rows are named above."""
    light: np.ndarray
    """(2, 256) float64: how bright each value of a stamp is, in a target and in a distractor."""
    markers: np.ndarray
    """(c, c, c, c) uint8: a marker at (y, x) of a canvas with c rows and columns."""


class _Family(NamedTuple):
    """What belongs to one margin: lists over its directions, the whole degrees first."""

    angles: list[float]
    """The directions in radians."""
    points: np.ndarray
    """(points, 2) int64: places around a pivot, which the directions after the degrees lead to."""
    lines: list[np.ndarray]
    halos: list[np.ndarray]
    crowds: list[np.ndarray]
    footprints: list[np.ndarray]
    usable: list[bool]


@functools.lru_cache(maxsize=16)
def stamps(law: Law) -> Stamps:
    """Draw the pieces of a law's images."""
    families = [_draw_family(law, margin) for margin in law.margins]
    bases = np.cumsum([0, *(len(family.angles) for family in families)], dtype=np.int64)
    turns = [
        turn
        for family, base in zip(families, bases[:-1], strict=True)
        for turn in _turns(law, family, base + DEGREES)
    ]
    return Stamps(
        margins=np.array(law.margins),
        bases=bases,
        usable=np.concatenate([family.usable for family in families]),
        openings=_lists(
            [
                _openings(law, family, base)
                for family, base in zip(families, bases[:-1], strict=True)
            ]
        ),
        seeds=law.seed_distance * _units(_radians(range(DEGREES))),
        lines=_lists([line for family in families for line in family.lines]),
        halos=_lists([halo for family in families for halo in family.halos]),
        footprints=_lists([each for family in families for each in family.footprints]),
        turns=_lists([turn for turn, _ in turns]),
        turn_weights=np.concatenate([weights for _, weights in turns]),
        crowds=_lists([crowd for family in families for crowd in family.crowds]),
        vectors=np.concatenate(
            [
                _vectors(law, margin, family.angles)
                for margin, family in zip(law.margins, families, strict=True)
            ]
        ),
        light=_light(law),
        markers=_draw_markers(law),
    )


def _draw_family(law: Law, margin: int) -> _Family:
    """Draw the dashes of a margin: from the tail in whole degrees, from the far end otherwise."""
    degrees = _radians(range(-DEGREES // 2, DEGREES // 2))
    points = _points_around(law.dash_length + margin)
    headings = [math.atan2(y, x) for y, x in points.tolist()]
    drawn = [_draw_dash(law, margin, angle) for angle in degrees + _reverse(headings)]
    footprints = [_footprint(halo, law.dash_length + margin) for _, halo in drawn[:DEGREES]]
    nothing = np.empty((0, 2), dtype=np.int64)
    return _Family(
        angles=degrees + headings,
        points=points,
        lines=[_pixels(line) for line, _ in drawn],
        halos=[_pixels(halo) for _, halo in drawn],
        crowds=[_pixels(_dilate(np.pad(halo, margin), _disk(margin))) for _, halo in drawn],
        footprints=footprints + [nothing] * len(headings),
        usable=[_is_usable(footprint, law) for footprint in footprints] + [False] * len(headings),
    )


def _points_around(radius: int) -> np.ndarray:
    """List the pixels of a circle around the origin, one for each pixel of its length: (n, 2)."""
    around = np.arange(0, 2 * np.pi, 1 / radius)
    circle = radius * np.stack([np.sin(around), np.cos(around)], axis=1)
    return np.unique(np.floor(_FARAWAY + circle).astype(np.int64), axis=0) - _FARAWAY


def _radians(degrees: Iterable[int]) -> list[float]:
    """Turn degrees into radians, to the last bit as the original does."""
    return [degree * math.pi / (DEGREES // 2) for degree in degrees]


def _reverse(angles: list[float]) -> list[float]:
    """Turn angles round, to the last bit as the original does: a sine near 0 keeps its sign."""
    return [angle + math.pi if angle < 0 else angle - math.pi for angle in angles]


def _units(angles: list[float]) -> np.ndarray:
    """Compute (sin, cos) with the C library, NumPy's results vary by processor: (angles, 2)."""
    return np.array([(math.sin(angle), math.cos(angle)) for angle in angles])


def _vectors(law: Law, margin: int, angles: list[float]) -> np.ndarray:
    """Compute Stamps.vectors of a margin."""
    along, back, length = _units(angles), _units(_reverse(angles)), law.dash_length
    steps = [length * along, (length + margin) * back, (length + 2 * margin) * along]
    return np.stack(steps, axis=1)


def _turns(law: Law, family: _Family, first: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """List for each direction the turns that may follow and their weights.

    Args:
        law: law of the images.
        family: the margin's pieces.
        first: index of the direction to the family's first point.
    """
    angles = np.array(family.angles)
    turn = np.abs(angles[DEGREES:] - angles[:, None])
    turn = np.minimum(turn, 2 * np.pi - turn)
    weights = np.cos(np.minimum(law.continuity * turn, np.pi / 2)) ** 2
    rows = np.column_stack([first + np.arange(len(family.points)), family.points])
    return [(rows[row > _NO_WEIGHT], row[row > _NO_WEIGHT]) for row in weights]


def _openings(law: Law, family: _Family, base: int) -> np.ndarray:
    """List the directions whose footprint fits into the middle of the image: Stamps.openings."""
    room = law.size - 4 * law.seed_distance
    rows = [
        (base + degree, *footprint.min(axis=0), *footprint.max(axis=0))
        for degree, footprint in enumerate(family.footprints[:DEGREES])
        if family.usable[degree] and (np.ptp(footprint, axis=0) < room).all()
    ]
    return np.array(rows, dtype=np.int64)


def _light(law: Law) -> np.ndarray:
    """Compute Stamps.light, rounded to single precision as in the original."""
    contrasts = np.array([[law.target_contrast], [law.distractor_contrast]])
    return (np.arange(_FULL + 1) / _FULL * contrasts).astype(np.float32).astype(np.float64)


def _draw_dash(law: Law, margin: int, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw a dash and its halo with the anchor in the middle: two (n, n) uint8 of odd n.

    The canvas is one pixel short of antialias times the stamp, so it is not reduced by exactly
    that: the original has it so, and the greys depend on it.
    """
    reach = law.dash_length + math.ceil(law.thickness) + margin
    middle = reach * law.antialias
    length = law.dash_length * law.antialias
    end = [math.ceil(middle + length * along) for along in (math.cos(angle), math.sin(angle))]
    canvas = Image.new("L", (2 * middle + 1, 2 * middle + 1))
    width = round(law.thickness * law.antialias)
    ImageDraw.Draw(canvas).line((middle, middle, *end), fill=_FULL, width=width)
    dilated = Image.fromarray(_dilate(np.asarray(canvas), _disk(margin * law.antialias)))
    return _reduce(canvas, 2 * reach + 1), _reduce(dilated, 2 * reach + 1)


def _footprint(halo: np.ndarray, reach: int) -> np.ndarray:
    """List where a halo is full, (n, 2), one pixel too far down and right, as in the original.

    Args:
        halo: (side, side) uint8 of odd side, with the anchor in the middle.
        reach: greatest offset to list, in pixels.
    """
    offsets = np.argwhere(halo == _FULL) - len(halo) // 2 + 1
    return offsets[(np.abs(offsets) <= reach).all(axis=1)]


def _is_usable(footprint: np.ndarray, law: Law) -> bool:
    """Tell whether a first dash with this footprint finds a place in an empty image.

    With the border quirk it finds none if it would lie wholly outside the image around some pixel;
    in that case it does so around a corner.
    """
    if not law.border_quirk:
        return len(footprint) > 0
    inward = np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)])
    return bool((footprint[:, None] * inward >= 0).all(axis=2).any(axis=0).all())


def _draw_markers(law: Law) -> np.ndarray:
    """Draw a marker at each place of a canvas just large enough for one to stand clear."""
    reach = math.ceil(law.marker_radius) + _MARKER_REACH
    side = 2 * reach + 1
    places = np.arange(side)
    squares = (np.arange(side * law.antialias) - law.antialias * places[:, None]) ** 2
    distance = squares[:, None, :, None] + squares[None, :, None, :]
    within = distance <= (law.marker_radius * law.antialias) ** 2
    disks = np.where(within, _FULL, 0).astype(np.uint8)
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
