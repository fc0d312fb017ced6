"""Where Pathfinder's two markers are: the brightest disks of an image."""

import numpy as np

from lra.tasks.pathfinder.compiled import compiled

BRIGHT = 128
"""Grey level that the centre of a marker exceeds."""


def find_markers(images: np.ndarray, size: int, radius: float) -> np.ndarray:
    """Find the two disks with the most light that do not overlap.

    Returns: (n, 4) float32: y and x of the upper marker of each image, then of the lower one.
    """
    reach = int(radius)
    steps = np.arange(-reach, reach + 1)
    dy, dx = np.nonzero(steps[:, None] ** 2 + steps**2 <= radius**2)
    markers = np.zeros((len(images), 4), dtype=np.float32)
    _fill_markers(images.reshape(-1, size, size), dy - reach, dx - reach, 2 * reach + 1, markers)
    return markers


@compiled
def _fill_markers(images, dy, dx, least_distance, markers):
    """Fill markers (n, 4); dy and dx (pixels of a disk,) are offsets from its centre."""
    size = images.shape[1]
    brightness = np.zeros((size, size), np.int64)
    for i in range(len(images)):
        image = images[i]
        for y in range(size):
            for x in range(size):
                brightness[y, x] = 0
                if image[y, x] > BRIGHT:
                    for k in range(len(dy)):
                        v, u = y + dy[k], x + dx[k]
                        if 0 <= v < size and 0 <= u < size:
                            brightness[y, x] += image[v, u]
        first = np.argmax(brightness)
        y, x = first // size, first % size
        brightness[
            max(0, y - least_distance + 1) : y + least_distance,
            max(0, x - least_distance + 1) : x + least_distance,
        ] = 0
        second = np.argmax(brightness)
        upper, lower = min(first, second), max(first, second)
        markers[i, 0], markers[i, 1] = upper // size, upper % size
        markers[i, 2], markers[i, 3] = lower // size, lower % size
