"""Drawing of Pathfinder's images: each depends only on the law, a seed and the image's index."""

# ruff: noqa: PLR0917 - compiled functions take their arguments by position
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.pathfinder.compiled import compiled
from tasks.pathfinder.contours import grow_distractor, grow_targets
from tasks.pathfinder.law import Law
from tasks.pathfinder.sheet import begin, below, rules, sheet, within
from tasks.pathfinder.stamps import ALONG, stamps

_FULL = 255
FACTS = 5
"""Columns of facts: y and x of the first marker, y and x of the second, distractors drawn."""


@dataclass(frozen=True)
class Trace:
    """The contours and markers of one image; a dash is the (y, x) of its tail, then of its head.

    The end that a dash is drawn from is exact; the other is rounded up, as that of a pivot is.
    """

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
    _draw_all(rules(law), stamps(law), sheet(law), np.uint64(seed), first, images, labels, facts)


def trace(law: Law, seed: int, index: int) -> Trace:
    """Draw one image and return its contours and markers."""
    pieces, drawing = stamps(law), sheet(law)
    images = np.empty((1, law.size, law.size), dtype=np.uint8)
    labels = np.empty(1, dtype=np.uint8)
    facts = np.empty((1, FACTS), dtype=np.int64)
    _draw_all(rules(law), pieces, drawing, np.uint64(seed), index, images, labels, facts)
    anchors, vectors = drawing.dashes[..., :2], pieces.vectors[drawing.dashes[..., 2], ALONG]
    dashes = np.concatenate([anchors - vectors, anchors], axis=-1)
    dashes[:, 0] = np.concatenate([anchors, anchors + vectors], axis=-1)[:, 0]
    dashes = np.ceil(dashes).astype(np.int64)
    return Trace(
        targets=dashes[:2],
        tips=np.stack([dashes[:2, 0, :2], dashes[:2, -1, 2:]], axis=1),
        distractors=dashes[2 : 2 + facts[0, 4], : law.distractor_dashes],
        markers=facts[0, :4].reshape(2, 2),
        label=int(labels[0]),
    )


@compiled
def _draw_all(rules, pieces, sheet, seed, first, images, labels, facts):
    for i in range(len(labels)):
        begin(sheet, seed, first + i)
        labels[i] = below(sheet, 2)
        drawn = _grow_contours(rules, pieces, sheet, labels[i], facts[i])
        _compose(rules, pieces, sheet, drawn, facts[i])
        _stretch(sheet.light, images[i])


@compiled
def _grow_contours(rules, pieces, sheet, label, facts):
    """Grow all contours and pick the tips to mark; return the number of contours.

    A tip is the tail of a first dash or the far end of a last one: the point it is drawn from.
    """
    start = below(sheet, 2)
    end = start if label else 1 - start
    margin = below(sheet, len(pieces.margins))
    while not grow_targets(rules, pieces, sheet, margin):
        pass
    contours = 2
    for _ in range(rules.distractors):
        for _ in range(rules.distractor_draws):
            if grow_distractor(rules, pieces, sheet, margin, contours):
                contours += 1
                break
    facts[:2] = sheet.dashes[start, 0, :2]
    facts[2:4] = sheet.dashes[end, rules.contour_dashes - 1, :2]
    facts[4] = contours - 2
    return contours


@compiled
def _compose(rules, pieces, sheet, contours, facts):
    """Draw the contours and the markers; where some overlap, the brightest one counts."""
    light = sheet.light
    light[:] = 0.0
    starts, items = pieces.lines
    for contour in range(contours):
        is_target = contour < 2  # noqa: PLR2004
        levels = pieces.light[0 if is_target else 1]
        count = rules.contour_dashes if is_target else rules.distractor_dashes
        for dash in range(count):
            y, x, direction = sheet.dashes[contour, dash]
            for i in range(starts[direction], starts[direction + 1]):
                row, column = y + items[i, 0], x + items[i, 1]
                if within(rules, row, column, 0):
                    light[row, column] = max(light[row, column], levels[items[i, 2]])
    _compose_marker(rules, pieces, light, facts[0], facts[1])
    _compose_marker(rules, pieces, light, facts[2], facts[3])


@compiled
def _compose_marker(rules, pieces, light, y, x):
    """Draw a marker; near the border, its stamp is another one, whose canvas stays inside."""
    side = len(pieces.markers)
    top = min(max(y - side // 2, 0), rules.size - side)
    left = min(max(x - side // 2, 0), rules.size - side)
    marker = pieces.markers[y - top, x - left]
    for row in range(side):
        for column in range(side):
            old = light[top + row, left + column]
            light[top + row, left + column] = max(old, marker[row, column] / _FULL)


@compiled
def _stretch(light, image):
    """Scale an image so that its brightest pixel is 255; its darkest pixel is 0 already."""
    scale = _FULL / light.max()
    for row in range(len(light)):
        for column in range(len(light)):
            image[row, column] = np.uint8(light[row, column] * scale + 0.5)
