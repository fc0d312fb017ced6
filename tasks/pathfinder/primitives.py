"""The primitives that Pathfinder's images are composed of, drawn beforehand.

The first dash of a contour points in one of the whole degrees and is drawn from its tail. Every
other dash ends in one of the integer points around its pivot, a place near its tail, and is drawn
back from that far end, so that a contour bends in its gaps. The end that a dash is drawn from is
its anchor. For each of these directions there is a dash and the halo that keeps others away, and
for whole degrees also the footprint that a first dash needs free. Directions, in radians, turn from
x (right) to y (down); offsets are (y, x) in pixels from the anchor.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from lra.tasks.pathfinder.law import Law

DEGREES = 360
_FULL = 255
_LARGE_OFFSET = 2**10
"""Offset at which coordinates are rounded down, so that a hair below an integer is that integer."""
_ZERO_WEIGHT = 1e-12
"""A turn that weighs no more than this is a right angle, which rounding keeps from 0."""
_LANCZOS_REACH = 6
"""Pixels around a disk that Lanczos' filter reads or changes when it halves an image."""

TAIL_TO_HEAD, HEAD_TO_PIVOT, PIVOT_TO_PIVOT = range(3)
"""Rows of Primitives.vectors: from one end of a dash to the other; from the head of a first
dash back to its pivot; and from the pivot of a dash to the next one's."""


class RaggedArray(NamedTuple):
    """Lists of unlike lengths end to end: list i is items[offsets[i] : offsets[i + 1]]."""

    offsets: np.ndarray
    """(lists + 1,) int64."""
    items: np.ndarray
    """(total, columns) int64."""


class Primitives(NamedTuple):
    """The primitives of a law's images; directions are listed margin by margin."""

    margins: np.ndarray
    """(margins,) int64, in pixels."""
    first_directions: np.ndarray
    """(margins + 1,) int64: first direction of each margin, whose first 360 are whole degrees; then
    come the directions to the points around a pivot."""
    is_usable: np.ndarray
    """(directions,) bool, whether a distractor can start in this direction."""
    start_directions: RaggedArray
    """For each margin, the directions that contour 0 can start in: (direction, the least y and x
    of the footprint, the largest y and x)."""
    second_start_offsets: np.ndarray
    """(360, 2) float64 (y, x): from the start of contour 0 to that of contour 1."""
    dash_pixels: RaggedArray
    """(y, x, value) of each direction's dash where it is not 0."""
    halo_pixels: RaggedArray
    """(y, x, value) of each direction's halo where it is not 0."""
    footprint_pixels: RaggedArray
    """(y, x) of the pixels that must be free, for each direction of a first dash."""
    turns: RaggedArray
    """After each direction, (direction, y, x): the next dash, and its far end from its pivot."""
    turn_weights: np.ndarray
    """(turns,) float64, how likely each turn is where nothing is near."""
    dilated_halo_pixels: RaggedArray
    """(y, x, value) of each direction's halo dilated by the margin, where it is not 0."""
    vectors: np.ndarray
    """(directions, 3, 2) float64 (y, x); the rows are named above."""
    brightness: np.ndarray
    """(2, 256) float64: how bright each value of a dash is, in a target and in a distractor."""
    marker_images: np.ndarray
    """(c, c, c, c) uint8: a marker at (y, x) of a canvas with c rows and columns."""


