"""Drawing of Pathfinder's images: each depends only on the law, a seed and the image's index."""

# ruff: noqa: PLR0917 - compiled functions take their arguments by position
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from tasks.pathfinder.grow import (
    begin,
    below,
    grow_distractor,
    grow_targets,
    move,
    rules,
    sheet,
    within,
)
from tasks.pathfinder.law import Law
from tasks.pathfinder.stamps import FIRST_TIP, HEAD, LAST_TIP, stamps

FACTS = 5
"""Columns of facts: y and x of the first marker, y and x of the second, distractors drawn."""


@dataclass(frozen=True)
class Trace:
    """The contours and markers of one image; a dash is the (y, x) of its tail, then of its head."""

    targets: np.ndarray
    """(2, contour_dashes, 4) int64."""
    tips: np.ndarray
    """(2, 2, 2) int64: for both target contours, (y, x) of the first and of the last tip."""
    distractors: np.ndarray
    """(drawn, distractor_dashes, 4) int64."""
    markers: np.ndarray
    """(2, 2) int64: (y, x) of both markers' centres."""
    label: int


def draw(
    law: Law,
    seed: int,
    first: int,
    images: np.ndarray,
    labels: np.ndarray,
    facts: np.ndarray | None = None,
) -> None:
    """Draw the images first, first + 1, ... of a seed, without the interpreter's lock.

    Args:
        law: law of the images.
        seed: seed of the random numbers.
        first: index of the first image.
        images: (n, size, size) uint8, to be filled.
        labels: (n,) uint8, to be filled: 1 if both markers lie on one contour.
        facts: (n, FACTS) int64, to be filled.
    Raises: ValueError if the shapes or types do not match.
    """
    count = len(labels)
    if facts is None:
        facts = np.empty((count, FACTS), dtype=np.int64)
    expected = {
        "images": (images, (count, law.size, law.size), np.uint8),
        "labels": (labels, (count,), np.uint8),
        "facts": (facts, (count, FACTS), np.int64),
    }
    for name, (array, shape, kind) in expected.items():
        if array.shape != shape or array.dtype != kind or not array.flags.c_contiguous:
            raise ValueError(
                f"{name} is {array.dtype} {array.shape}, expected contiguous "
                f"{np.dtype(kind)} {shape}"
            )
    _draw_images(rules(law), stamps(law), sheet(law), np.uint64(seed), first, images, labels, facts)


def trace(law: Law, seed: int, index: int) -> Trace:
    """Draw one image and return its contours and markers."""
    pieces, drawing = stamps(law), sheet(law)
    images = np.empty((1, law.size, law.size), dtype=np.uint8)
    labels = np.empty(1, dtype=np.uint8)
    facts = np.empty((1, FACTS), dtype=np.int64)
    _draw_images(rules(law), pieces, drawing, np.uint64(seed), index, images, labels, facts)
    tails, vectors = drawing.dashes[..., :2], pieces.vectors[drawing.dashes[..., 2]]
    ends = np.ceil(tails[:, :, None] + vectors).astype(np.int64)
    dashes = np.concatenate([tails, ends[:, :, HEAD]], axis=-1)
    return Trace(
        targets=dashes[:2],
        tips=np.stack([ends[:2, 0, FIRST_TIP], ends[:2, -1, LAST_TIP]], axis=1),
        distractors=dashes[2 : 2 + facts[0, 4], : law.distractor_dashes],
        markers=facts[0, :4].reshape(2, 2),
        label=int(labels[0]),
    )


@njit(nogil=True, cache=True)
def _draw_images(rules, pieces, sheet, seed, first, images, labels, facts):
    for i in range(len(labels)):
        begin(sheet, seed, first + i)
        labels[i] = below(sheet, 2)
        drawn = _grow(rules, pieces, sheet, labels[i], facts[i])
        _render(rules, pieces, sheet, drawn, facts[i])
        _stretch(sheet.light, images[i])


@njit(nogil=True, cache=True)
def _grow(rules, pieces, sheet, label, facts):
    """Grow all contours and pick the tips to mark; return the number of contours."""
    start = below(sheet, 2)
    end = start if label else 1 - start
    margin = below(sheet, len(pieces.margins) - 1)
    while not grow_targets(rules, pieces, sheet, margin):
        pass
    contours = 2
    for _ in range(rules.distractors):
        for _ in range(rules.distractor_draws):
            if grow_distractor(rules, pieces, sheet, margin, contours):
                contours += 1
                break
    facts[0], facts[1] = move(pieces, sheet.dashes[start, 0], FIRST_TIP)
    facts[2], facts[3] = move(pieces, sheet.dashes[end, rules.contour_dashes - 1], LAST_TIP)
    facts[4] = contours - 2
    return contours


@njit(nogil=True, cache=True)
def _render(rules, pieces, sheet, contours, facts):
    """Draw the contours and the markers; where some overlap, the brightest one counts."""
    light = sheet.light
    light[:] = 0.0
    starts, items = pieces.lines
    for contour in range(contours):
        is_target = contour < 2  # noqa: PLR2004
        contrast = rules.target_contrast if is_target else rules.distractor_contrast
        count = rules.contour_dashes if is_target else rules.distractor_dashes
        for dash in range(count):
            y, x, direction = sheet.dashes[contour, dash]
            for i in range(starts[direction], starts[direction + 1]):
                row, column = y + items[i, 0], x + items[i, 1]
                if within(rules, row, column, 0):
                    light[row, column] = max(light[row, column], contrast * items[i, 2])
    _add_marker(rules, pieces, light, facts[0], facts[1])
    _add_marker(rules, pieces, light, facts[2], facts[3])


@njit(nogil=True, cache=True)
def _add_marker(rules, pieces, light, y, x):
    """Draw a marker; near the border, its stamp is another one, whose canvas stays inside."""
    side = len(pieces.markers)
    top = min(max(y - side // 2, 0), rules.size - side)
    left = min(max(x - side // 2, 0), rules.size - side)
    marker = pieces.markers[y - top, x - left]
    for row in range(side):
        for column in range(side):
            old = light[top + row, left + column]
            light[top + row, left + column] = max(old, marker[row, column])


@njit(nogil=True, cache=True)
def _stretch(light, image):
    """Scale an image so that its brightest pixel is 255; its darkest pixel is 0 already."""
    scale = 255 / light.max()
    for row in range(len(light)):
        for column in range(len(light)):
            image[row, column] = np.uint8(light[row, column] * scale + 0.5)
