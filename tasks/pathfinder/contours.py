"""Growth of Pathfinder's contours: which dashes stand where.

All functions are compiled; they take rules, pieces and a sheet, and change only the sheet.
"""

# ruff: noqa: PLR0917 - compiled functions take their arguments by position
from __future__ import annotations

import math

import numpy as np

from tasks.pathfinder.compiled import compiled
from tasks.pathfinder.sheet import below, uniform, within
from tasks.pathfinder.stamps import ALONG, BACK_TO_PIVOT, DEGREES, TO_NEXT_PIVOT

_FULL = 255
_CROWDED = 459
"""Two halos may not add up to this much, 1.8 times the largest value, anywhere."""

_LEAST_WEIGHT = 1e-4
"""A contour is given up where all turns together weigh less than this."""

_DARK = 77
"""The mask counts as free below this value, which is .3 of the largest, rounded up."""

_LEAST_DARK = 0.01
"""A distractor is not tried where a smaller share of the mask than this is free."""


@compiled
def move(pieces, y, x, direction, vector):
    """Go along a vector of a direction, rounding y and x up.

    The sum is rounded, not the vector: the two differ if a sine or cosine is not quite 0.
    """
    dy, dx = pieces.vectors[direction, vector]
    return math.ceil(y + dy), math.ceil(x + dx)


@compiled
def _put(sheet, contour, dash, y, x, direction):
    sheet.dashes[contour, dash, 0] = y
    sheet.dashes[contour, dash, 1] = x
    sheet.dashes[contour, dash, 2] = direction


@compiled
def _start(rules, pieces, sheet, contour, y, x, direction):
    """Start a contour by a dash from (y, x); tell whether its head and pivot lie in the image."""
    head_y, head_x = move(pieces, y, x, direction, ALONG)
    pivot_y, pivot_x = move(pieces, head_y, head_x, direction, BACK_TO_PIVOT)
    _put(sheet, contour, 0, y, x, direction)
    sheet.pivots[contour, 0] = pivot_y
    sheet.pivots[contour, 1] = pivot_x
    return within(rules, head_y, head_x, 0) and within(rules, pivot_y, pivot_x, 0)


@compiled
def _has_room(rules, pieces, sheet, y, x, direction):
    """Tell whether the halo of a dash keeps off all others."""
    starts, items = pieces.halos
    for i in range(starts[direction], starts[direction + 1]):
        row, column = y + items[i, 0], x + items[i, 1]
        if within(rules, row, column, 0) and sheet.mask[row, column] + items[i, 2] >= _CROWDED:
            return False
    return True


@compiled
def _add_halo(rules, pieces, sheet, dash):
    """Enter the halo of a dash into the mask, and what it does to the crowd."""
    _add(rules, pieces.halos, sheet.mask, dash)
    _add(rules, pieces.crowds, sheet.crowd, dash)


@compiled
def _add(rules, lists, canvas, dash):
    starts, items = lists
    for i in range(starts[dash[2]], starts[dash[2] + 1]):
        row, column = dash[0] + items[i, 0], dash[1] + items[i, 1]
        if within(rules, row, column, 0):
            canvas[row, column] = max(canvas[row, column], items[i, 2])


@compiled
def _extend(rules, pieces, sheet, contour, dash):
    """Add a dash to a contour, and the one before it to the mask; tell whether there was room."""
    last = sheet.dashes[contour, dash - 1]
    y, x = sheet.pivots[contour]
    y, x = move(pieces, y, x, last[2], TO_NEXT_PIVOT)
    starts, items = pieces.turns
    first, count = starts[last[2]], starts[last[2] + 1] - starts[last[2]]
    total = 0.0
    for turn in range(count):
        row, column = y + items[first + turn, 1], x + items[first + turn, 2]
        if within(rules, row, column, 0):
            free = _FULL - np.int64(sheet.crowd[row, column])
            total += pieces.turn_weights[first + turn] * free
        sheet.sums[turn] = total
    if total < _LEAST_WEIGHT * _FULL:
        return False
    for _ in range(rules.dash_draws):
        drawn = total * uniform(sheet)
        turn = 0
        while sheet.sums[turn] <= drawn and turn < count - 1:
            turn += 1
        direction = items[first + turn, 0]
        row, column = y + items[first + turn, 1], x + items[first + turn, 2]
        if _has_room(rules, pieces, sheet, row, column, direction):
            _add_halo(rules, pieces, sheet, last)
            _put(sheet, contour, dash, row, column, direction)
            sheet.pivots[contour, 0] = y
            sheet.pivots[contour, 1] = x
            return True
    return False


