"""Growth of Pathfinder's contours: which dashes stand where.

All functions are compiled; they take rules, pieces and a sheet, and change only the sheet.
"""

# ruff: noqa: PLR0917 - compiled functions take their arguments by position
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from tasks.pathfinder.law import Law
from tasks.pathfinder.stamps import DEGREES, NEXT_TAIL, OTHER_CONTOUR

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_ONE, _ELEVEN, _HALF = np.uint64(1), np.uint64(11), np.uint64(32)

_FULL = 255
_CROWDED = 459
"""Two halos, of 255 at most each, may not add up to 1.8 times 255."""


class Rules(NamedTuple):
    """The numbers of a law that the compiled functions need, under the names they have there."""

    size: int
    contour_dashes: int
    distractor_dashes: int
    distractors: int
    border: int
    padding: int
    seed_distance: int
    dash_draws: int
    distractor_draws: int
    target_contrast: float
    distractor_contrast: float


class Sheet(NamedTuple):
    """The state of the image that is being drawn."""

    words: np.ndarray
    """(2,) uint64: the key of the image, and the number of random words drawn so far."""
    mask: np.ndarray
    """(size, size) uint8, the largest halo of the dashes so far."""
    spare: np.ndarray
    """(size, size) uint8, the mask before the current distractor."""
    dashes: np.ndarray
    """(2 + distractors, contour_dashes, 3) int64: y and x of the tail, direction."""
    sums: np.ndarray
    """(DEGREES,) float64, running sums of the weights of the possible turns."""
    light: np.ndarray
    """(size, size) float64, the image before it is stretched."""


def rules(law: Law) -> Rules:
    """Pick the numbers of a law."""
    return Rules(**{name: getattr(law, name) for name in Rules._fields})


def sheet(law: Law) -> Sheet:
    """Make an empty sheet."""
    square = (law.size, law.size)
    return Sheet(
        words=np.zeros(2, dtype=np.uint64),
        mask=np.zeros(square, dtype=np.uint8),
        spare=np.zeros(square, dtype=np.uint8),
        dashes=np.zeros((2 + law.distractors, law.contour_dashes, 3), dtype=np.int64),
        sums=np.zeros(DEGREES),
        light=np.zeros(square),
    )


@njit(nogil=True, cache=True)
def _mix(word):
    """Scatter the words of 64 bits one to one: splitmix64 (Steele, Lea and Flood, 2014)."""
    word = (word ^ (word >> _SHIFTS[0])) * _FACTORS[0]
    word = (word ^ (word >> _SHIFTS[1])) * _FACTORS[1]
    return word ^ (word >> _SHIFTS[2])


@njit(nogil=True, cache=True)
def begin(sheet, seed, index):
    """Point the sheet at the random words of an image: word k depends on seed, index and k."""
    sheet.words[0] = _mix(_mix(seed + _STEP) + np.uint64(index) * _STEP)
    sheet.words[1] = 0


@njit(nogil=True, cache=True)
def _word(sheet):
    sheet.words[1] += _ONE
    return _mix(sheet.words[0] + sheet.words[1] * _STEP)


@njit(nogil=True, cache=True)
def below(sheet, count):
    """Draw an integer from 0 to count - 1, uniform to within count / 2**32."""
    return np.int64(((_word(sheet) >> _HALF) * np.uint64(count)) >> _HALF)


@njit(nogil=True, cache=True)
def _uniform(sheet):
    return np.float64(_word(sheet) >> _ELEVEN) * 2.0**-53


@njit(nogil=True, cache=True)
def within(rules, y, x, border):
    """Tell whether a pixel is in the image and not in its border."""
    low, high = border, rules.size - border
    return low <= y < high and low <= x < high


@njit(nogil=True, cache=True)
def move(pieces, dash, vector):
    """Go from the tail of a dash along a vector of its direction, rounding y and x up.

    The sum is rounded, not the vector: the two differ if a sine or cosine is not quite 0.
    """
    dy, dx = pieces.vectors[dash[2], vector]
    return math.ceil(dash[0] + dy), math.ceil(dash[1] + dx)


@njit(nogil=True, cache=True)
def _put(sheet, contour, dash, y, x, direction):
    sheet.dashes[contour, dash, 0] = y
    sheet.dashes[contour, dash, 1] = x
    sheet.dashes[contour, dash, 2] = direction


@njit(nogil=True, cache=True)
def _has_room(rules, pieces, sheet, y, x, direction):
    """Tell whether the halo of a dash keeps off all others."""
    starts, items = pieces.halos
    for i in range(starts[direction], starts[direction + 1]):
        row, column = y + items[i, 0], x + items[i, 1]
        if within(rules, row, column, 0) and sheet.mask[row, column] + items[i, 2] >= _CROWDED:
            return False
    return True


@njit(nogil=True, cache=True)
def _add_halo(rules, pieces, sheet, dash):
    starts, items = pieces.halos
    for i in range(starts[dash[2]], starts[dash[2] + 1]):
        row, column = dash[0] + items[i, 0], dash[1] + items[i, 1]
        if within(rules, row, column, 0):
            sheet.mask[row, column] = max(sheet.mask[row, column], items[i, 2])


