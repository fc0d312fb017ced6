"""How files in the official file structure differ from the official images of Pathfinder."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import numpy as np

from tasks.pathfinder.format import Listing
from tasks.pathfinder.law import find_law
from tasks.sources.exports import SEEDS_TRIED

OFFICIAL_COUNT = 200_000
"""Images of a size and a level."""

LAWS = {"lra": True, "clean": False}
"""Names of our laws, and whether each has the border quirk."""

IMAGES_TRIED = 3
"""First images of a seed of ours that are looked for among those read."""

LEAST_GAIN = 0.02
"""Share of labels by which predictions from the places of the markers must be better than always
answering the commonest label. On 200,000 generated images the gain is .17 at 32 pixels and .07 at
128 (14 dashes); without any dependence it is 0, give or take .003."""

LARGEST_CHECKED = 128
"""Largest size at which labels are compared with markers; at 256 the gain was never measured."""


def describe_difference(
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
    return _find_own_images(images, labels, size, contour)


def describe_unrelated_labels(labels: np.ndarray, predictions: np.ndarray, size: int) -> str:
    """Say that labels do not depend on where the markers are; empty if they do.

    On the official images they do: the two tips of one contour lie otherwise than those of two. A
    set whose labels belong to other images is known by that. Four standard deviations of chance
    are allowed for, so that few images raise no alarm.

    Args:
        labels: (n,) 0 or 1.
        predictions: (n,) labels as predicted from the places of the markers alone.
        size: rows and columns of an image.
    """
    right, ones = float(np.mean(labels == predictions)), float(np.mean(labels))
    commonest = max(ones, 1 - ones)
    is_better = right - commonest > LEAST_GAIN - 2 / math.sqrt(len(labels))
    if is_better or size > LARGEST_CHECKED:
        return ""
    return (
        f"its labels do not belong to its images: from the places of the markers {right:.1%} of "
        f"them are predicted, by always answering the commonest one {commonest:.1%}"
    )


def _find_own_images(images: np.ndarray, labels: np.ndarray, size: int, contour: int) -> str:
    """Name the seed with which our generator draws one of these images; empty if there is none."""
    from tasks.pathfinder.draw import draw_images

    known = set(_digests(images, labels))
    ours = np.empty((IMAGES_TRIED, size, size), dtype=np.uint8)
    our_labels = np.empty(IMAGES_TRIED, dtype=np.uint8)
    for name, border_quirk in LAWS.items():
        for seed in range(SEEDS_TRIED):
            draw_images(
                find_law(size, contour, border_quirk=border_quirk), seed, 0, ours, our_labels
            )
            if not known.isdisjoint(_digests(ours, our_labels)):
                return f"it holds what this suite draws with task.data_seed={seed}, task.law={name}"
    return ""


def _digests(images: np.ndarray, labels: np.ndarray) -> Iterator[bytes]:
    for image, label in zip(images, labels.tolist(), strict=True):
        yield hashlib.blake2b(image.tobytes() + bytes([label]), digest_size=16).digest()
