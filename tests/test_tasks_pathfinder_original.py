"""Generated Pathfinder images against those of an implementation that nobody here wrote.

The original's own images cannot be told from the reference images; ours must not be, either.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from made_data import real_data
from tasks.pathfinder.draw import LAYOUT_COLUMNS, draw_images, trace
from tasks.pathfinder.law import find_law
from two_samples import (
    BRIGHT,
    Sample,
    area_under_curve,
    components,
    features,
    load,
    statistics,
)

pytestmark = pytest.mark.thorough

COUNTS = {32: 4000, 128: 600}
"""Images of each side of a comparison, by their size."""

BOUNDS = {32: 0.03, 128: 0.06}
"""How far from .5 the area under the curve may lie."""

SEEDS = (101, 102, 103)


@functools.cache
def reference(size: int) -> Sample:
    return load(real_data(f"pathfinder/pathfinder_{size}_14.npz"))


def ours(size: int, seed: int, contour: int = 14) -> Sample:
    return draw(size, seed, contour, True)


@functools.cache
def draw(size: int, seed: int, contour: int, border_quirk: bool) -> Sample:
    count = COUNTS.get(size, 300)
    images = np.zeros((count, size, size), dtype=np.uint8)
    labels, facts = (
        np.zeros(count, dtype=np.uint8),
        np.zeros((count, LAYOUT_COLUMNS), dtype=np.int64),
    )
    draw_images(find_law(size, contour, border_quirk=border_quirk), seed, 0, images, labels, facts)
    return Sample(images, labels, facts[:, :4], facts[:, 4])


@functools.cache
def reference_features(size: int) -> dict[str, np.ndarray]:
    return features(reference(size).part(0, COUNTS[size]), seed=0)


def told_apart(size: int, other: Sample, *names: str) -> dict[str, float]:
    """Compute the area under the curve of kinds of features or all, reference against others."""
    theirs = features(other, seed=1)
    return {
        name: area_under_curve(reference_features(size)[name], theirs[name])
        for name in names or theirs
    }


@pytest.mark.parametrize("size", [32, 128])
def test_nothing_tells_our_images_from_the_reference(size: int) -> None:
    curves = told_apart(size, ours(size, SEEDS[0]))
    assert len(curves) == 5
    assert all(abs(area - 0.5) <= BOUNDS[size] for area in curves.values()), curves


def test_the_reference_cannot_be_told_from_itself() -> None:
    """The control: with features of other random patches, and images that were not compared yet."""
    curves = told_apart(32, reference(32).part(4000, 8000))
    assert all(abs(area - 0.5) <= BOUNDS[32] for area in curves.values()), curves


def test_images_without_the_quirk_are_told() -> None:
    """The other control: the tests can fail, each of them."""
    curves = told_apart(32, draw(32, 0, 14, False))
    assert all(area > 0.7 for area in curves.values()), curves
    assert curves["grey histogram"] > 0.99


def test_small_faults_are_told() -> None:
    """Markers a pixel off, and one grey level off, as other stamps would have it."""
    sample = ours(32, 1)
    shifted = Sample(sample.images, sample.labels, sample.markers + 1, sample.distractors)
    name = "patches around markers"
    assert told_apart(32, shifted.part(0, 1000), name)[name] > 0.95
    lighter = np.where(sample.images == 199, 200, sample.images).astype(np.uint8)
    changed = Sample(lighter, sample.labels, sample.markers, sample.distractors)
    assert told_apart(32, changed, "grey histogram")["grey histogram"] > 0.7


EXPECTED = {
    32: {
        "components": (13.76, 3.24),
        "marker distance": (13.04, 5.15),
        "first marker to the centre": (4.08, 3.05),
        "second marker to the centre": (11.84, 4.26),
        "second marker to the border": (5.36, 3.37),
        "share > 64": (0.1256, 0.0123),
        "share > 127": (0.0850, 0.0090),
        "share > 0": (0.3412, None),
        "grey": (20.17, None),
        "distractors": (1.155, None),
    },
    128: {
        "components": (57.70, 2.41),
        "marker distance": (75.27, 19.30),
        "second marker to the border": (10.56, 8.60),
        "share > 64": (0.0405, None),
        "share > 127": (0.0302, None),
        "share > 0": (0.1371, None),
        "grey": (7.90, None),
        "distractors": (7.685, None),
    },
}
"""Mean and standard deviation over images, measured on the original by others."""

GREY_DEVIATION = {32: (51.0, 0.3), 128: (35.65, 0.25)}
"""Standard deviation of the grey over the pixels of all images, and how far ours may lie off."""

NEAREST = {32: 2, 128: 3}
"""Lowest percent of the distances of second markers to the border."""


@pytest.mark.parametrize("size", [32, 128])
def test_statistics_are_those_of_the_original(size: int) -> None:
    """Each mean within four of its standard errors, and each spread within a twentieth."""
    parts = [statistics(ours(size, seed)) for seed in SEEDS]
    measured = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for name, (mean, deviation) in EXPECTED[size].items():
        values = measured[name]
        error = values.std() / len(values) ** 0.5
        rounding = 10.0 ** -max(2, len(f"{mean}".partition(".")[2]))
        assert values.mean() == pytest.approx(mean, abs=4 * error + rounding), name
        if deviation is not None:
            assert values.std() == pytest.approx(deviation, rel=0.05), name
    images = np.concatenate([ours(size, seed).images for seed in SEEDS])
    deviation, tolerance = GREY_DEVIATION[size]
    assert images.std() == pytest.approx(deviation, abs=tolerance)
    nearest = measured["second marker to the border"]
    assert np.quantile(nearest, 0.01) == NEAREST[size]
    assert (ours(size, SEEDS[0]).images.reshape(COUNTS[size], -1).max(axis=1) == 255).all()


def rings(images: np.ndarray) -> np.ndarray:
    """Measure the share of bright pixels at each distance from the border: (4,)."""
    size = images.shape[1]
    steps = np.minimum(np.arange(size), np.arange(size)[::-1])
    distance = np.minimum(steps[:, None], steps)
    bright = (images > BRIGHT).mean(axis=0)
    return np.array([bright[distance == ring].mean() for ring in range(4)])


@pytest.mark.parametrize("size", [32, 128])
def test_frames_are_as_free_as_the_reference(size: int) -> None:
    """The outermost pixels hold less than a dash's share, as the padding keeps dashes off them."""
    found, expected = rings(ours(size, SEEDS[0]).images), rings(reference(size).images)
    assert found[0] <= 0.002
    np.testing.assert_allclose(found, expected, atol=0.003)


