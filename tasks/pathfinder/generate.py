"""Generation of Pathfinder images on all cores, which resumes where it was interrupted."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np

from common.progress import progress
from common.threads import core_count
from tasks.pathfinder.draw import draw_images
from tasks.pathfinder.law import Law
from tasks.preparation import Build

logger = logging.getLogger(__name__)

PIXELS_A_CHUNK = 2**20
"""Pixels that a thread draws at a time."""
CHUNKS_A_MARK = 32
"""Chunks after which the finished ones are marked as on disk; an interruption loses no more."""


def generate(made: Build, law: Law, seed: int, count: int, workers: int | None = None) -> None:
    """Draw the images 0 ... count - 1; they depend only on law and seed.

    Saves images (count, size * size, 1) uint8, labels (count,) uint8 and rows (count,) int64, with
    any number of threads, by default one a core.
    """
    images = made.mapped("images", (count, law.size**2, 1), np.uint8)
    labels = made.mapped("labels", (count,), np.uint8)
    step = max(1, PIXELS_A_CHUNK // law.size**2)
    is_done = made.mapped("is_done", (-(-count // step),), np.uint8)
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
