"""How files in the official file structure differ from the official images of Pathfinder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from tasks.pathfinder.format import Listing
from tasks.pathfinder.law import law
from tasks.sources.exports import SEEDS_TRIED

OFFICIAL_COUNT = 200_000
"""Images of a size and a level."""

LAWS = {"lra": True, "clean": False}
"""Names of our laws, and whether each has the border quirk."""

IMAGES_TRIED = 3
"""First images of a seed of ours that are looked for among those read."""


def difference(
    listing: Listing, images: np.ndarray, labels: np.ndarray, size: int, contour: int
) -> str:
    """Say what images have in another way than the official ones; empty if nothing.

    Args:
        listing: what the metadata says.
        images: (n, size * size, 1) uint8.
        labels: (n,) 0 or 1.
        size: rows and columns of an image.
        contour: dashes that target contours should have.
    """
    if len(listing) != OFFICIAL_COUNT:
        return f"it lists {len(listing):,} images, the release {OFFICIAL_COUNT:,}"
    if listing.contours - {str(contour)}:
        dashes = ", ".join(sorted(listing.contours))
        return f"its metadata says that contours have {dashes} dashes, expected {contour}"
    if labels.min() == labels.max():
        return f"all its labels are {labels[0]}"
    return _drawn_by_us(images, labels, size, contour)


def _drawn_by_us(images: np.ndarray, labels: np.ndarray, size: int, contour: int) -> str:
    """Name the seed with which our generator draws one of these images; empty if there is none."""
    from tasks.pathfinder.draw import draw

    known = set(_digests(images, labels))
    ours = np.empty((IMAGES_TRIED, size, size), dtype=np.uint8)
    our_labels = np.empty(IMAGES_TRIED, dtype=np.uint8)
    for name, border_quirk in LAWS.items():
        for seed in range(SEEDS_TRIED):
            draw(law(size, contour, border_quirk=border_quirk), seed, 0, ours, our_labels)
            if not known.isdisjoint(_digests(ours, our_labels)):
                return f"it holds what this suite draws with task.data_seed={seed}, task.law={name}"
    return ""


def _digests(images: np.ndarray, labels: np.ndarray) -> Iterator[bytes]:
    for image, label in zip(images, labels.tolist(), strict=True):
        yield hashlib.blake2b(image.tobytes() + bytes([label]), digest_size=16).digest()
