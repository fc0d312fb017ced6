"""Drawing of Pathfinder's images, on all cores, which resumes where it was interrupted.

Each image depends only on the law, a seed and the image's index.
"""

# ruff: noqa: PLR0917 - compiled functions take their arguments by position
import logging
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np

from lra.common.progress import progress
from lra.common.threads import core_count
from lra.tasks.pathfinder.compiled import compiled
from lra.tasks.pathfinder.contours import grow_distractor, grow_targets
from lra.tasks.pathfinder.drawing_state import draw_integer, is_inside, start_drawing, start_image
from lra.tasks.pathfinder.files import map_in_place
from lra.tasks.pathfinder.law import Law
from lra.tasks.pathfinder.primitives import draw_primitives
from lra.tasks.preparation import Build

logger = logging.getLogger(__name__)

_FULL = 255
LAYOUT_COLUMNS = 5
"""Columns of a layout: y and x of the first marker, y and x of the second, distractors drawn."""

PIXELS_A_CHUNK = 2**20
"""Pixels that a thread draws at a time."""
CHUNKS_A_MARK = 32
"""Chunks after which the finished ones are marked as on disk; an interruption loses no more."""


def generate(made: Build, law: Law, seed: int, count: int, workers: int | None = None) -> None:
    """Draw the images 0 ... count - 1; they depend only on law and seed.

    Saves images (count, size * size, 1) uint8, labels (count,) uint8 and rows (count,) int64, with
    any number of threads, by default one a core.
    """
    images = map_in_place(made.folder, "images", (count, law.size**2, 1), np.uint8)
    labels = map_in_place(made.folder, "labels", (count,), np.uint8)
    step = max(1, PIXELS_A_CHUNK // law.size**2)
    is_done = map_in_place(made.folder, "is_done", (-(-count // step),), np.uint8)
    squares = images.reshape(count, law.size, law.size)

    def draw_chunk(chunk: int) -> int:
        rows = slice(chunk * step, min(count, (chunk + 1) * step))
        draw_images(law, seed, rows.start, squares[rows], labels[rows])
        return chunk

    todo = np.flatnonzero(is_done == 0).tolist()
    if len(todo) < len(is_done):
        logger.info(f"going on after {len(is_done) - len(todo)} of {len(is_done)} chunks")
    draw_images(law, seed, 0, squares[:0], labels[:0])  # compiled here, where an interrupt ends it
    with ThreadPoolExecutor(workers or core_count()) as pool:
        waiting = [pool.submit(draw_chunk, chunk) for chunk in todo]
        title, finished = f"drawing Pathfinder {law.size} x {law.size}", as_completed(waiting)
        try:
            drawn: list[int] = []
            for future in progress(title, finished, total=len(waiting), unit="chunks"):
                drawn.append(future.result())
                if len(drawn) >= CHUNKS_A_MARK:
                    images.flush()
                    labels.flush()
                    is_done[drawn] = 1
                    drawn.clear()
        finally:
            for future in waiting:
                future.cancel()
    del is_done
    made.drop("is_done")
    made.save("rows", np.arange(count))


def draw_images(
    law: Law,
    seed: int,
    first: int,
    images: np.ndarray,
    labels: np.ndarray,
    layouts: np.ndarray | None = None,
) -> np.ndarray:
    """Draw the images first, first + 1, ... of a seed, without the interpreter's lock.

    Fills images (n, size, size) uint8, labels (n,) uint8, which are 1 if both markers lie on one
    contour, and layouts (n, LAYOUT_COLUMNS) int64.

    Returns: the dashes of the last image, see `DrawingState`.
    """
    if layouts is None:
        layouts = np.empty((len(labels), LAYOUT_COLUMNS), dtype=np.int64)
    numbers, state = start_drawing(law)
    primitives = draw_primitives(law)
    _draw_images(numbers, primitives, state, np.uint64(seed), first, images, labels, layouts)
    return state.dashes


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
    paint_marker(law, primitives, brightness, layout[0], layout[1])
    paint_marker(law, primitives, brightness, layout[2], layout[3])


@compiled
def paint_marker(law, primitives, brightness, y, x):
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