@functools.lru_cache(maxsize=16)
def draw_primitives(law: Law) -> Primitives:
    """Draw the primitives of a law's images."""
    bases = [0]
    is_usable: list[bool] = []
    starts: list[np.ndarray] = []
    dashes: list[np.ndarray] = []
    halos: list[np.ndarray] = []
    dilated_halos: list[np.ndarray] = []
    footprints: list[np.ndarray] = []
    turns: list[tuple[np.ndarray, np.ndarray]] = []
    vectors: list[np.ndarray] = []
    for margin in law.margins:
        base, reach = bases[-1], law.dash_length + margin
        degrees = _to_radians(range(-DEGREES // 2, DEGREES // 2))
        points = _list_circle_points(reach)
        headings = [math.atan2(y, x) for y, x in points.tolist()]
        drawn = [_draw_dash(law, margin, angle) for angle in degrees + _reverse(headings)]
        free = [_list_footprint(halo, reach) for _, halo in drawn[:DEGREES]]
        usable = [_is_usable(footprint, law) for footprint in free]
        bases.append(base + len(drawn))
        is_usable += usable + [False] * len(points)
        starts.append(_list_start_directions(law, free, usable, base))
        dashes += [_list_pixels(line) for line, _ in drawn]
        halos += [_list_pixels(halo) for _, halo in drawn]
        dilated_halos += [
            _list_pixels(_dilate(np.pad(halo, margin), _disk(margin))) for _, halo in drawn
        ]
        footprints += free + [np.empty((0, 2), dtype=np.int64)] * len(points)
        turns += _list_turns(law, degrees + headings, points, base + DEGREES)
        vectors.append(_compute_vectors(law, margin, degrees + headings))
    return Primitives(
        margins=np.array(law.margins),
        first_directions=np.array(bases),
        is_usable=np.array(is_usable),
        start_directions=_join(starts),
        second_start_offsets=law.seed_distance * _compute_unit_vectors(_to_radians(range(DEGREES))),
        dash_pixels=_join(dashes),
        halo_pixels=_join(halos),
        footprint_pixels=_join(footprints),
        turns=_join([turn for turn, _ in turns]),
        turn_weights=np.concatenate([weights for _, weights in turns]),
        dilated_halo_pixels=_join(dilated_halos),
        vectors=np.concatenate(vectors),
        brightness=_compute_brightness(law),
        marker_images=_draw_markers(law),
    )


def _list_circle_points(radius: int) -> np.ndarray:
    """List the pixels of a circle around the origin, one for each pixel of its length: (n, 2)."""
    around = np.arange(0, 2 * np.pi, 1 / radius)
    circle = radius * np.stack([np.sin(around), np.cos(around)], axis=1)
    return np.unique(np.floor(_LARGE_OFFSET + circle).astype(np.int64), axis=0) - _LARGE_OFFSET


def _to_radians(degrees: Iterable[int]) -> list[float]:
    """Turn degrees into radians, to the last bit as the original does."""
    return [degree * math.pi / (DEGREES // 2) for degree in degrees]


def _reverse(angles: list[float]) -> list[float]:
    """Turn angles round, to the last bit as the original does: a sine near 0 keeps its sign."""
    return [angle + math.pi if angle < 0 else angle - math.pi for angle in angles]


def _compute_unit_vectors(angles: list[float]) -> np.ndarray:
    """Compute (sin, cos) with the C library, NumPy's results vary by processor: (angles, 2)."""
    return np.array([(math.sin(angle), math.cos(angle)) for angle in angles])


def _compute_vectors(law: Law, margin: int, angles: list[float]) -> np.ndarray:
    """Compute Primitives.vectors of a margin."""
    along, back = _compute_unit_vectors(angles), _compute_unit_vectors(_reverse(angles))
    length = law.dash_length
    steps = [length * along, (length + margin) * back, (length + 2 * margin) * along]
    return np.stack(steps, axis=1)


def _list_turns(
    law: Law, angles: list[float], points: np.ndarray, first: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """List the turns to points (n, 2), from direction `first` on, that may follow each direction.

    With the turns come their weights.
    """
    turn = np.abs(np.array(angles[DEGREES:]) - np.array(angles)[:, None])
    turn = np.minimum(turn, 2 * np.pi - turn)
    weights = np.cos(np.minimum(law.continuity * turn, np.pi / 2)) ** 2
    rows = np.column_stack([first + np.arange(len(points)), points])
    return [(rows[row > _ZERO_WEIGHT], row[row > _ZERO_WEIGHT]) for row in weights]


def _list_start_directions(
    law: Law, footprints: list[np.ndarray], is_usable: list[bool], base: int
) -> np.ndarray:
    """List the directions whose footprint fits into the middle of the image."""
    room = law.size - 4 * law.seed_distance
    rows = [
        (base + degree, *footprint.min(axis=0), *footprint.max(axis=0))
        for degree, footprint in enumerate(footprints)
        if is_usable[degree] and (np.ptp(footprint, axis=0) < room).all()
    ]
    return np.array(rows, dtype=np.int64)


def _compute_brightness(law: Law) -> np.ndarray:
    """Compute Primitives.brightness, rounded to single precision as in the original."""
    contrasts = np.array([[law.target_contrast], [law.distractor_contrast]])
    return (np.arange(_FULL + 1) / _FULL * contrasts).astype(np.float32).astype(np.float64)


def _draw_dash(law: Law, margin: int, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw a dash and its halo with the anchor in the middle: two (n, n) uint8 of odd n.

    The canvas is one pixel short of antialias times the result, so it is not reduced by exactly
    that: the original has it so, and the greys depend on it.
    """
    reach = law.dash_length + math.ceil(law.thickness) + margin
    middle, length = reach * law.antialias, law.dash_length * law.antialias
    end = [math.ceil(middle + length * along) for along in (math.cos(angle), math.sin(angle))]
    canvas = Image.new("L", (2 * middle + 1, 2 * middle + 1))
    width = round(law.thickness * law.antialias)
    ImageDraw.Draw(canvas).line((middle, middle, *end), fill=_FULL, width=width)
    dilated = Image.fromarray(_dilate(np.asarray(canvas), _disk(margin * law.antialias)))
    return _downscale(canvas, 2 * reach + 1), _downscale(dilated, 2 * reach + 1)


def _list_footprint(halo: np.ndarray, reach: int) -> np.ndarray:
    """List where a halo is full, (n, 2), one pixel too far down and right, as in the original."""
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
    side = 2 * (math.ceil(law.marker_radius) + _LANCZOS_REACH) + 1
    squares = (np.arange(side * law.antialias) - law.antialias * np.arange(side)[:, None]) ** 2
    distance = squares[:, None, :, None] + squares[None, :, None, :]
    disks = (distance <= (law.marker_radius * law.antialias) ** 2) * np.uint8(_FULL)
    return np.array([[_downscale(Image.fromarray(disk), side) for disk in row] for row in disks])


def _downscale(canvas: Image.Image, side: int) -> np.ndarray:
    return np.asarray(canvas.resize((side, side), Image.Resampling.LANCZOS))


def _disk(radius: int) -> np.ndarray:
    squares = np.arange(-radius, radius + 1) ** 2
    return squares[:, None] + squares <= radius**2


def _dilate(image: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Replace each pixel by the largest around it within a shape with odd sides."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, len(shape) // 2), shape.shape)
    return np.where(shape, windows, 0).max(axis=(2, 3)).astype(np.uint8)


def _list_pixels(image: np.ndarray) -> np.ndarray:
    """List (y, x, value) of the pixels that are not 0; y and x count from the middle."""
    y, x = np.nonzero(image)
    return np.column_stack([y - len(image) // 2, x - len(image) // 2, image[y, x]])


def _join(arrays: Sequence[np.ndarray]) -> RaggedArray:
    offsets = np.cumsum([0, *map(len, arrays)])
    return RaggedArray(offsets.astype(np.int64), np.concatenate(arrays).astype(np.int64))
