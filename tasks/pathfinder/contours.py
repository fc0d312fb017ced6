"""Growth of Pathfinder's contours: which dashes stand where.

All functions are compiled. They take a `LawNumbers`, the `Primitives` and a `DrawingState`, change
only the state, and most of them tell whether there was room.
"""

# ruff: noqa: PLR0917 - compiled functions take their arguments by position
import math

import numpy as np

from lra.tasks.pathfinder.compiled import compiled
from lra.tasks.pathfinder.drawing_state import draw_integer, draw_uniform, is_inside
from lra.tasks.pathfinder.primitives import DEGREES, HEAD_TO_PIVOT, PIVOT_TO_PIVOT, TAIL_TO_HEAD

_FULL = 255
_OVERLAP_LIMIT = 459
"""Two halos may not add up to this much, 1.8 times the largest value, anywhere."""
_LEAST_WEIGHT = 1e-4
"""A contour is given up where all turns together weigh less than this."""
_FREE_LIMIT = 77
"""The mask counts as free below this value, which is .3 of the largest, rounded up."""
_LEAST_FREE_SHARE = 0.01
"""A distractor is not tried where a smaller share of the mask than this is free."""


@compiled
def move(primitives, y, x, direction, vector):
    """Go along a vector of a direction, rounding y and x up.

    The sum is rounded, not the vector: the two differ if a sine or cosine is not quite 0.
    """
    dy, dx = primitives.vectors[direction, vector]
    return math.ceil(y + dy), math.ceil(x + dx)


@compiled
def _store_dash(state, contour, dash, anchor, direction, pivot):
    state.dashes[contour, dash, 0], state.dashes[contour, dash, 1] = anchor
    state.dashes[contour, dash, 2] = direction
    state.pivots[contour, 0], state.pivots[contour, 1] = pivot


@compiled
def _start_contour(law, primitives, state, contour, y, x, direction):
    """Start a contour by a dash from (y, x), whose head and pivot must lie in the image."""
    head_y, head_x = move(primitives, y, x, direction, TAIL_TO_HEAD)
    pivot_y, pivot_x = move(primitives, head_y, head_x, direction, HEAD_TO_PIVOT)
    _store_dash(state, contour, 0, (y, x), direction, (pivot_y, pivot_x))
    return is_inside(law, head_y, head_x, 0) and is_inside(law, pivot_y, pivot_x, 0)


@compiled
def _has_room(law, primitives, state, y, x, direction):
    """Tell whether the halo of a dash keeps off all others."""
    starts, items = primitives.halo_pixels
    for i in range(starts[direction], starts[direction + 1]):
        row, column = y + items[i, 0], x + items[i, 1]
        if (
            is_inside(law, row, column, 0)
            and state.mask[row, column] + items[i, 2] >= _OVERLAP_LIMIT
        ):
            return False
    return True


@compiled
def _add_halo(law, primitives, state, dash):
    """Enter the halo of a dash into the mask, and the dilated halo into the dilated mask."""
    _add_pixels(law, primitives.halo_pixels, state.mask, dash)
    _add_pixels(law, primitives.dilated_halo_pixels, state.dilated_mask, dash)


@compiled
def _add_pixels(law, pixels, canvas, dash):
    starts, items = pixels
    for i in range(starts[dash[2]], starts[dash[2] + 1]):
        row, column = dash[0] + items[i, 0], dash[1] + items[i, 1]
        if is_inside(law, row, column, 0):
            canvas[row, column] = max(canvas[row, column], items[i, 2])


@compiled
def _extend_contour(law, primitives, state, contour, dash):
    """Add a dash to a contour, and the one before it to the mask."""
    last = state.dashes[contour, dash - 1]
    y, x = state.pivots[contour]
    y, x = move(primitives, y, x, last[2], PIVOT_TO_PIVOT)
    starts, items = primitives.turns
    first, count = starts[last[2]], starts[last[2] + 1] - starts[last[2]]
    total = 0.0
    for turn in range(count):
        row, column = y + items[first + turn, 1], x + items[first + turn, 2]
        if is_inside(law, row, column, 0):
            free = _FULL - np.int64(state.dilated_mask[row, column])
            total += primitives.turn_weights[first + turn] * free
        state.cumulative_weights[turn] = total
    if total < _LEAST_WEIGHT * _FULL:
        return False
    for _ in range(law.dash_draws):
        threshold = total * draw_uniform(state)
        turn = 0
        while state.cumulative_weights[turn] <= threshold and turn < count - 1:
            turn += 1
        direction = items[first + turn, 0]
        row, column = y + items[first + turn, 1], x + items[first + turn, 2]
        if _has_room(law, primitives, state, row, column, direction):
            _add_halo(law, primitives, state, last)
            _store_dash(state, contour, dash, (row, column), direction, (y, x))
            return True
    return False


