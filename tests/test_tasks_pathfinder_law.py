"""Pathfinder's generator: the statistics of its law, labels, markers, determinism."""

import hashlib
import itertools
import math
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from lra.tasks.pathfinder.compiled import _drop_stale
from lra.tasks.pathfinder.contours import _OVERLAP_LIMIT, grow_distractor, grow_targets
from lra.tasks.pathfinder.draw import LAYOUT_COLUMNS, draw_images, paint_marker
from lra.tasks.pathfinder.drawing_state import start_drawing, start_image
from lra.tasks.pathfinder.law import Law, find_law
from lra.tasks.pathfinder.primitives import DEGREES, TAIL_TO_HEAD, draw_primitives

OFFICIAL = find_law(32, 14, border_quirk=True)
CLEAN = find_law(32, 14, border_quirk=False)


class Drawn(NamedTuple):
    images: np.ndarray
    labels: np.ndarray
    layouts: np.ndarray
    dashes: np.ndarray
    """Of the last image: (contours, dashes, 4), y and x of the tail and of the head."""


def draw(law: Law, count: int, seed: int = 0, first: int = 0) -> Drawn:
    images = np.zeros((count, law.size, law.size), dtype=np.uint8)
    labels = np.zeros(count, dtype=np.uint8)
    layouts = np.zeros((count, LAYOUT_COLUMNS), dtype=np.int64)
    stored = draw_images(law, seed, first, images, labels, layouts)
    anchors = stored[..., :2]
    vectors = draw_primitives(law).vectors[stored[..., 2], TAIL_TO_HEAD]
    dashes = np.concatenate([anchors - vectors, anchors], axis=-1)
    dashes[:, 0] = np.concatenate([anchors, anchors + vectors], axis=-1)[:, 0]
    return Drawn(images, labels, layouts, np.ceil(dashes).astype(np.int64))


FINGERPRINTS = {
    (32, 6, True): (100, "2dd951c028f0645b"),
    (32, 14, True): (100, "f6f2473df35ccc40"),
    (32, 14, False): (100, "ac0816c85a69b645"),
    (64, 9, True): (20, "6b62a84cbc0103e9"),
    (128, 14, True): (10, "65562550eb07b08e"),
    (256, 14, True): (5, "5c5e7b31feb3be36"),
}
"""Digests of the first images; the first version was compared with the original's own code. If one
changes for good reason, the law needs another version."""


@pytest.mark.parametrize(("size", "contour", "border_quirk"), FINGERPRINTS)
def test_images_are_those_first_made(size: int, contour: int, border_quirk: bool) -> None:
    count, fingerprint = FINGERPRINTS[size, contour, border_quirk]
    data = draw(find_law(size, contour, border_quirk=border_quirk), count)
    digest = hashlib.sha256(data.images.tobytes() + data.labels.tobytes())
    assert digest.hexdigest()[:16] == fingerprint


def assert_statistics(data: Drawn, expected: list[float], tolerances: list[float]) -> None:
    """Compare the mean and standard deviation of the grey, share above 0, distractors."""
    greys = data.images
    found = [greys.mean(), greys.std(), (greys > 0).mean(), data.layouts[:, 4].mean()]
    assert (np.abs(np.array(found) - expected) <= tolerances).all(), found


def test_a_thousand_images_have_about_the_measured_statistics() -> None:
    """Those of independent generators, one of which matches the original."""
    assert_statistics(draw(OFFICIAL, 1000), [20.17, 51.0, 0.3412, 1.155], [0.7, 1.0, 0.01, 0.13])
    assert_statistics(draw(CLEAN, 1000), [27.69, 57.78, 0.451, 4.63], [0.7, 1.0, 0.012, 0.15])


