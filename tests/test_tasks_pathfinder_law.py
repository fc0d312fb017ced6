"""Pathfinder's generator: the statistics of its law, labels, markers, determinism."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from tasks.pathfinder.compiled import _drop_stale
from tasks.pathfinder.contours import _OVERLAP_LIMIT, grow_distractor, grow_targets
from tasks.pathfinder.draw import LAYOUT_COLUMNS, _paint_marker, draw_images, trace
from tasks.pathfinder.drawing_state import create_state, select_numbers, start_image
from tasks.pathfinder.law import Law, find_law
from tasks.pathfinder.primitives import DEGREES, draw_primitives

OFFICIAL = find_law(32, 14, border_quirk=True)
COUNT = 20_000


@dataclasses.dataclass(frozen=True)
class Drawn:
    images: np.ndarray
    labels: np.ndarray
    facts: np.ndarray


def drawn(law: Law, count: int, seed: int = 0, first: int = 0) -> Drawn:
    images = np.zeros((count, law.size, law.size), dtype=np.uint8)
    labels = np.full(count, 9, dtype=np.uint8)
    facts = np.full((count, LAYOUT_COLUMNS), -1, dtype=np.int64)
    draw_images(law, seed, first, images, labels, facts)
    return Drawn(images, labels, facts)


@pytest.fixture(scope="module")
def official() -> Iterator[Drawn]:
    yield drawn(OFFICIAL, COUNT)


def statistics(data: Drawn) -> list[float]:
    """Mean and standard deviation of the grey, share of pixels above 0, distractors."""
    greys = data.images
    return [greys.mean(), greys.std(), (greys > 0).mean(), data.facts[:, 4].mean()]


def assert_close(data: Drawn, expected: list[float], tolerances: list[float]) -> None:
    deviations = np.abs(np.array(statistics(data)) - expected)
    assert (deviations <= tolerances).all(), statistics(data)


def test_official_law_has_the_measured_statistics(official: Drawn) -> None:
    """The statistics are those of an independent generator that matches the original."""
    assert_close(official, [20.17, 51.0, 0.3412, 1.155], [0.15, 0.3, 0.003, 0.03])
    assert (official.facts[:, 4] == 0).mean() == pytest.approx(0.26, abs=0.025)


def test_law_without_the_quirk_is_another_one() -> None:
    """As measured on a second implementation of the law, written by others from its text."""
    data = drawn(find_law(32, 14, border_quirk=False), 10_000)
    assert_close(data, [27.69, 57.78, 0.451, 4.63], [0.3, 0.4, 0.005, 0.05])


def test_images_use_the_whole_range_and_are_distinct(official: Drawn) -> None:
    flat = official.images.reshape(COUNT, -1)
    assert (flat.max(axis=1) == 255).all()
    assert (flat.min(axis=1) == 0).all()
    assert len({image.tobytes() for image in official.images}) == COUNT
    assert official.labels.mean() == pytest.approx(0.5, abs=4 * 0.5 / COUNT**0.5)


def test_labels_tell_whether_one_contour_joins_the_markers(official: Drawn) -> None:
    """The dashes of a contour are chained, and markers stand on its ends exactly."""
    step = OFFICIAL.dash_length + 2 * OFFICIAL.margins[0]
    for index in range(3000):
        image = trace(OFFICIAL, 0, index)
        tails, heads = image.targets[..., :2], image.targets[..., 2:]
        assert (np.abs(np.linalg.norm(heads - tails, axis=-1) - OFFICIAL.dash_length) <= 2).all()
        gaps = np.linalg.norm(tails[:, 1:] - heads[:, :-1], axis=-1)
        assert (gaps <= 2 * OFFICIAL.margins[0] + 2 * 2**0.5).all()
        advance = np.linalg.norm(heads[:, 2:] - heads[:, 1:-1], axis=-1)
        assert (np.abs(advance - step) <= 2 * 2**0.5).all()
        assert np.array_equal(image.tips, np.stack([tails[:, 0], heads[:, -1]], axis=1))
        starts = (image.tips[:, 0] == image.markers[0]).all(axis=-1)
        ends = (image.tips[:, 1] == image.markers[1]).all(axis=-1)
        assert starts.sum() == 1
        assert ends.any()
        assert ends[starts.argmax() if image.label else starts.argmin()]
        assert image.label == official.labels[index]
        assert np.array_equal(image.markers.ravel(), official.facts[index, :4])
        assert image.distractors.shape == (official.facts[index, 4], 4, 4)


def test_first_contour_leaves_the_centre_up_left(official: Drawn) -> None:
    """As the quirk has it: no other orientation of the first dash finds a place at 32 pixels."""
    assert np.flatnonzero(draw_primitives(OFFICIAL).is_usable[:DEGREES]).tolist() == [
        *range(30, 60)
    ]
    firsts = np.stack([trace(OFFICIAL, 0, index).targets[:, 0] for index in range(500)])
    steps = firsts[..., 2:] - firsts[..., :2]
    assert (steps[:, 0] <= 0).all()
    assert (steps[:, 0] < 0).any(axis=-1).all()
    assert (steps[:, 1] > 0).any()
    assert (np.abs(firsts[:, 0, :2] - 16) <= 4).all()
    apart = np.linalg.norm(firsts[:, 1, :2] - firsts[:, 0, :2], axis=-1)
    assert (np.abs(apart - OFFICIAL.seed_distance) <= 0.5**0.5).all()
    clean = find_law(32, 14, border_quirk=False)
    firsts = np.stack([trace(clean, 0, index).targets[0, 0] for index in range(500)])
    assert (firsts[:, 2:] > firsts[:, :2]).any(axis=0).all()


@pytest.mark.parametrize(
    ("size", "usable", "candidates"),
    [(32, [30], [18]), (64, [95], [38]), (128, [354, 360], [41, 49]), (256, [360], [49])],
)
def test_orientations_and_turns_are_as_measured(
    size: int, usable: list[int], candidates: list[int]
) -> None:
    primitives = draw_primitives(find_law(size, 14, border_quirk=True))
    bases = primitives.first_directions.tolist()
    assert [int(primitives.is_usable[base : base + DEGREES].sum()) for base in bases[:-1]] == usable
    assert (np.diff(bases) - DEGREES).tolist() == candidates
    clean = draw_primitives(find_law(size, 14, border_quirk=False))
    assert all(clean.is_usable[base : base + DEGREES].all() for base in bases[:-1])


def test_quirk_finds_a_place_unless_a_pixel_sees_nothing_of_the_footprint() -> None:
    """Against the definition: all pixels of an image, each with the footprint around it."""
    primitives = draw_primitives(OFFICIAL)
    rows, columns = np.mgrid[:32, :32]
    starts, items = primitives.footprint_pixels
    for direction in range(DEGREES):
        seen = np.zeros((32, 32), dtype=bool)
        for y, x in items[starts[direction] : starts[direction + 1]]:
            inside = (rows + y >= 0) & (rows + y < 32) & (columns + x >= 0) & (columns + x < 32)
            seen |= inside
        assert seen.all() == primitives.is_usable[direction]


def assert_markers_where_facts_say(data: Drawn, law: Law, least: int) -> None:
    y, x = np.mgrid[: law.size, : law.size]
    for image, facts in zip(data.images[:2000], data.facts, strict=False):
        for row, column in facts[:4].reshape(2, 2):
            disk = (y - row) ** 2 + (x - column) ** 2 <= (law.marker_radius - 1) ** 2
            assert disk.any()
            assert image[disk].min() >= least


def test_markers_are_where_facts_say(official: Drawn) -> None:
    assert_markers_where_facts_say(official, OFFICIAL, least=200)


ORIGINAL_STAMPS = {
    32: "3e7ff7e556130943",
    64: "ef74c5a8cc54ad8c",
    128: "b33f6c7bdf4a1ca1",
    256: "b6df488234531ccc",
}
"""Digests of all stamps and halos as the original's own code draws them (drewlinsley/pathfinder,
commit ab9c130, with what SciPy 1.0 did to resize images); it is not part of this repository."""


@pytest.mark.parametrize("size", [32, 64, 128, 256])
def test_stamps_are_those_of_the_original_bit_by_bit(size: int) -> None:
    rules_of = find_law(size, 14, border_quirk=True)
    primitives = draw_primitives(rules_of)
    digest = hashlib.sha256()
    for margin, first, last in zip(
        rules_of.margins,
        primitives.first_directions[:-1],
        primitives.first_directions[1:],
        strict=True,
    ):
        reach = rules_of.dash_length + math.ceil(rules_of.thickness) + margin
        for direction in range(first, last):
            for starts, items in (primitives.dash_pixels, primitives.halo_pixels):
                canvas = np.zeros((2 * reach + 1, 2 * reach + 1), dtype=np.uint8)
                y, x, value = items[starts[direction] : starts[direction + 1]].T
                canvas[y + reach, x + reach] = value
                digest.update(canvas.tobytes())
    assert digest.hexdigest()[:16] == ORIGINAL_STAMPS[size]


def test_dilated_mask_is_the_mask_dilated_by_the_margin() -> None:
    """The fast form against the plain one, after whole images and at the border, too."""
    for size in (32, 128):
        rules_of = find_law(size, 14, border_quirk=True)
        primitives, canvas = draw_primitives(rules_of), create_state(rules_of)
        margin = rules_of.margins[-1]
        y, x = np.mgrid[-margin : margin + 1, -margin : margin + 1]
        for index in range(40):
            start_image(canvas, np.uint64(0), index)
            which = len(rules_of.margins) - 1
            while not grow_targets(select_numbers(rules_of), primitives, canvas, which):
                pass
            for contour in range(2, 2 + rules_of.distractors):
                grow_distractor(select_numbers(rules_of), primitives, canvas, which, contour)
            expected = ndimage.maximum_filter(
                canvas.mask, footprint=y**2 + x**2 <= margin**2, mode="constant", cval=0
            )
            assert np.array_equal(canvas.dilated_mask, expected)
            frame = rules_of.padding + margin
            assert (canvas.dilated_mask[:frame] == 255).all()
            assert (canvas.dilated_mask[:, -frame:] == 255).all()


def test_halos_refuse_each_other_from_nine_fifths_on() -> None:
    """As levels from 0 to 1 in single precision, added in double: no sum of 459 is below 1.8."""
    level = (np.arange(256) / 255).astype(np.float32).astype(np.float64)
    refused = level[:, None] + level >= 1.8
    assert np.array_equal(refused, np.add.outer(np.arange(256), np.arange(256)) >= _OVERLAP_LIMIT)


def test_greys_are_rounded_as_in_the_original(official: Drawn) -> None:
    """Values 133, 135 and 147 of a stamp, half again as bright, fall just short of a half."""
    for value, grey in ((133, 199), (135, 202), (147, 220)):
        assert value * 1.5 == grey + 0.5
        assert int(draw_primitives(OFFICIAL).brightness[0, value] * 255 + 0.5) == grey
    without = official.images[official.facts[:, 4] == 0]
    assert {199, 202, 220} <= set(without.ravel().tolist())


@pytest.mark.parametrize("size", [32, 64, 128, 256])
def test_markers_are_drawn_on_the_whole_image(size: int) -> None:
    """The small canvas against the plain one, twice the image, at the border and inside it."""
    rules_of = find_law(size, 14, border_quirk=True)
    primitives = draw_primitives(rules_of)
    places = [0, 1, 2, 3, 5, 8, 11, 14, size // 2]
    places += [size - 1 - place for place in places]
    rows, columns = np.mgrid[: 2 * size, : 2 * size]
    for y, x in itertools.product(places, places):
        disk = (rows - 2 * y) ** 2 + (columns - 2 * x) ** 2 <= (2 * rules_of.marker_radius) ** 2
        whole = Image.fromarray(np.where(disk, 255, 0).astype(np.uint8))
        expected = np.asarray(whole.resize((size, size), Image.Resampling.LANCZOS)) / 255
        light = np.zeros((size, size))
        _paint_marker(select_numbers(rules_of), primitives, light, y, x)
        assert np.array_equal(light, expected)


@pytest.mark.parametrize(("size", "contour"), [(32, 6), (32, 9), (64, 14), (128, 6), (256, 14)])
@pytest.mark.parametrize("border_quirk", [True, False])
def test_other_sizes_and_levels(size: int, contour: int, border_quirk: bool) -> None:
    rules_of = find_law(size, contour, border_quirk=border_quirk)
    data = drawn(rules_of, 60)
    assert (data.images.reshape(60, -1).max(axis=1) == 255).all()
    assert set(data.labels) == {0, 1}
    assert (data.facts[:, 4] <= rules_of.distractors).all()
    frame = rules_of.padding + rules_of.margins[0]
    assert (data.facts[:, 2:4] >= frame).all()
    assert (data.facts[:, 2:4] < size - frame).all()
    assert_markers_where_facts_say(data, rules_of, least=200)
    image = trace(rules_of, 0, 59)
    assert image.targets.shape == (2, contour, 4)
    assert image.distractors.shape == (data.facts[59, 4], contour // 3, 4)
    assert image.label == data.labels[59]


def test_images_depend_on_seed_and_index_alone(official: Drawn) -> None:
    chunk = drawn(OFFICIAL, 50, first=100)
    assert np.array_equal(chunk.images, official.images[100:150])
    assert np.array_equal(chunk.labels, official.labels[100:150])
    assert np.array_equal(drawn(OFFICIAL, 1, first=4321).images[0], official.images[4321])
    other = drawn(OFFICIAL, 50, seed=1, first=100)
    assert (other.images != chunk.images).any(axis=(1, 2)).all()
    assert (other.labels != chunk.labels).any()


def test_threads_may_fill_slices_of_one_array(official: Drawn) -> None:
    images, labels = np.zeros((400, 32, 32), dtype=np.uint8), np.zeros(400, dtype=np.uint8)

    def fill(first: int) -> None:
        draw_images(OFFICIAL, 0, first, images[first : first + 50], labels[first : first + 50])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(fill, range(0, 400, 50)))
    assert np.array_equal(images, official.images[:400])
    assert np.array_equal(labels, official.labels[:400])


def test_images_are_those_first_made(official: Drawn) -> None:
    """If this fails for good reason, the law needs another version."""
    digest = hashlib.sha256(official.images[:1000].tobytes() + official.labels[:1000].tobytes())
    assert digest.hexdigest()[:16] == FINGERPRINT


FINGERPRINT = "3e7c30dd461419ed"


@pytest.mark.parametrize(
    ("size", "contour", "count", "fingerprint"),
    [
        (32, 6, 200, "4eccb3a02bf3e2ba"),
        (32, 9, 200, "eeed36553062ce12"),
        (64, 6, 40, "d94c963937860c36"),
        (64, 9, 40, "3f85ea8feb587930"),
        (64, 14, 20, "4250710b3dc099a5"),
        (128, 6, 20, "a45327940ebacfb9"),
        (128, 14, 40, "0ec209ddb71b4cc5"),
        (256, 6, 10, "34988bfc7f3e4e6f"),
        (256, 14, 20, "bdef93b815a27997"),
    ],
)
def test_images_of_all_sizes_are_those_first_made(
    size: int, contour: int, count: int, fingerprint: str
) -> None:
    """This law's images were compared with those of the original's own code."""
    data = drawn(find_law(size, contour, border_quirk=True), count)
    digest = hashlib.sha256(data.images.tobytes() + data.labels.tobytes())
    assert digest.hexdigest()[:16] == fingerprint


@pytest.mark.parametrize(
    ("size", "contour", "distractors"), [(32, 6, 10), (32, 9, 6), (32, 14, 5), (128, 14, 8)]
)
def test_distractors_asked_for(size: int, contour: int, distractors: int) -> None:
    rules_of = find_law(size, contour, border_quirk=True)
    assert rules_of.distractors == distractors
    assert rules_of.distractor_dashes == contour // 3


def test_machine_code_older_than_any_source_is_dropped(tmp_path: Path) -> None:
    """A function's machine code holds that of what it calls, and Numba looks at its own file."""
    (tmp_path / "__pycache__").mkdir()
    files = {"old": "__pycache__/a.nbi", "source": "a.py", "new": "__pycache__/b.nbi"}
    for time, name in enumerate(files.values(), start=1):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time, time))
    _drop_stale(tmp_path)
    assert not (tmp_path / files["old"]).exists()
    assert (tmp_path / files["new"]).exists()


def test_unknown_laws_are_refused() -> None:
    with pytest.raises(ValueError, match="size 48, expected one of"):
        find_law(48, 14, border_quirk=True)
    with pytest.raises(ValueError, match="10 dashes, expected one of"):
        find_law(32, 10, border_quirk=True)


def test_arrays_that_do_not_fit_are_refused() -> None:
    images, labels = np.zeros((3, 32, 32), dtype=np.uint8), np.zeros(3, dtype=np.uint8)
    with pytest.raises(ValueError, match="images is uint8"):
        draw_images(OFFICIAL, 0, 0, images[:2], labels)
    with pytest.raises(ValueError, match="images is float32"):
        draw_images(OFFICIAL, 0, 0, images.astype(np.float32), labels)
    with pytest.raises(ValueError, match="layouts is int64"):
        draw_images(OFFICIAL, 0, 0, images, labels, np.zeros((3, 4), dtype=np.int64))