@compiled
def _start_first_target(law, primitives, state, margin):
    """Start contour 0 in the middle of the image."""
    starts, items = primitives.start_directions
    low, high = 2 * law.seed_distance, law.size - 2 * law.seed_distance
    for _ in range(law.dash_draws):
        choice = starts[margin] + draw_integer(state, starts[margin + 1] - starts[margin])
        direction, least_y, least_x, largest_y, largest_x = items[choice]
        y = low - least_y + draw_integer(state, high - low - (largest_y - least_y))
        x = low - least_x + draw_integer(state, high - low - (largest_x - least_x))
        if _start_contour(law, primitives, state, np.int64(0), y, x, direction):
            return True
    return False


@compiled
def _start_second_target(law, primitives, state, margin):
    """Start contour 1 at a distance from the start of contour 0."""
    for _ in range(law.dash_draws):
        direction = primitives.first_directions[margin] + draw_integer(state, DEGREES)
        dy, dx = primitives.second_start_offsets[draw_integer(state, DEGREES)]
        y = np.int64(np.rint(state.dashes[0, 0, 0] + dy))
        x = np.int64(np.rint(state.dashes[0, 0, 1] + dx))
        if _start_contour(law, primitives, state, np.int64(1), y, x, direction):
            return True
    return False


@compiled
def _fill_frame(canvas, width):
    canvas[:] = _FULL
    canvas[width : len(canvas) - width, width : len(canvas) - width] = 0


@compiled
def grow_targets(law, primitives, state, margin):
    """Grow both target contours alternately, of which none may get stuck.

    A dash enters the mask once the next dash of its contour is placed, so that contours can cross;
    the last dash of contour 0 never enters it.
    """
    # The disk around a pixel reaches the padding from as far away as its radius, the margin.
    _fill_frame(state.mask, law.padding)
    _fill_frame(state.dilated_mask, law.padding + primitives.margins[margin])
    if not (
        _start_first_target(law, primitives, state, margin)
        and _start_second_target(law, primitives, state, margin)
    ):
        return False
    for dash in range(1, law.contour_dashes):
        for contour in range(2):
            if not _extend_contour(law, primitives, state, contour, dash):
                return False
    _add_halo(law, primitives, state, state.dashes[1, law.contour_dashes - 1])
    return True


@compiled
def _is_free_start(law, primitives, state, y, x, direction):
    """Tell whether a distractor may start here: its footprint, where seen, is dark and off the rim.

    It must be seen: without the border quirk, some footprints are not at the border's places.
    """
    starts, items = primitives.footprint_pixels
    is_seen = False
    for i in range(starts[direction], starts[direction + 1]):
        row, column = y + items[i, 0], x + items[i, 1]
        if is_inside(law, row, column, 0):
            if state.mask[row, column] >= _FREE_LIMIT or not is_inside(law, row, column, law.rim):
                return False
            is_seen = True
    return is_seen


@compiled
def _find_start(law, primitives, state, direction):
    """Draw one of the places (y, x) where a distractor may start; (-1, -1) if there is none."""
    # A few draws usually hit such a place; if they all miss, all places are listed.
    for _ in range(law.size):
        y, x = draw_integer(state, law.size), draw_integer(state, law.size)
        if _is_free_start(law, primitives, state, y, x, direction):
            return y, x
    pixels = np.empty(law.size**2, dtype=np.int64)
    count = 0
    for pixel in range(law.size**2):
        if _is_free_start(law, primitives, state, pixel // law.size, pixel % law.size, direction):
            pixels[count] = pixel
            count += 1
    if count == 0:
        return -1, -1
    pixel = pixels[draw_integer(state, count)]
    return pixel // law.size, pixel % law.size


@compiled
def _start_distractor(law, primitives, state, margin, contour):
    """Start a distractor where there is room."""
    for _ in range(law.dash_draws):
        direction = primitives.first_directions[margin] + draw_integer(state, DEGREES)
        if not primitives.is_usable[direction]:
            return False
        if (state.mask < _FREE_LIMIT).sum() < _LEAST_FREE_SHARE * law.size**2:
            return False
        y, x = _find_start(law, primitives, state, direction)
        if y < 0:
            return False
        if _start_contour(law, primitives, state, contour, y, x, direction):
            return True
    return False


@compiled
def _copy_pixels(source, target):
    for row in range(len(source)):
        for column in range(len(source)):
            target[row, column] = source[row, column]


@compiled
def grow_distractor(law, primitives, state, margin, contour):
    """Grow a distractor from one start; where it gets stuck, restore the masks."""
    if not _start_distractor(law, primitives, state, margin, contour):
        return False
    _copy_pixels(state.mask, state.saved_masks[0])
    _copy_pixels(state.dilated_mask, state.saved_masks[1])
    for dash in range(1, law.distractor_dashes):
        if not _extend_contour(law, primitives, state, contour, dash):
            _copy_pixels(state.saved_masks[0], state.mask)
            _copy_pixels(state.saved_masks[1], state.dilated_mask)
            return False
    _add_halo(law, primitives, state, state.dashes[contour, law.distractor_dashes - 1])
    return True