@pytest.mark.parametrize("size", [32, 64, 128, 256])
@pytest.mark.parametrize("contour", [6, 14])
def test_no_dash_heads_into_the_frame(size: int, contour: int) -> None:
    """Far ends keep off the padding by a margin; at 256 the outermost 20 pixels are free."""
    rules = find_law(size, contour, border_quirk=True)
    low = rules.padding + min(rules.margins)
    for index in range(40):
        drawn = trace(rules, 0, index)
        for contours in (drawn.targets, drawn.distractors):
            ends = contours[:, 1:, 2:]
            assert (ends >= low).all()
            assert (ends <= size - 1 - low).all()
    images = ours(size, SEEDS[0], contour).images
    share = rings(images)
    assert share[0] <= 0.01
    if size == 256:
        assert (images[:, 20:-20, 20:-20] > BRIGHT).sum() == (images > BRIGHT).sum()


def test_every_dash_from_the_first_marker_is_lit() -> None:
    """At 128 pixels; and the contour leads to the second marker if the label says so."""
    rules = find_law(128, 14, border_quirk=True)
    sample = ours(128, SEEDS[0])
    for index in range(200):
        drawn = trace(rules, SEEDS[0], index)
        assert drawn.label == sample.labels[index]
        first, second = drawn.markers
        of_first = int((drawn.targets[:, 0, :2] == first).all(axis=1).argmax())
        of_second = int((drawn.targets[:, -1, 2:] == second).all(axis=1).argmax())
        assert (of_first == of_second) == (drawn.label == 1)
        for tail_y, tail_x, head_y, head_x in drawn.targets[of_first]:
            middle = sample.images[index][(tail_y + head_y) // 2, (tail_x + head_x) // 2]
            assert middle > BRIGHT


def joins(image: np.ndarray, markers: np.ndarray, *, radius: int, gap: float, turn: float) -> bool:
    """Follow dashes from one marker to the other, seeing nothing but the pixels.

    Each component of bright pixels outside the markers is a dash with two ends; one goes on from an
    end to another dash's end within a gap, if neither dash turns too far.
    """
    rows, columns = np.mgrid[: len(image), : len(image)]
    centres = markers.reshape(2, 2).astype(float)
    bright = image > BRIGHT
    for y, x in centres:
        bright &= (rows - y) ** 2 + (columns - x) ** 2 > (radius + 0.5) ** 2
    named, count = components(bright)
    pieces = [np.argwhere(named == number).astype(float) for number in range(1, count + 1)]
    dashes = [ends_of(pixels) for pixels in pieces if len(pixels) > 1]
    ends = np.array([end for end, _ in dashes])
    outward = np.array([direction for _, direction in dashes])
    near = [np.linalg.norm(ends - centre, axis=-1) <= radius + gap for centre in centres]
    todo = [(dash, 1 - end) for dash, end in np.argwhere(near[0]).tolist()]
    seen = set(todo)
    while todo:
        dash, end = todo.pop()
        if near[1][dash, end]:
            return True
        step = ends - ends[dash, end]
        length = np.linalg.norm(step, axis=-1)
        towards = step / np.maximum(length, 1e-9)[..., None]
        is_straight = -(outward @ outward[dash, end]) >= turn
        is_ahead = (towards @ outward[dash, end] >= turn) & ((-towards * outward).sum(-1) >= turn)
        for other, entered in np.argwhere((length <= gap) & is_straight & is_ahead).tolist():
            place = (other, 1 - entered)
            if other != dash and place not in seen:
                seen.add(place)
                todo.append(place)
    return False


def ends_of(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the two ends (2, 2) of a dash along its longest axis, and the directions outward."""
    centre = pixels.mean(axis=0)
    axis = np.linalg.svd(pixels - centre, full_matrices=False)[2][0]
    along = (pixels - centre) @ axis
    ends = np.stack([centre + axis * along.min(), centre + axis * along.max()])
    return ends, np.stack([-axis, axis])


def test_labels_can_be_read_from_the_pixels_as_in_the_reference() -> None:
    """Chance paths join some negatives, and some gaps mislead: as often as in the reference."""
    shares = []
    for sample in (ours(128, SEEDS[0]), reference(128)):
        pairs = zip(sample.images, sample.markers, strict=True)
        found = np.array([joins(i, m, radius=3, gap=9.0, turn=0.5) for i, m in pairs])
        shares.append((found[sample.labels == 1].mean(), found[sample.labels == 0].mean()))
    for positives, negatives in shares:
        assert positives > 0.8
        assert negatives < 0.4
    np.testing.assert_allclose(shares[0], shares[1], atol=0.12)
