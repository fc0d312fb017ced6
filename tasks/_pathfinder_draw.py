"""Drawing of Pathfinder images, each a function of the law, a seed and its index alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from tasks._pathfinder_law import Law
from tasks._pathfinder_stamps import DEGREES, stamps

FACTS = 5
"""Columns of facts: y and x of the first marker, y and x of the second, distractors drawn."""

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTOR_1 = np.uint64(0xBF58476D1CE4E5B9)
_FACTOR_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_27, _SHIFT_30, _SHIFT_31, _SHIFT_11, _SHIFT_32 = map(np.uint64, (27, 30, 31, 11, 32))

_CROWDED = 459
"""Two halos, of 255 at most each, may not add up to this anywhere."""


class _Rules(NamedTuple):
    """The numbers of a law that the kernels need."""

    size: int
    contour_dashes: int
    distractor_dashes: int
    distractors: int
    center: int
    """Distance from the border to the box of the first target contour's start."""
    padding: int
    dash_draws: int
    distractor_draws: int
    target_contrast: float
    distractor_contrast: float
    border_quirk: bool


class _Sheet(NamedTuple):
    """What is known of the image at hand."""

    words: np.ndarray
    """(2,) uint64: the image's key, the random words drawn so far."""
    mask: np.ndarray
    """(size, size) uint8, halos of the dashes."""
    spare: np.ndarray
    """(size, size) uint8, the mask before the contour at hand."""
    dashes: np.ndarray
    """(2 + distractors, contour_dashes, 3) int64: y and x of the tail, direction."""
    sums: np.ndarray
    """(directions,) float64, weights of the turns at hand, added up."""
    light: np.ndarray
    """(size, size) float64, the image before it is stretched."""


@dataclass(frozen=True)
class Trace:
    """What one image consists of; a dash is (y, x) of its tail and (y, x) of its head."""

    targets: np.ndarray
    """(2, contour_dashes, 4) int64."""
    distractors: np.ndarray
    """(drawn, distractor_dashes, 4) int64."""
    markers: np.ndarray
    """(2, 2) int64, (y, x) of the centres."""
    label: int


def draw(
    law: Law,
    seed: int,
    first: int,
    images: np.ndarray,
    labels: np.ndarray,
    facts: np.ndarray | None = None,
) -> None:
    """Draw the images first, first + 1, ... of a seed; lets go of the interpreter meanwhile.

    Args:
        images: (n, size, size) uint8, filled.
        labels: (n,) uint8, filled: 1 if both markers lie on one contour.
        facts: (n, FACTS) int64, filled.
    Raises: ValueError if the shapes do not match.
    """
    count = len(labels)
    if images.shape != (count, law.size, law.size):
        raise ValueError(f"{count} labels, but images of shape {images.shape} for {law}")
    if facts is None:
        facts = np.empty((count, FACTS), dtype=np.int64)
    elif facts.shape != (count, FACTS):
        raise ValueError(f"{count} labels, but facts of shape {facts.shape}")
    _draw_images(_rules(law), stamps(law), _sheet(law), _key(seed), first, images, labels, facts)


def trace(law: Law, seed: int, index: int) -> Trace:
    """Tell what an image consists of."""
    pieces, sheet = stamps(law), _sheet(law)
    image = np.empty((law.size, law.size), dtype=np.uint8)
    facts = np.empty(FACTS, dtype=np.int64)
    label = _draw_image(_rules(law), pieces, sheet, _key(seed), index, image, facts)
    tails, direction = sheet.dashes[..., :2], sheet.dashes[..., 2]
    heads = np.ceil(tails + pieces.vectors[direction, 0]).astype(np.int64)
    dashes = np.concatenate([tails, heads], axis=-1)
    return Trace(
        targets=dashes[:2],
        distractors=dashes[2 : 2 + facts[4], : law.distractor_dashes],
        markers=facts[:4].reshape(2, 2),
        label=int(label),
    )


