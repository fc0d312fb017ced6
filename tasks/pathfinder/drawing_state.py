"""The state of one Pathfinder image while it is drawn, and its random numbers.

Compiled functions change only the state.
"""

from typing import NamedTuple

import numpy as np

from lra.tasks.pathfinder.compiled import compiled
from lra.tasks.pathfinder.law import Law

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_ONE, _ELEVEN, _HALF = np.uint64(1), np.uint64(11), np.uint64(32)
_MOST_TURNS = 360
"""More than the points around any pivot."""


class LawNumbers(NamedTuple):
    """The numbers of a `Law` that compiled functions need."""

    size: int
    contour_dashes: int
    distractor_dashes: int
    distractors: int
    rim: int
    padding: int
    seed_distance: int
    dash_draws: int
    distractor_draws: int


class DrawingState(NamedTuple):
    """The state of the image that is being drawn."""

    random_state: np.ndarray
    """(2,) uint64: the key of the image, and the number of random words drawn so far."""
    mask: np.ndarray
    """(size, size) uint8, the largest halo of the dashes so far; the padding is full."""
    dilated_mask: np.ndarray
    """(size, size) uint8, the largest value of the mask in the disk around each pixel whose radius
    is the margin."""
    saved_masks: np.ndarray
    """(2, size, size) uint8, mask and dilated mask before the current distractor."""
    dashes: np.ndarray
    """(2 + distractors, contour_dashes, 3) int64: y and x of the anchor, direction."""
    pivots: np.ndarray
    """(2 + distractors, 2) int64: y and x of the pivot of each contour's newest dash."""
    cumulative_weights: np.ndarray
    """(most turns,) float64, running sums of the weights of the possible turns."""
    brightness: np.ndarray
    """(size, size) float64, the image before it is stretched."""


def start_drawing(law: Law) -> tuple[LawNumbers, DrawingState]:
    """Return the numbers of a law, and the state of an image that nothing is drawn in."""
    square = (law.size, law.size)
    contours = 2 + law.distractors
    state = DrawingState(
        random_state=np.zeros(2, dtype=np.uint64),
        mask=np.zeros(square, dtype=np.uint8),
        dilated_mask=np.zeros(square, dtype=np.uint8),
        saved_masks=np.zeros((2, *square), dtype=np.uint8),
        dashes=np.zeros((contours, law.contour_dashes, 3), dtype=np.int64),
        pivots=np.zeros((contours, 2), dtype=np.int64),
        cumulative_weights=np.zeros(_MOST_TURNS),
        brightness=np.zeros(square),
    )
    return LawNumbers(**{name: getattr(law, name) for name in LawNumbers._fields}), state


@compiled
def _mix(word):
    """Scatter the words of 64 bits one to one: splitmix64 (Steele, Lea and Flood, 2014)."""
    word = (word ^ (word >> _SHIFTS[0])) * _FACTORS[0]
    word = (word ^ (word >> _SHIFTS[1])) * _FACTORS[1]
    return word ^ (word >> _SHIFTS[2])


@compiled
def start_image(state, seed, index):
    """Start the random words of an image: word k depends on seed, index and k alone."""
    state.random_state[0] = _mix(_mix(seed + _STEP) + np.uint64(index) * _STEP)
    state.random_state[1] = 0


@compiled
def _draw_word(state):
    state.random_state[1] += _ONE
    return _mix(state.random_state[0] + state.random_state[1] * _STEP)


@compiled
def draw_integer(state, count):
    """Draw an integer from 0 to count - 1, uniform to within count / 2**32."""
    return np.int64(((_draw_word(state) >> _HALF) * np.uint64(count)) >> _HALF)


@compiled
def draw_uniform(state):
    """Draw a number from 0 to below 1."""
    return np.float64(_draw_word(state) >> _ELEVEN) * 2.0**-53


@compiled
def is_inside(law, y, x, frame):
    """Tell whether a pixel is in the image and not in a frame of this width."""
    low, high = frame, law.size - frame
    return low <= y < high and low <= x < high
