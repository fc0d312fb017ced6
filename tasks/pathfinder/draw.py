"""Drawing of Pathfinder's images: each depends only on the law, a seed and the image's index."""

# ruff: noqa: PLR0917 - compiled functions take their arguments by position
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.pathfinder.compiled import compiled
from tasks.pathfinder.contours import grow_distractor, grow_targets
from tasks.pathfinder.drawing_state import (
    create_state,
    draw_integer,
    is_inside,
    select_numbers,
    start_image,
)
from tasks.pathfinder.law import Law
from tasks.pathfinder.primitives import TAIL_TO_HEAD, draw_primitives

_FULL = 255
LAYOUT_COLUMNS = 5
"""Columns of a layout: y and x of the first marker, y and x of the second, distractors drawn."""


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


def draw_images(
    law: Law,
    seed: int,
    first: int,
    images: np.ndarray,
    labels: np.ndarray,
    layouts: np.ndarray | None = None,
) -> None:
    """Draw the images first, first + 1, ... of a seed, without the interpreter's lock.

    Args:
        law: law of the images.
        seed: seed of the random numbers.
        first: index of the first image.
        images: (n, size, size) uint8, to be filled.
        labels: (n,) uint8, to be filled: 1 if both markers lie on one contour.
        layouts: (n, LAYOUT_COLUMNS) int64, to be filled.
    Raises: ValueError if the shapes or types do not match.
    """
    count = len(labels)
    if layouts is None:
        layouts = np.empty((count, LAYOUT_COLUMNS), dtype=np.int64)
    expected = {
        "images": (images, (count, law.size, law.size), np.uint8),
        "labels": (labels, (count,), np.uint8),
        "layouts": (layouts, (count, LAYOUT_COLUMNS), np.int64),
    }
    for name, (array, shape, kind) in expected.items():
        if array.shape != shape or array.dtype != kind or not array.flags.c_contiguous:
            raise ValueError(
                f"{name} is {array.dtype} {array.shape}, expected contiguous "
                f"{np.dtype(kind)} {shape}"
            )
    _draw_images(
        select_numbers(law),
        draw_primitives(law),
        create_state(law),
        np.uint64(seed),
        first,
        images,
        labels,
        layouts,
    )


def trace(law: Law, seed: int, index: int) -> Trace:
    """Draw one image and return its contours and markers."""
    primitives, state = draw_primitives(law), create_state(law)
    images = np.empty((1, law.size, law.size), dtype=np.uint8)
    labels = np.empty(1, dtype=np.uint8)
    layouts = np.empty((1, LAYOUT_COLUMNS), dtype=np.int64)
    _draw_images(
        select_numbers(law), primitives, state, np.uint64(seed), index, images, labels, layouts
    )
    anchors, vectors = state.dashes[..., :2], primitives.vectors[state.dashes[..., 2], TAIL_TO_HEAD]
    dashes = np.concatenate([anchors - vectors, anchors], axis=-1)
    dashes[:, 0] = np.concatenate([anchors, anchors + vectors], axis=-1)[:, 0]
    dashes = np.ceil(dashes).astype(np.int64)
    return Trace(
        targets=dashes[:2],
        tips=np.stack([dashes[:2, 0, :2], dashes[:2, -1, 2:]], axis=1),
        distractors=dashes[2 : 2 + layouts[0, 4], : law.distractor_dashes],
        markers=layouts[0, :4].reshape(2, 2),
        label=int(labels[0]),
    )


@compiled
def _draw_images(law, primitives, state, seed, first, images, labels, layouts):
    for i in range(len(labels)):
        start_image(state, seed, first + i)
        labels[i] = draw_integer(state, 2)
        drawn = _grow_contours(law, primitives, state, labels[i], layouts[i])
        _paint_image(law, primitives, state, drawn, layouts[i])
        _stretch_contrast(state.brightness, images[i])


@compiled
def _grow_contours(law, primitives, state, label, layout):
    """Grow all contours and pick the tips to mark; return the number of contours.

    A tip is the tail of a first dash or the far end of a last one: the point it is drawn from.
    """
    start = draw_integer(state, 2)
    end = start if label else 1 - start
    margin = draw_integer(state, len(primitives.margins))
    while not grow_targets(law, primitives, state, margin):
        pass
    contours = np.int64(2)
    for _ in range(law.distractors):
        for _ in range(law.distractor_draws):
            if grow_distractor(law, primitives, state, margin, contours):
                contours += 1
                break
    layout[0], layout[1], _ = state.dashes[start, 0]
    layout[2], layout[3], _ = state.dashes[end, law.contour_dashes - 1]
    layout[4] = contours - 2
    return contours


@compiled
def _paint_image(law, primitives, state, contours, layout):
    """Draw the contours and the markers; where some overlap, the brightest one counts."""
    brightness = state.brightness
    brightness[:] = 0.0
    starts, items = primitives.dash_pixels
    for contour in range(contours):
        is_target = contour < 2  # noqa: PLR2004
        levels = primitives.brightness[0 if is_target else 1]
        count = law.contour_dashes if is_target else law.distractor_dashes
        for dash in range(count):
            y, x, direction = state.dashes[contour, dash]
            for i in range(starts[direction], starts[direction + 1]):
                row, column = y + items[i, 0], x + items[i, 1]
                if is_inside(law, row, column, 0):
                    brightness[row, column] = max(brightness[row, column], levels[items[i, 2]])
    _paint_marker(law, primitives, brightness, layout[0], layout[1])
    _paint_marker(law, primitives, brightness, layout[2], layout[3])


@compiled
def _paint_marker(law, primitives, brightness, y, x):
    """Draw a marker; near the border, its image is another one, whose canvas stays inside."""
    side = len(primitives.marker_images)
    top = min(max(y - side // 2, 0), law.size - side)
    left = min(max(x - side // 2, 0), law.size - side)
    marker = primitives.marker_images[y - top, x - left]
    for row in range(side):
        for column in range(side):
            old = brightness[top + row, left + column]
            brightness[top + row, left + column] = max(old, marker[row, column] / _FULL)


@compiled
def _stretch_contrast(brightness, image):
    """Scale an image so that its brightest pixel is 255; its darkest pixel is 0 already."""
    scale = _FULL / brightness.max()
    for row in range(len(brightness)):
        for column in range(len(brightness)):
            image[row, column] = np.uint8(brightness[row, column] * scale + 0.5)
