"""Generation of Pathfinder images on all cores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from common.progress import progress
from common.threads import core_count
from tasks.pathfinder.draw import draw_images
from tasks.pathfinder.law import Law
from tasks.preparation import Build

PIXELS_A_CHUNK = 2**20
"""Pixels that a thread draws at a time."""


def generate(made: Build, law: Law, seed: int, count: int, workers: int | None = None) -> None:
    """Draw the images 0 ... count - 1; they depend only on law and seed.

    Saves images (count, size * size, 1) uint8, labels (count,) uint8 and rows (count,) int64, with
    any number of threads, by default one a core.
    """
    images = made.mapped("images", (count, law.size**2, 1), np.uint8)
    labels = made.mapped("labels", (count,), np.uint8)
    squares = images.reshape(count, law.size, law.size)
    step = max(1, PIXELS_A_CHUNK // law.size**2)

    def draw_chunk(start: int) -> None:
        rows = slice(start, start + step)
        draw_images(law, seed, start, squares[rows], labels[rows])

    draw_images(law, seed, 0, squares[:0], labels[:0])  # compiled here, where an interrupt ends it
    starts = range(0, count, step)
    title = f"drawing Pathfinder {law.size} x {law.size}"
    with ThreadPoolExecutor(workers or core_count()) as pool:
        chunks = pool.map(draw_chunk, starts)
        for _ in progress(title, chunks, total=len(starts), unit="chunks"):
            pass
    made.save("rows", np.arange(count))