def _rules(law: Law) -> _Rules:
    return _Rules(
        size=law.size,
        contour_dashes=law.contour_dashes,
        distractor_dashes=law.distractor_dashes,
        distractors=law.distractors,
        center=2 * law.seed_distance,
        padding=law.padding,
        dash_draws=law.dash_draws,
        distractor_draws=law.distractor_draws,
        target_contrast=law.target_contrast,
        distractor_contrast=law.distractor_contrast,
        border_quirk=law.border_quirk,
    )


def _sheet(law: Law) -> _Sheet:
    square = (law.size, law.size)
    return _Sheet(
        words=np.zeros(2, dtype=np.uint64),
        mask=np.zeros(square, dtype=np.uint8),
        spare=np.zeros(square, dtype=np.uint8),
        dashes=np.zeros((2 + law.distractors, law.contour_dashes, 3), dtype=np.int64),
        sums=np.zeros(DEGREES, dtype=np.float64),
        light=np.zeros(square, dtype=np.float64),
    )


def _key(seed: int) -> np.uint64:
    return np.uint64(seed)


@njit(nogil=True, cache=True)
def _mix(word):
    """Scatter a word of 64 bits one to one: the finalizer of splitmix64 (Steele et al., 2014)."""
    word = (word ^ (word >> _SHIFT_30)) * _FACTOR_1
    word = (word ^ (word >> _SHIFT_27)) * _FACTOR_2
    return word ^ (word >> _SHIFT_31)


@njit(nogil=True, cache=True)
def _word(words):
    words[1] += np.uint64(1)
    return _mix(words[0] + words[1] * _STEP)


@njit(nogil=True, cache=True)
def _below(words, count):
    """Draw an integer from 0 to count - 1, uniform to within count / 2**32."""
    return np.int64(((_word(words) >> _SHIFT_32) * np.uint64(count)) >> _SHIFT_32)


@njit(nogil=True, cache=True)
def _uniform(words):
    return np.float64(_word(words) >> _SHIFT_11) * 2.0**-53


@njit(nogil=True, cache=True)
def _move(rules, pieces, y, x, direction, vector):
    """Go from a tail along a vector of its direction, rounding up both coordinates."""
    dy, dx = pieces.vectors[direction, vector]
    return math.ceil(y + dy), math.ceil(x + dx)


@njit(nogil=True, cache=True)
def _has_room(rules, pieces, mask, y, x, direction):
    """Tell whether a dash's halo keeps off all others."""
    halos = pieces.halos
    for i in range(halos.starts[direction], halos.starts[direction + 1]):
        row, column = y + halos.items[i, 0], x + halos.items[i, 1]
        inside = 0 <= row < rules.size and 0 <= column < rules.size
        if inside and mask[row, column] + halos.items[i, 2] >= _CROWDED:
            return False
    return True


@njit(nogil=True, cache=True)
def _add_halo(rules, pieces, mask, y, x, direction):
    halos = pieces.halos
    for i in range(halos.starts[direction], halos.starts[direction + 1]):
        row, column = y + halos.items[i, 0], x + halos.items[i, 1]
        if 0 <= row < rules.size and 0 <= column < rules.size:
            mask[row, column] = max(mask[row, column], halos.items[i, 2])


@njit(nogil=True, cache=True)
def _crowd(rules, pieces, mask, margin, y, x):
    """Find the largest value of the mask in a disk with the margin for radius."""
    crowd = 0
    disks = pieces.disks
    for i in range(disks.starts[margin], disks.starts[margin + 1]):
        row, column = y + disks.items[i, 0], x + disks.items[i, 1]
        if 0 <= row < rules.size and 0 <= column < rules.size:
            crowd = max(crowd, mask[row, column])
    return crowd


