"""Whether two sets of Pathfinder images can be told apart, and their statistics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

BRIGHT = 64
"""Grey level above which a pixel belongs to a dash or a marker."""

PATCH = 5
"""Pixels on each side of a marker that its patch reaches."""

RANDOM_PATCHES = 4


@dataclass(frozen=True)
class Sample:
    """Images and what is known of them."""

    images: np.ndarray
    """(n, size, size) uint8."""
    labels: np.ndarray
    """(n,) 0 or 1."""
    markers: np.ndarray
    """(n, 4): y and x of the first marker, then of the second."""
    distractors: np.ndarray
    """(n,) how many appear."""

    def part(self, start: int, stop: int) -> Sample:
        """Take a range of images."""
        arrays = (self.images, self.labels, self.markers, self.distractors)
        return Sample(*(array[start:stop] for array in arrays))


def load(path: Path) -> Sample:
    """Read images that another implementation made."""
    with np.load(path) as arrays:
        return Sample(*(arrays[name] for name in ("images", "labels", "markers", "distractors")))


def components(is_bright: np.ndarray) -> tuple[np.ndarray, int]:
    """Number an image's components, joined over corners: (size, size) from 1, and how many."""
    from scipy import ndimage

    named, count = ndimage.label(is_bright, np.ones((3, 3)))  # pyright: ignore
    return np.asarray(named), int(count)


def count_components(images: np.ndarray) -> np.ndarray:
    """Count the components of bright pixels of each image: (n,)."""
    return np.array([components(image > BRIGHT)[1] for image in images])


def features(sample: Sample, seed: int) -> dict[str, np.ndarray]:
    """Describe each image in several ways: arrays (n, features) by their names."""
    random = np.random.default_rng(seed)
    count, size = sample.images.shape[:2]
    padded = np.pad(sample.images, ((0, 0), (PATCH, PATCH), (PATCH, PATCH)))
    markers = sample.markers.astype(np.int64)
    at_random = random.integers(2, size - 2, (RANDOM_PATCHES, 2, count))
    return {
        "grey histogram": np.stack([np.bincount(i.ravel(), minlength=256) for i in sample.images]),
        "marker positions": markers,
        "patches around markers": np.concatenate(
            [_patches(padded, PATCH + markers[:, k], PATCH + markers[:, k + 1]) for k in (0, 2)],
            axis=1,
        ),
        "random patches": np.concatenate(
            [_patches(sample.images, y, x, reach=2) for y, x in at_random], axis=1
        ),
        "components": count_components(sample.images)[:, None],
    }


def _patches(images: np.ndarray, y: np.ndarray, x: np.ndarray, reach: int = PATCH) -> np.ndarray:
    """Cut a square around (y, x) out of each image: (n, pixels)."""
    steps = np.arange(-reach, reach + 1)
    rows, columns = (y[:, None] + steps)[:, :, None], (x[:, None] + steps)[:, None, :]
    return images[np.arange(len(images))[:, None, None], rows, columns].reshape(len(images), -1)


def area_under_curve(one: np.ndarray, other: np.ndarray) -> float:
    """Tell two sets of features (n, features) apart by boosted trees.

    Returns: the area under the ROC curve, .5 where they cannot be told: the mean of two fits, each
        trained on one half of both sets and scored on the other.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from threadpoolctl import threadpool_limits

    inputs = np.concatenate([one, other])
    which = np.repeat([0, 1], [len(one), len(other)])
    order = np.random.default_rng(0).permutation(len(which))
    halves = np.array_split(order, 2)
    scores = []
    with threadpool_limits(1):
        for train, test in (halves, halves[::-1]):
            trees = HistGradientBoostingClassifier(max_iter=60, random_state=0)
            prediction = trees.fit(inputs[train], which[train]).predict_proba(inputs[test])[:, 1]
            scores.append(roc_auc_score(which[test], prediction))
    return float(np.mean(scores))


def statistics(sample: Sample) -> dict[str, np.ndarray]:
    """Measure each image: (n,) numbers by their names."""
    images, size = sample.images, sample.images.shape[1]
    first, second = sample.markers[:, :2].astype(float), sample.markers[:, 2:].astype(float)
    middle = (size - 1) / 2
    return {
        "grey": images.mean(axis=(1, 2)),
        "share > 0": (images > 0).mean(axis=(1, 2)),
        "share > 64": (images > BRIGHT).mean(axis=(1, 2)),
        "share > 127": (images > 127).mean(axis=(1, 2)),
        "components": count_components(images),
        "distractors": sample.distractors,
        "marker distance": np.hypot(*(first - second).T),
        "first marker to the centre": np.hypot(*(first - middle).T),
        "second marker to the centre": np.hypot(*(second - middle).T),
        "second marker to the border": np.minimum(second, size - 1 - second).min(axis=1),
    }
