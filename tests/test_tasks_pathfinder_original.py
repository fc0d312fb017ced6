"""Generated Pathfinder images against those of an implementation that nobody here wrote.

The original's own images cannot be told from the reference images; ours must not be, either.
"""

import functools
from typing import NamedTuple

import numpy as np
import pytest
from scipy import ndimage
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from lra.tasks.pathfinder.draw import LAYOUT_COLUMNS, draw_images
from lra.tasks.pathfinder.law import find_law
from made_data import real_data

pytestmark = pytest.mark.thorough

BRIGHT = 64
"""Grey level above which a pixel belongs to a dash or a marker."""
PATCH = 5
"""Pixels on each side of a marker that its patch reaches."""
COUNTS = {32: 4000, 128: 600}
"""Images of each side of a comparison, by their size."""
BOUNDS = {32: 0.03, 128: 0.06}
"""How far from .5 the area under the curve may lie."""
SEEDS = (101, 102, 103)


class Sample(NamedTuple):
    """Images and what is known of them."""

    images: np.ndarray
    """(n, size, size) uint8."""
    markers: np.ndarray
    """(n, 4): y and x of the first marker, then of the second."""
    distractors: np.ndarray
    """(n,) how many appear."""


@functools.cache
def reference(size: int) -> Sample:
    with np.load(real_data(f"pathfinder/pathfinder_{size}_14.npz")) as arrays:
        return Sample(*(arrays[name] for name in Sample._fields))


@functools.cache
def draw(size: int, seed: int, border_quirk: bool = True) -> Sample:
    count = COUNTS[size]
    images, labels = np.zeros((count, size, size), np.uint8), np.zeros(count, np.uint8)
    layouts = np.zeros((count, LAYOUT_COLUMNS), np.int64)
    law = find_law(size, 14, border_quirk=border_quirk)
    draw_images(law, seed, 0, images, labels, layouts)
    return Sample(images, layouts[:, :4], layouts[:, 4])


def count_components(images: np.ndarray) -> np.ndarray:
    """Count the components of bright pixels, joined over corners, of each image: (n,)."""
    square = np.ones((3, 3))
    return np.array([ndimage.label(image > BRIGHT, square)[1] for image in images])  # pyright: ignore


def cut_patches(images: np.ndarray, y: np.ndarray, x: np.ndarray, reach: int) -> np.ndarray:
    """Cut a square around (y, x) out of each image: (n, pixels)."""
    steps = np.arange(-reach, reach + 1)
    rows, columns = (y[:, None] + steps)[:, :, None], (x[:, None] + steps)[:, None, :]
    return images[np.arange(len(images))[:, None, None], rows, columns].reshape(len(images), -1)


def list_features(sample: Sample, seed: int) -> dict[str, np.ndarray]:
    """Describe each image in several ways: arrays (n, features) by their names."""
    count, size = sample.images.shape[:2]
    padded = np.pad(sample.images, ((0, 0), (PATCH, PATCH), (PATCH, PATCH)))
    places = PATCH + sample.markers.astype(np.int64)
    around = [cut_patches(padded, places[:, k], places[:, k + 1], PATCH) for k in (0, 2)]
    at_random = np.random.default_rng(seed).integers(2, size - 2, (4, 2, count))
    return {
        "grey histogram": np.stack([np.bincount(i.ravel(), minlength=256) for i in sample.images]),
        "marker positions": sample.markers,
        "patches around markers": np.concatenate(around, axis=1),
        "random patches": np.concatenate(
            [cut_patches(sample.images, y, x, 2) for y, x in at_random], axis=1
        ),
        "components": count_components(sample.images)[:, None],
    }


def area_under_curve(one: np.ndarray, other: np.ndarray) -> float:
    """Tell two sets of features (n, features) apart by boosted trees.

    Returns: the area under the ROC curve, .5 where they cannot be told: the mean of two fits, each
        trained on one half of both sets and scored on the other.
    """
    inputs = np.concatenate([one, other])
    which = np.repeat([0, 1], [len(one), len(other)])
    halves = np.array_split(np.random.default_rng(0).permutation(len(which)), 2)
    scores = []
    with threadpool_limits(1):
        for train, test in (halves, halves[::-1]):
            trees = HistGradientBoostingClassifier(max_iter=60, random_state=0)
            prediction = trees.fit(inputs[train], which[train]).predict_proba(inputs[test])[:, 1]
            scores.append(roc_auc_score(which[test], prediction))
    return float(np.mean(scores))