def test_labels_tell_whether_one_contour_joins_the_markers() -> None:
    """The dashes of a contour are chained, and markers stand on its ends exactly."""
    margin = OFFICIAL.margins[0]
    labels: list[int] = []
    for index in range(300):
        data = draw(OFFICIAL, 1, first=index)
        targets, markers = data.dashes[:2], data.layouts[0, :4].reshape(2, 2)
        tails, heads = targets[..., :2], targets[..., 2:]
        assert (np.abs(np.linalg.norm(heads - tails, axis=-1) - OFFICIAL.dash_length) <= 2).all()
        gaps = np.linalg.norm(tails[:, 1:] - heads[:, :-1], axis=-1)
        assert (gaps <= 2 * margin + 2 * 2**0.5).all()
        frame = OFFICIAL.padding + margin
        assert (heads[:, 1:] >= frame).all() and (heads[:, 1:] < 32 - frame).all()
        starts = (tails[:, 0] == markers[0]).all(axis=-1)
        ends = (heads[:, -1] == markers[1]).all(axis=-1)
        assert starts.sum() == 1 and ends.any()
        assert ends[starts.argmax() if data.labels[0] else starts.argmin()]
        labels.append(int(data.labels[0]))
    assert np.mean(labels) == pytest.approx(0.5, abs=0.12)


def test_the_quirk_leaves_few_directions() -> None:
    """As the quirk has it, contours leave the centre up left at 32 pixels."""
    assert np.flatnonzero(draw_primitives(OFFICIAL).is_usable).tolist() == [*range(30, 60)]
    firsts = np.stack([draw(OFFICIAL, 1, first=i).dashes[:2, 0] for i in range(200)])
    steps = firsts[..., 2:] - firsts[..., :2]
    assert (steps[:, 0] <= 0).all()
    assert (steps[:, 1] > 0).any()
    assert (np.abs(firsts[:, 0, :2] - 16) <= 4).all()
    apart = np.linalg.norm(firsts[:, 1, :2] - firsts[:, 0, :2], axis=-1)
    assert (np.abs(apart - OFFICIAL.seed_distance) <= 0.5**0.5).all()
    firsts = np.stack([draw(CLEAN, 1, first=i).dashes[0, 0] for i in range(100)])
    assert (firsts[:, 2:] > firsts[:, :2]).any(axis=0).all()


@pytest.mark.parametrize(
    ("size", "usable", "candidates"),
    [(32, [30], [18]), (64, [95], [38]), (128, [354, 360], [41, 49]), (256, [360], [49])],
)
def test_orientations_and_turns_are_as_measured(
    size: int, usable: list[int], candidates: list[int]
) -> None:
    for quirk, expected in ((True, usable), (False, [DEGREES] * len(usable))):
        primitives = draw_primitives(find_law(size, 14, border_quirk=quirk))
        bases = primitives.first_directions.tolist()
        found = [int(primitives.is_usable[base : base + DEGREES].sum()) for base in bases[:-1]]
        assert found == expected
        assert (np.diff(bases) - DEGREES).tolist() == candidates


ORIGINAL_STAMPS = {
    32: "3e7ff7e556130943",
    64: "ef74c5a8cc54ad8c",
    128: "b33f6c7bdf4a1ca1",
    256: "b6df488234531ccc",
}
"""Digests of all stamps and halos as the original's own code draws them (drewlinsley/pathfinder,
commit ab9c130, with what SciPy 1.0 did to resize images); it is not part of this repository."""


@pytest.mark.parametrize("size", ORIGINAL_STAMPS)
def test_stamps_are_those_of_the_original_bit_by_bit(size: int) -> None:
    law = find_law(size, 14, border_quirk=True)
    primitives = draw_primitives(law)
    digest = hashlib.sha256()
    for margin, (first, last) in zip(
        law.margins, itertools.pairwise(primitives.first_directions), strict=True
    ):
        reach = law.dash_length + math.ceil(law.thickness) + margin
        for direction in range(first, last):
            for starts, items in (primitives.dash_pixels, primitives.halo_pixels):
                canvas = np.zeros((2 * reach + 1, 2 * reach + 1), dtype=np.uint8)
                y, x, value = items[starts[direction] : starts[direction + 1]].T
                canvas[y + reach, x + reach] = value
                digest.update(canvas.tobytes())
    assert digest.hexdigest()[:16] == ORIGINAL_STAMPS[size]