@compiled
def _start_first_target(rules, pieces, sheet, margin):
    """Start contour 0 in the middle of the image; tell whether it could."""
    starts, items = pieces.openings
    low, high = 2 * rules.seed_distance, rules.size - 2 * rules.seed_distance
    for _ in range(rules.dash_draws):
        opening = starts[margin] + below(sheet, starts[margin + 1] - starts[margin])
        direction, least_y, least_x, largest_y, largest_x = items[opening]
        y = low - least_y + below(sheet, high - low - (largest_y - least_y))
        x = low - least_x + below(sheet, high - low - (largest_x - least_x))
        if _start(rules, pieces, sheet, 0, y, x, direction):
            return True
    return False


@compiled
def _start_second_target(rules, pieces, sheet, margin):
    """Start contour 1 at a distance from the start of contour 0; tell whether it could."""
    for _ in range(rules.dash_draws):
        direction = pieces.bases[margin] + below(sheet, DEGREES)
        dy, dx = pieces.seeds[below(sheet, DEGREES)]
        y = np.int64(np.rint(sheet.dashes[0, 0, 0] + dy))
        x = np.int64(np.rint(sheet.dashes[0, 0, 1] + dx))
        if _start(rules, pieces, sheet, 1, y, x, direction):
            return True
    return False


@compiled
def _fill_frame(canvas, width):
    """Empty a canvas but for a full frame."""
    canvas[:] = _FULL
    canvas[width : len(canvas) - width, width : len(canvas) - width] = 0


@compiled
def grow_targets(rules, pieces, sheet, margin):
    """Grow both target contours alternately; tell whether neither got stuck.

    A dash enters the mask once the next dash of its contour is placed, so that contours can cross;
    the last dash of contour 0 never enters it.
    """
    # The disk around a pixel reaches the padding from as far away as its radius, the margin.
    _fill_frame(sheet.mask, rules.padding)
    _fill_frame(sheet.crowd, rules.padding + pieces.margins[margin])
    if not _start_first_target(rules, pieces, sheet, margin):
        return False
    if not _start_second_target(rules, pieces, sheet, margin):
        return False
    for dash in range(1, rules.contour_dashes):
        for contour in range(2):
            if not _extend(rules, pieces, sheet, contour, dash):
                return False
    _add_halo(rules, pieces, sheet, sheet.dashes[1, rules.contour_dashes - 1])
    return True


@compiled
def _is_free(rules, pieces, sheet, y, x, direction):
    """Tell whether a distractor may start here: its footprint, where seen, is dark and off the rim.

    It must be seen: without the border quirk, some footprints are not at the border's places.
    """
    starts, items = pieces.footprints
    is_seen = False
    for i in range(starts[direction], starts[direction + 1]):
        row, column = y + items[i, 0], x + items[i, 1]
        if within(rules, row, column, 0):
            if sheet.mask[row, column] >= _DARK or not within(rules, row, column, rules.rim):
                return False
            is_seen = True
    return is_seen


@compiled
def _find_place(rules, pieces, sheet, direction):
    """Draw one of the places (y, x) where a distractor may start; (-1, -1) if there is none."""
    # A few draws usually hit such a place; if they all miss, all places are listed.
    for _ in range(rules.size):
        y, x = below(sheet, rules.size), below(sheet, rules.size)
        if _is_free(rules, pieces, sheet, y, x, direction):
            return y, x
    places = np.empty(rules.size**2, dtype=np.int64)
    count = 0
    for place in range(rules.size**2):
        if _is_free(rules, pieces, sheet, place // rules.size, place % rules.size, direction):
            places[count] = place
            count += 1
    if count == 0:
        return -1, -1
    place = places[below(sheet, count)]
    return place // rules.size, place % rules.size


@compiled
def _start_distractor(rules, pieces, sheet, margin, contour):
    """Start a distractor where there is room; tell whether it could."""
    for _ in range(rules.dash_draws):
        direction = pieces.bases[margin] + below(sheet, DEGREES)
        if not pieces.usable[direction]:
            return False
        if (sheet.mask < _DARK).sum() < _LEAST_DARK * rules.size**2:
            return False
        y, x = _find_place(rules, pieces, sheet, direction)
        if y < 0:
            return False
        if _start(rules, pieces, sheet, contour, y, x, direction):
            return True
    return False


@compiled
def grow_distractor(rules, pieces, sheet, margin, contour):
    """Grow a distractor from one start; tell whether it was completed, else restore the mask."""
    if not _start_distractor(rules, pieces, sheet, margin, contour):
        return False
    sheet.spare[0], sheet.spare[1] = sheet.mask, sheet.crowd
    for dash in range(1, rules.distractor_dashes):
        if not _extend(rules, pieces, sheet, contour, dash):
            sheet.mask[:], sheet.crowd[:] = sheet.spare[0], sheet.spare[1]
            return False
    _add_halo(rules, pieces, sheet, sheet.dashes[contour, rules.distractor_dashes - 1])
    return True