@njit(nogil=True, cache=True)
def _extend(rules, pieces, sheet, margin, contour, dash):
    """Add a dash to a contour, and the halo of the dash before to the mask, if there is room."""
    last_y, last_x, last = sheet.dashes[contour, dash - 1]
    y, x = _move(rules, pieces, last_y, last_x, last, 1)
    if PIVOT_IN and not (0 <= y < rules.size and 0 <= x < rules.size):
        return False
    turns = pieces.turns
    first, end = turns.starts[last], turns.starts[last + 1]
    total = 0.0
    for turn in range(first, end):
        row, column = y + turns.items[turn, 1], x + turns.items[turn, 2]
        if 0 <= row < rules.size and 0 <= column < rules.size:
            crowd = _crowd(rules, pieces, sheet.mask, margin, row, column)
            total += pieces.turn_weights[turn] * (255 - crowd)
        sheet.sums[turn - first] = total
    if total <= 0.0:
        return False
    for _ in range(rules.dash_draws):
        drawn = total * _uniform(sheet.words)
        turn = 0
        while sheet.sums[turn] <= drawn and turn < end - first - 1:
            turn += 1
        direction = turns.items[first + turn, 0]
        if _has_room(rules, pieces, sheet.mask, y, x, direction):
            _add_halo(rules, pieces, sheet.mask, last_y, last_x, last)
            sheet.dashes[contour, dash, 0] = y
            sheet.dashes[contour, dash, 1] = x
            sheet.dashes[contour, dash, 2] = direction
            return True
    return False


@njit(nogil=True, cache=True)
def _draw_targets(rules, pieces, sheet, margin):
    """Draw both target contours, dash by dash in turns, unless one gets stuck."""
    sheet.mask[:] = 0
    degrees, footprints, words = pieces.degrees, pieces.footprints, sheet.words
    count = degrees.starts[margin + 1] - degrees.starts[margin]
    direction = degrees.items[degrees.starts[margin] + _below(words, count), 0]
    for axis in range(2):
        low, high = 0, 0
        start = True
        for i in range(footprints.starts[direction], footprints.starts[direction + 1]):
            v = footprints.items[i, axis]
            if start or v < low:
                low = v
            if start or v > high:
                high = v
            start = False
        room = rules.size - 2 * rules.center - (high - low)
        if room <= 0:
            return False
        sheet.dashes[0, 0, axis] = rules.center - low + _below(words, room)
    sheet.dashes[0, 0, 2] = direction
    away = pieces.margins[margin] + _below(words, DEGREES)
    y, x = _move(rules, pieces, sheet.dashes[0, 0, 0], sheet.dashes[0, 0, 1], away, 2)
    low, high = rules.padding, rules.size - rules.padding
    if not (low <= y < high and low <= x < high):
        return False
    sheet.dashes[1, 0, 0], sheet.dashes[1, 0, 1] = y, x
    sheet.dashes[1, 0, 2] = pieces.margins[margin] + _below(words, DEGREES)
    for dash in range(1, rules.contour_dashes):
        for contour in range(2):
            if not _extend(rules, pieces, sheet, margin, contour, dash):
                return False
    if LAST1:
        y, x, direction = sheet.dashes[1, rules.contour_dashes - 1]
        _add_halo(rules, pieces, sheet.mask, y, x, direction)
    if LAST0:
        y, x, direction = sheet.dashes[0, rules.contour_dashes - 1]
        _add_halo(rules, pieces, sheet.mask, y, x, direction)
    return True


@njit(nogil=True, cache=True)
def _is_free(rules, pieces, mask, y, x, direction):
    footprints = pieces.footprints
    seen = False
    for i in range(footprints.starts[direction], footprints.starts[direction + 1]):
        row, column = y + footprints.items[i, 0], x + footprints.items[i, 1]
        if 0 <= row < rules.size and 0 <= column < rules.size:
            if mask[row, column] > FREE:
                return False
            seen = True
    return seen


@njit(nogil=True, cache=True)
def _find_place(rules, pieces, sheet, direction):
    """Draw one of the places where a distractor's first dash is free, or return (-1, -1)."""
    side = rules.size - 2 * RIM
    # Mostly a few draws find one; if many do not, all are listed.
    for _ in range(rules.size):
        y, x = RIM + _below(sheet.words, side), RIM + _below(sheet.words, side)
        if _is_free(rules, pieces, sheet.mask, y, x, direction):
            return y, x
    count = 0
    for y in range(RIM, rules.size - RIM):
        for x in range(RIM, rules.size - RIM):
            count += _is_free(rules, pieces, sheet.mask, y, x, direction)
    if count == 0:
        return -1, -1
    left = _below(sheet.words, count)
    for y in range(RIM, rules.size - RIM):
        for x in range(RIM, rules.size - RIM):
            if _is_free(rules, pieces, sheet.mask, y, x, direction):
                if left == 0:
                    return y, x
                left -= 1
    return -1, -1