@njit(nogil=True, cache=True)
def _crowd(rules, pieces, sheet, margin, y, x):
    """Find the largest value of the mask in a disk whose radius is the margin."""
    starts, items = pieces.disks
    crowd = 0
    for i in range(starts[margin], starts[margin + 1]):
        row, column = y + items[i, 0], x + items[i, 1]
        if within(rules, row, column, 0):
            crowd = max(crowd, sheet.mask[row, column])
    return crowd


@njit(nogil=True, cache=True)
def _extend(rules, pieces, sheet, margin, contour, dash):
    """Add a dash to a contour, and the one before it to the mask; tell whether there was room."""
    last = sheet.dashes[contour, dash - 1]
    y, x = move(pieces, last, NEXT_TAIL)
    starts, items = pieces.turns
    first, count = starts[last[2]], starts[last[2] + 1] - starts[last[2]]
    total = 0.0
    for turn in range(count):
        row, column = y + items[first + turn, 1], x + items[first + turn, 2]
        if within(rules, row, column, rules.border):
            free = _FULL - _crowd(rules, pieces, sheet, margin, row, column)
            total += pieces.turn_weights[first + turn] * free
        sheet.sums[turn] = total
    if total == 0.0:
        return False
    for _ in range(rules.dash_draws):
        drawn = total * _uniform(sheet)
        turn = 0
        while sheet.sums[turn] <= drawn and turn < count - 1:
            turn += 1
        direction = items[first + turn, 0]
        if _has_room(rules, pieces, sheet, y, x, direction):
            _add_halo(rules, pieces, sheet, last)
            _put(sheet, contour, dash, y, x, direction)
            return True
    return False


@njit(nogil=True, cache=True)
def _start_targets(rules, pieces, sheet, margin):
    """Place the first dashes of both target contours; tell whether they have room."""
    base = pieces.margins[margin]
    direction = base + below(sheet, DEGREES)
    if not pieces.finds_place[direction]:
        return False
    starts, items = pieces.footprints
    footprint = items[starts[direction] : starts[direction + 1]]
    for axis in range(2):
        low, high = footprint[:, axis].min(), footprint[:, axis].max()
        room = rules.size - 4 * rules.seed_distance - (high - low)
        if room <= 0:
            return False
        sheet.dashes[0, 0, axis] = 2 * rules.seed_distance - low + below(sheet, room)
    # The first dash points for now to where the other contour starts.
    sheet.dashes[0, 0, 2] = base + below(sheet, DEGREES)
    y, x = move(pieces, sheet.dashes[0, 0], OTHER_CONTOUR)
    sheet.dashes[0, 0, 2] = direction
    _put(sheet, 1, 0, y, x, base + below(sheet, DEGREES))
    return within(rules, y, x, rules.padding)


@njit(nogil=True, cache=True)
def grow_targets(rules, pieces, sheet, margin):
    """Grow both target contours alternately; tell whether neither got stuck.

    A dash enters the mask once the next dash of its contour is placed, so that contours can cross;
    the last dash of contour 0 never enters it.
    """
    sheet.mask[:] = 0
    if not _start_targets(rules, pieces, sheet, margin):
        return False
    for dash in range(1, rules.contour_dashes):
        for contour in range(2):
            if not _extend(rules, pieces, sheet, margin, contour, dash):
                return False
    _add_halo(rules, pieces, sheet, sheet.dashes[1, rules.contour_dashes - 1])
    return True


@njit(nogil=True, cache=True)
def _is_free(rules, pieces, sheet, y, x, direction):
    """Tell whether a contour may start here: its footprint is free of halos and the border.

    It is inferred from the statistics of the released images that the border counts.
    """
    starts, items = pieces.footprints
    seen = False
    for i in range(starts[direction], starts[direction + 1]):
        row, column = y + items[i, 0], x + items[i, 1]
        if within(rules, row, column, 0):
            if sheet.mask[row, column] > 0 or not within(rules, row, column, rules.border):
                return False
            seen = True
    return seen


@njit(nogil=True, cache=True)
def _find_place(rules, pieces, sheet, direction):
    """Draw one of the places (y, x) where a distractor may start; (-1, -1) if there is none."""
    border, side = rules.border, rules.size - 2 * rules.border
    # A few draws usually hit such a place; if they all miss, all places are counted.
    for _ in range(rules.size):
        y, x = border + below(sheet, side), border + below(sheet, side)
        if _is_free(rules, pieces, sheet, y, x, direction):
            return y, x
    places = np.empty(side * side, dtype=np.int64)
    count = 0
    for place in range(side * side):
        y, x = border + place // side, border + place % side
        if _is_free(rules, pieces, sheet, y, x, direction):
            places[count] = place
            count += 1
    if count == 0:
        return -1, -1
    place = places[below(sheet, count)]
    return border + place // side, border + place % side


@njit(nogil=True, cache=True)
def grow_distractor(rules, pieces, sheet, margin, contour):
    """Grow a distractor from one start; tell whether it was completed, else restore the mask."""
    direction = pieces.margins[margin] + below(sheet, DEGREES)
    if not pieces.finds_place[direction]:
        return False
    y, x = _find_place(rules, pieces, sheet, direction)
    if y < 0:
        return False
    _put(sheet, contour, 0, y, x, direction)
    sheet.spare[:] = sheet.mask
    for dash in range(1, rules.distractor_dashes):
        if not _extend(rules, pieces, sheet, margin, contour, dash):
            sheet.mask[:] = sheet.spare
            return False
    _add_halo(rules, pieces, sheet, sheet.dashes[contour, rules.distractor_dashes - 1])
    return True