@pytest.mark.parametrize("size", [32, 128])
def test_dilated_mask_is_the_mask_dilated_by_the_margin(size: int) -> None:
    """The fast form against the plain one, after whole images and at the border, too."""
    law = find_law(size, 14, border_quirk=True)
    primitives, (numbers, state) = draw_primitives(law), start_drawing(law)
    margin, which = law.margins[-1], len(law.margins) - 1
    y, x = np.mgrid[-margin : margin + 1, -margin : margin + 1]
    for index in range(10):
        start_image(state, np.uint64(0), index)
        while not grow_targets(numbers, primitives, state, which):
            pass
        for contour in range(2, 2 + law.distractors):
            grow_distractor(numbers, primitives, state, which, contour)
        expected = ndimage.maximum_filter(
            state.mask, footprint=y**2 + x**2 <= margin**2, mode="constant", cval=0
        )
        assert np.array_equal(state.dilated_mask, expected)


def test_levels_are_compared_and_rounded_as_in_the_original() -> None:
    """Levels from 0 to 1 in single precision, added in double: no sum of 459 is below 1.8.

    Values 133, 135 and 147 of a stamp, half again as bright, fall just short of a half.
    """
    level = (np.arange(256) / 255).astype(np.float32).astype(np.float64)
    refused = level[:, None] + level >= 1.8
    assert np.array_equal(refused, np.add.outer(np.arange(256), np.arange(256)) >= _OVERLAP_LIMIT)
    for value, grey in ((133, 199), (135, 202), (147, 220)):
        assert value * 1.5 == grey + 0.5
        assert int(draw_primitives(OFFICIAL).brightness[0, value] * 255 + 0.5) == grey


@pytest.mark.parametrize("size", [32, 128])
def test_markers_are_drawn_on_the_whole_image(size: int) -> None:
    """The small canvas against the plain one, twice the image, at the border and inside it."""
    law = find_law(size, 14, border_quirk=True)
    primitives, (numbers, _) = draw_primitives(law), start_drawing(law)
    rows, columns = np.mgrid[: 2 * size, : 2 * size]
    for y, x in itertools.product([0, 1, 5, 11, size // 2, size - 4, size - 1], repeat=2):
        disk = (rows - 2 * y) ** 2 + (columns - 2 * x) ** 2 <= (2 * law.marker_radius) ** 2
        whole = Image.fromarray(np.where(disk, 255, 0).astype(np.uint8))
        expected = np.asarray(whole.resize((size, size), Image.Resampling.LANCZOS)) / 255
        light = np.zeros((size, size))
        paint_marker(numbers, primitives, light, y, x)
        assert np.array_equal(light, expected)


@pytest.mark.parametrize(("size", "contour"), [(32, 9), (128, 6)])
def test_other_sizes_and_levels(size: int, contour: int) -> None:
    law = find_law(size, contour, border_quirk=False)
    assert law.distractor_dashes == contour // 3
    data = draw(law, 30)
    flat = data.images.reshape(30, -1)
    assert (flat.max(axis=1) == 255).all() and (flat.min(axis=1) == 0).all()
    assert set(data.labels) == {0, 1}
    assert (data.layouts[:, 4] <= law.distractors).all()
    y, x = np.mgrid[:size, :size]
    for image, layout in zip(data.images, data.layouts, strict=True):
        for row, column in layout[:4].reshape(2, 2):
            disk = (y - row) ** 2 + (x - column) ** 2 <= (law.marker_radius - 1) ** 2
            assert image[disk].min() >= 200


def test_images_depend_on_seed_and_index_alone() -> None:
    together, chunk = draw(OFFICIAL, 150), draw(OFFICIAL, 50, first=100)
    assert np.array_equal(chunk.images, together.images[100:])
    assert np.array_equal(chunk.labels, together.labels[100:])
    other = draw(OFFICIAL, 50, seed=1, first=100)
    assert (other.images != chunk.images).any(axis=(1, 2)).all()
    assert (other.labels != chunk.labels).any()


def test_machine_code_older_than_any_source_is_dropped(tmp_path: Path) -> None:
    """A function's machine code holds that of what it calls, and Numba looks at its own file."""
    (tmp_path / "__pycache__").mkdir()
    old, source, new = (
        tmp_path / name for name in ("__pycache__/a.nbi", "a.py", "__pycache__/b.nbi")
    )
    for time, path in enumerate((old, source, new), start=1):
        path.touch()
        os.utime(path, (time, time))
    _drop_stale(tmp_path)
    assert not old.exists() and new.exists()