def tell_apart(size: int, other: Sample) -> dict[str, float]:
    """Compute the area under the curve of each kind of features, reference against others."""
    ours = list_features(Sample(*(array[: COUNTS[size]] for array in reference(size))), seed=0)
    theirs = list_features(other, seed=1)
    return {name: area_under_curve(ours[name], theirs[name]) for name in ours}


@pytest.mark.parametrize("size", [32, 128])
def test_nothing_tells_our_images_from_the_reference(size: int) -> None:
    curves = tell_apart(size, draw(size, SEEDS[0]))
    assert all(abs(area - 0.5) <= BOUNDS[size] for area in curves.values()), curves


def test_images_without_the_quirk_are_told() -> None:
    """The control: the tests can fail, each of them."""
    curves = tell_apart(32, draw(32, 0, False))
    assert all(area > 0.7 for area in curves.values()), curves


EXPECTED = {
    32: {
        "components": (13.76, 3.24),
        "marker distance": (13.04, 5.15),
        "first marker to the centre": (4.08, 3.05),
        "second marker to the centre": (11.84, 4.26),
        "second marker to the border": (5.36, 3.37),
        "share > 64": (0.1256, 0.0123),
        "share > 0": (0.3412, None),
        "grey": (20.17, None),
        "distractors": (1.155, None),
    },
    128: {
        "components": (57.70, 2.41),
        "marker distance": (75.27, 19.30),
        "second marker to the border": (10.56, 8.60),
        "share > 64": (0.0405, None),
        "share > 0": (0.1371, None),
        "grey": (7.90, None),
        "distractors": (7.685, None),
    },
}
"""Mean and standard deviation over images, measured on the original by others."""
GREY_DEVIATION = {32: (51.0, 0.3), 128: (35.65, 0.25)}
"""Standard deviation of the grey over the pixels of all images, and how far ours may lie off."""


def measure(sample: Sample) -> dict[str, np.ndarray]:
    """Measure each image: (n,) numbers by their names."""
    images, size = sample.images, sample.images.shape[1]
    first, second = sample.markers[:, :2].astype(float), sample.markers[:, 2:].astype(float)
    middle = (size - 1) / 2
    return {
        "grey": images.mean(axis=(1, 2)),
        "share > 0": (images > 0).mean(axis=(1, 2)),
        "share > 64": (images > BRIGHT).mean(axis=(1, 2)),
        "components": count_components(images),
        "distractors": sample.distractors,
        "marker distance": np.hypot(*(first - second).T),
        "first marker to the centre": np.hypot(*(first - middle).T),
        "second marker to the centre": np.hypot(*(second - middle).T),
        "second marker to the border": np.minimum(second, size - 1 - second).min(axis=1),
    }


@pytest.mark.parametrize("size", [32, 128])
def test_statistics_are_those_of_the_original(size: int) -> None:
    """Each mean within four of its standard errors, and each spread within a twentieth."""
    parts = [measure(draw(size, seed)) for seed in SEEDS]
    measured = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for name, (mean, deviation) in EXPECTED[size].items():
        values = measured[name]
        error = values.std() / len(values) ** 0.5
        rounding = 10.0 ** -max(2, len(f"{mean}".partition(".")[2]))
        assert values.mean() == pytest.approx(mean, abs=4 * error + rounding), name
        if deviation is not None:
            assert values.std() == pytest.approx(deviation, rel=0.05), name
    images = np.concatenate([draw(size, seed).images for seed in SEEDS])
    deviation, tolerance = GREY_DEVIATION[size]
    assert images.std() == pytest.approx(deviation, abs=tolerance)
    nearest = measured["second marker to the border"]
    assert np.quantile(nearest, 0.01) == {32: 2, 128: 3}[size]