@njit(nogil=True, cache=True)
def _draw_distractor(rules, pieces, sheet, margin, contour):
    base = pieces.margins[margin]
    direction = base + _below(sheet.words, DEGREES)
    if rules.border_quirk:
        usable = False
        for i in range(pieces.degrees.starts[margin], pieces.degrees.starts[margin + 1]):
            if pieces.degrees.items[i, 0] == direction:
                usable = True
        if not usable:
            return False
    y, x = _find_place(rules, pieces, sheet, direction)
    if y < 0:
        return False
    sheet.dashes[contour, 0, 0] = y
    sheet.dashes[contour, 0, 1] = x
    sheet.dashes[contour, 0, 2] = direction
    sheet.spare[:] = sheet.mask
    for dash in range(1, rules.distractor_dashes):
        if not _extend(rules, pieces, sheet, margin, contour, dash):
            sheet.mask[:] = sheet.spare
            return False
    y, x, direction = sheet.dashes[contour, rules.distractor_dashes - 1]
    if LASTD:
        _add_halo(rules, pieces, sheet.mask, y, x, direction)
    return True


@njit(nogil=True, cache=True)
def _draw_image(rules, pieces, sheet, key, index, image, facts):
    sheet.words[0] = _mix(_mix(key + _STEP) + np.uint64(index) * _STEP)
    sheet.words[1] = 0
    words = sheet.words
    label = _below(words, 2)
    origin = _below(words, 2)
    margin = 0
    while True:
        if MARGIN_AGAIN or words[1] == 2:
            margin = _below(words, len(pieces.margins) - 1)
        if _draw_targets(rules, pieces, sheet, margin):
            break
    drawn = 0
    for _ in range(rules.distractors):
        for _ in range(rules.distractor_draws):
            if _draw_distractor(rules, pieces, sheet, margin, 2 + drawn):
                drawn += 1
                break
    y, x, _ = sheet.dashes[origin, 0]
    facts[0], facts[1] = y, x
    end = origin if label else 1 - origin
    y, x, direction = sheet.dashes[end, rules.contour_dashes - 1]
    y, x = _move(rules, pieces, y, x, direction, 0)
    facts[2], facts[3] = y, x
    facts[4] = drawn
    light = sheet.light
    light[:] = 0
    for contour in range(2 + drawn):
        target = contour < 2
        contrast = rules.target_contrast if target else rules.distractor_contrast
        count = rules.contour_dashes if target else rules.distractor_dashes
        for dash in range(count):
            y, x, direction = sheet.dashes[contour, dash]
            lines = pieces.lines
            for i in range(lines.starts[direction], lines.starts[direction + 1]):
                row, column = y + lines.items[i, 0], x + lines.items[i, 1]
                if 0 <= row < rules.size and 0 <= column < rules.size:
                    light[row, column] = max(light[row, column], contrast * lines.items[i, 2])
    if MARK:
        for m in range(2):
            _draw_marker(rules, pieces, light, facts[2 * m], facts[2 * m + 1])
    peak = light.max()
    for row in range(rules.size):
        for column in range(rules.size):
            image[row, column] = np.uint8(light[row, column] * (255 / peak) + 0.5)
    return label


@njit(nogil=True, cache=True)
def _draw_marker(rules, pieces, light, y, x):
    side = len(pieces.markers)
    half = side // 2
    top = min(max(y - half, 0), rules.size - side)
    left = min(max(x - half, 0), rules.size - side)
    yy = min(max(y - top, 0), side - 1)
    xx = min(max(x - left, 0), side - 1)
    for i in range(side):
        for j in range(side):
            light[top + i, left + j] = max(light[top + i, left + j], pieces.markers[yy, xx, i, j])


@njit(nogil=True, cache=True)
def _draw_images(rules, pieces, sheet, key, first, images, labels, facts):
    for i in range(len(labels)):
        labels[i] = _draw_image(rules, pieces, sheet, key, first + i, images[i], facts[i])
