"""The sheet that one image of Pathfinder is drawn on, and its random words.

All functions are compiled; they change only the sheet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tasks.pathfinder.compiled import compiled
from tasks.pathfinder.law import Law

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_ONE, _ELEVEN, _HALF = np.uint64(1), np.uint64(11), np.uint64(32)


class Rules(NamedTuple):
    """The numbers of a law that the compiled functions need, under the names they have there."""

    size: int
    contour_dashes: int
    distractor_dashes: int
    distractors: int
    rim: int
    padding: int
    seed_distance: int
    dash_draws: int
    distractor_draws: int


class Sheet(NamedTuple):
    """The state of the image that is being drawn."""

    words: np.ndarray
    """(2,) uint64: the key of the image, and the number of random words drawn so far."""
    mask: np.ndarray
    """(size, size) uint8, the largest halo of the dashes so far; the padding is full."""
    crowd: np.ndarray
    """(size, size) uint8, the largest value of the mask in the disk around each pixel whose radius
    is the margin."""
    spare: np.ndarray
    """(2, size, size) uint8, mask and crowd before the current distractor."""
    dashes: np.ndarray
    """(2 + distractors, contour_dashes, 3) int64: y and x of the anchor, direction."""
    pivots: np.ndarray
    """(2 + distractors, 2) int64: y and x of the pivot of each contour's newest dash."""
    sums: np.ndarray
    """(most turns,) float64, running sums of the weights of the possible turns."""
    light: np.ndarray
    """(size, size) float64, the image before it is stretched."""


MOST_TURNS = 360
"""More than the points around any pivot."""


def rules(law: Law) -> Rules:
    """Pick the numbers of a law."""
    return Rules(**{name: getattr(law, name) for name in Rules._fields})


def sheet(law: Law) -> Sheet:
    """Make an empty sheet."""
    square = (law.size, law.size)
    contours = 2 + law.distractors
    return Sheet(
        words=np.zeros(2, dtype=np.uint64),
        mask=np.zeros(square, dtype=np.uint8),
        crowd=np.zeros(square, dtype=np.uint8),
        spare=np.zeros((2, *square), dtype=np.uint8),
        dashes=np.zeros((contours, law.contour_dashes, 3), dtype=np.int64),
        pivots=np.zeros((contours, 2), dtype=np.int64),
        sums=np.zeros(MOST_TURNS),
        light=np.zeros(square),
    )


@compiled
def _mix(word):
    """Scatter the words of 64 bits one to one: splitmix64 (Steele, Lea and Flood, 2014)."""
    word = (word ^ (word >> _SHIFTS[0])) * _FACTORS[0]
    word = (word ^ (word >> _SHIFTS[1])) * _FACTORS[1]
    return word ^ (word >> _SHIFTS[2])


@compiled
def begin(sheet, seed, index):
    """Point the sheet at the random words of an image: word k depends on seed, index and k."""
    sheet.words[0] = _mix(_mix(seed + _STEP) + np.uint64(index) * _STEP)
    sheet.words[1] = 0


@compiled
def _word(sheet):
    sheet.words[1] += _ONE
    return _mix(sheet.words[0] + sheet.words[1] * _STEP)


@compiled
def below(sheet, count):
    """Draw an integer from 0 to count - 1, uniform to within count / 2**32."""
    return np.int64(((_word(sheet) >> _HALF) * np.uint64(count)) >> _HALF)


@compiled
def uniform(sheet):
    """Draw a number from 0 to below 1."""
    return np.float64(_word(sheet) >> _ELEVEN) * 2.0**-53


@compiled
def within(rules, y, x, frame):
    """Tell whether a pixel is in the image and not in a frame of this width."""
    low, high = frame, rules.size - frame
    return low <= y < high and low <= x < high
