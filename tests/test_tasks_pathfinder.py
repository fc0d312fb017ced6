"""Pathfinder's data: generated in chunks, exported, and read in the official file structure."""

from __future__ import annotations

import io
import itertools
import json
import logging
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.errors import DataError
from lra.record.schema import DataRecord
from made_data import write_archive
from tasks.base import Dataset
from tasks.baselines import cross_fitted_trees
from tasks.cache import Build
from tasks.pathfinder.draw import draw_images
from tasks.pathfinder.generate import generate
from tasks.pathfinder.markers import find_markers
from tasks.pathfinder.official import describe_unrelated_labels
from tasks.pathfinder.pathx import PathX
from tasks.pathfinder.task import Pathfinder
from tasks.splits import Pixels

COUNT = 60
FOLDER = "pathfinder32/curv_contour_length_14"


def small(**options: Any) -> Pathfinder:
    return Pathfinder(**{"examples": COUNT, **options})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small().prepare(tmp_path_factory.mktemp("made"))


def arrays(dataset: Dataset) -> dict[str, np.ndarray]:
    return {path.stem: np.load(path) for path in dataset.folder.glob("*.npy")}


def exported(dataset: Dataset, folder: Path, **options: Any) -> Path:
    (place,) = small(**options).export(dataset, folder)
    return place


def read(folder: Path, **options: Any) -> Dataset:
    """Read files in the official file structure for what they are."""
    return Pathfinder(**options).prepare(folder)


def same(one: Dataset, other: Dataset) -> bool:
    a, b = arrays(one), arrays(other)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_sizes_and_the_two_ways_to_split(made: Dataset, tmp_path: Path) -> None:
    assert made.sizes == {"train": 48, "val": 6, "test": 6}
    in_order = small(split="in-order").prepare(made.folder.parent.parent)
    for dataset in (made, in_order):
        rows = [s.which.tolist() for s in dataset.splits.values() if isinstance(s, Pixels)]
        assert sorted(itertools.chain(*rows)) == list(range(COUNT))
    assert in_order.folder == made.folder
    val = in_order.splits["val"]
    assert isinstance(val, Pixels) and val.which.tolist() == list(range(48, 54))
    assert in_order.fingerprint != made.fingerprint


def test_levels_are_real_numbers_or_tokens(made: Dataset) -> None:
    data_dir = made.folder.parent.parent
    tokens = small(pixels="embedding")
    assert (tokens.info.vocab_size, tokens.info.channels) == (256, None)
    levels = tokens.prepare(data_dir).splits["test"].batch(np.array([1, 4]))
    scaled = made.splits["test"].batch(np.array([1, 4]))
    assert levels.inputs.shape == (2048,) and scaled.inputs.shape == (2048, 1)
    np.testing.assert_allclose(scaled.inputs[:, 0], (levels.inputs / 255 - 0.5) / 0.5, atol=1e-6)


def test_a_permutation_is_no_other_data(made: Dataset) -> None:
    permuted = small(permutation=3).prepare(made.folder.parent.parent)
    assert permuted.folder == made.folder and permuted.baselines == made.baselines
    assert permuted.fingerprint != made.fingerprint
    orders: list[np.ndarray] = []
    for name, split in permuted.splits.items():
        assert isinstance(split, Pixels) and split.order is not None
        moved, plain = (one.batch(np.array([1, 4])) for one in (split, made.splits[name]))
        images = plain.inputs.reshape(2, 1024)
        assert moved.inputs.reshape(2, 1024).tolist() == images[:, split.order].tolist()
        assert moved.labels.tolist() == plain.labels.tolist()
        orders.append(split.order.numpy())
    assert all(np.array_equal(order, orders[0]) for order in orders)


def test_a_larger_set_begins_with_the_smaller(made: Dataset, tmp_path: Path) -> None:
    larger = arrays(small(examples=80).prepare(tmp_path))
    assert np.array_equal(larger["images"][:COUNT], arrays(made)["images"])


@pytest.mark.parametrize(
    "options", [{"law": "clean"}, {"data_seed": 1}, {"contour": 9}, {"size": 64}]
)
def test_every_option_of_the_law_makes_other_data(
    made: Dataset, tmp_path: Path, options: dict[str, Any]
) -> None:
    other = small(**options).prepare(tmp_path)
    assert not same(made, other)
    assert other.source == ("generated, clean law" if "law" in options else "generated")
    small(**options).verify(other)


def test_path_x_is_pathfinder_at_its_size(tmp_path: Path) -> None:
    task = PathX(examples=10)
    assert (task.info.max_length, task.info.grid, task.info.name) == (16_384, (128, 128), "pathx")
    dataset = task.prepare(tmp_path)
    assert dataset.splits["train"].batch(np.array([0])).inputs.shape == (16_384, 1)
    assert same(dataset, Pathfinder(size=128, examples=10).prepare(tmp_path))


def build(folder: Path, workers: int, count: int = 700) -> Build:
    folder.mkdir()
    made = Build(folder, "generated")
    generate(made, small(contour=6).law, 3, count, workers)
    return made


def test_workers_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.pathfinder.generate.PIXELS_A_CHUNK", 32 * 32 * 30)
    one, three = (build(tmp_path / str(n), n).folder for n in (1, 3))
    for name in ("images.npy", "labels.npy", "rows.npy"):
        assert (one / name).read_bytes() == (three / name).read_bytes()
    assert len(np.unique(np.load(one / "images.npy").reshape(700, -1), axis=0)) == 700


def test_what_was_drawn_is_not_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.pathfinder.generate.PIXELS_A_CHUNK", 32 * 32 * 10)
    monkeypatch.setattr("tasks.pathfinder.generate.CHUNKS_A_MARK", 1)
    calls: list[int] = []

    def interrupted(law: Any, seed: int, first: int, images: Any, labels: Any) -> None:
        if len(labels):  # without, it is compiled
            calls.append(first)
        if len(calls) == 4:
            raise KeyboardInterrupt
        draw_images(law, seed, first, images, labels)

    monkeypatch.setattr("tasks.pathfinder.generate.draw_images", interrupted)
    monkeypatch.setattr("tasks.pathfinder.generate.core_count", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        small().prepare(tmp_path)
    done = calls[:3]
    dataset = small().prepare(tmp_path)
    assert sorted(set(calls)) == list(range(0, COUNT, 10))
    assert all(calls.count(first) == 1 for first in done)
    small().verify(dataset)


def test_an_export_reads_back_to_the_same_cache(made: Dataset, tmp_path: Path) -> None:
    place = exported(made, tmp_path)
    assert place == tmp_path / FOLDER
    first = (place / "metadata" / "0.npy").read_text().splitlines()[0].split()
    assert first == [
        "imgs/0",
        "sample_0.png",
        "0",
        first[3],
        "1.0",
        "14",
        "4",
        "2",
        "0.5",
        "1",
        "1",
    ]
    back = read(tmp_path)
    assert same(made, back)
    assert back.source == "generated", "an export never passes for the release"
    with pytest.raises(DataError, match="other data than the official"):
        Pathfinder(source="official").prepare(tmp_path)


def unmarked(made: Dataset, folder: Path) -> Path:
    place = exported(made, folder)
    (place / "exported-from").unlink()
    return place


@pytest.mark.parametrize("below", ["", "lra_release", "lra_release/lra_release"])
def test_the_release_may_lie_anywhere_near(made: Dataset, tmp_path: Path, below: str) -> None:
    unmarked(made, tmp_path / below)
    dataset = read(tmp_path)
    assert dataset.source == "unofficial"
    assert dataset.unofficial_because == "it lists 60 images, the release 200,000"
    assert same(made, dataset)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a small number for that of the release."""
    monkeypatch.setattr("tasks.pathfinder.official.OFFICIAL_COUNT", COUNT)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Images of a seed that no release is compared with."""
    return small(data_seed=500).prepare(tmp_path_factory.mktemp("theirs"))


@pytest.mark.usefixtures("few")
def test_official_is_what_has_the_number_and_is_not_ours(theirs: Dataset, tmp_path: Path) -> None:
    unmarked(theirs, tmp_path)
    dataset = Pathfinder(source="official").prepare(tmp_path)
    assert (dataset.source, dataset.unofficial_because) == ("official", "")


def empty_first(place: Path) -> None:
    (place / "imgs/0/sample_0.png").write_bytes(b"")


def first_line_last(place: Path) -> None:
    path = place / "metadata/0.npy"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[1:], lines[0]]))


def first_line_lost(place: Path) -> None:
    path = place / "metadata/0.npy"
    path.write_text("\n".join(["junk", *path.read_text().splitlines()[1:]]))


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("change", [None, empty_first, first_line_last, first_line_lost])
def test_our_images_are_known_without_a_mark(made: Dataset, tmp_path: Path, change: Any) -> None:
    place = unmarked(made, tmp_path)
    if change is not None:
        change(place)
    reason = "it holds what this suite draws with task.data_seed=0, task.law=lra"
    assert read(tmp_path).unofficial_because == reason


@pytest.mark.usefixtures("few")
def test_clean_images_and_other_seeds_are_known_too(tmp_path: Path) -> None:
    unmarked(small(law="clean", data_seed=99).prepare(tmp_path / "made"), tmp_path / "out")
    assert "data_seed=99, task.law=clean" in read(tmp_path / "out").unofficial_because


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (r" 14 4 2 ", " 6 2 2 ", "its metadata says that contours have 6 dashes, expected 14"),
        (r"(png \d+) \d", r"\1 1", "all its labels are 1"),
    ],
)
def test_other_images_are_not_official(
    theirs: Dataset, tmp_path: Path, before: str, after: str, reason: str
) -> None:
    path = unmarked(theirs, tmp_path) / "metadata" / "0.npy"
    path.write_text(re.sub(before, after, path.read_text()))
    assert read(tmp_path).unofficial_because == reason


@pytest.mark.parametrize(
    ("size", "count", "right", "ones", "alarm"),
    [
        (128, 200_000, 0.50, 0.5, True),
        (128, 200_000, 0.51, 0.5, True),
        (128, 200_000, 0.53, 0.5, False),
        (128, 200_000, 0.60, 0.6, True),
        (128, 60, 0.40, 0.5, False),
        (256, 200_000, 0.50, 0.5, False),
    ],
)
def test_labels_that_belong_to_other_images_are_known(
    size: int, count: int, right: float, ones: float, alarm: bool
) -> None:
    """All predictions but a share of them are right; few images raise no alarm by chance."""
    rng = np.random.default_rng(0)
    labels = (np.arange(count) < ones * count).astype(np.uint8)
    predictions = labels ^ rng.permutation(np.arange(count) >= round(right * count))
    assert (
        "do not belong to its images" in describe_unrelated_labels(labels, predictions, size)
    ) == alarm


@pytest.mark.usefixtures("few")
def test_such_labels_are_not_official(
    theirs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.pathfinder.official.LEAST_GAIN", 1)
    monkeypatch.setattr("tasks.pathfinder.official.SEEDS_TRIED", 0)
    unmarked(theirs, tmp_path)
    assert "do not belong to its images" in read(tmp_path).unofficial_because


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("change", ["image", "label", "mark"])
def test_a_mark_counts_for_the_files_it_was_written_for(
    theirs: Dataset, tmp_path: Path, change: str
) -> None:
    place = exported(theirs, tmp_path, data_seed=500)
    if change == "image":
        first, second = (place / f"imgs/0/sample_{i}.png" for i in (0, 1))
        first.write_bytes(second.read_bytes())
    elif change == "label":
        path = place / "metadata/0.npy"
        lines = path.read_text().splitlines()
        lines[0] = lines[0].replace("png 0 0", "png 0 2").replace("png 0 1", "png 0 0")
        path.write_text("\n".join([lines[0].replace("png 0 2", "png 0 1"), *lines[1:]]))
    else:
        (place / "exported-from").write_text("generated\n")
    dataset = read(tmp_path)
    assert dataset.source == "unofficial"
    assert "not those that exported-from beside them" in dataset.unofficial_because
    assert DataRecord.of(dataset).unofficial_because == dataset.unofficial_because


def test_a_mark_makes_nothing_official(made: Dataset, tmp_path: Path) -> None:
    mark = exported(made, tmp_path) / "exported-from"
    mark.write_text(mark.read_text().replace('"generated"', '"official"'))
    assert read(tmp_path).unofficial_because == "it lists 60 images, the release 200,000"


def test_a_mark_names_one_of_the_known_sources(made: Dataset, tmp_path: Path) -> None:
    mark = exported(made, tmp_path) / "exported-from"
    mark.write_text(mark.read_text().replace('"generated"', '"official "'))
    assert read(tmp_path).source == "unofficial"


def test_exports_lie_side_by_side(made: Dataset, tmp_path: Path) -> None:
    exported(made, tmp_path)
    easy = small(contour=6)
    easy.export(easy.prepare(tmp_path / "made"), tmp_path)
    assert read(tmp_path).source == "generated"
    assert read(tmp_path, contour=6).source == "generated"


def test_an_unofficial_set_keeps_its_reason_in_an_export(made: Dataset, tmp_path: Path) -> None:
    unmarked(made, tmp_path / "a")
    again = read(tmp_path / "a")
    exported(again, tmp_path / "b")
    assert read(tmp_path / "b").unofficial_because == again.unofficial_because


@pytest.mark.parametrize("marked", [False, True])
def test_the_whole_archive_will_do(made: Dataset, tmp_path: Path, marked: bool) -> None:
    place = (exported if marked else unmarked)(made, tmp_path / "unpacked")
    top = "lra_release/lra_release"
    files = {
        f"{top}/{path.relative_to(tmp_path / 'unpacked')}": path.read_bytes()
        for path in sorted(place.rglob("*"), reverse=True)
        if path.is_file()
    }
    easy = {name.replace("length_14", "length_9"): content for name, content in files.items()}
    archive = write_archive(tmp_path / "data" / "a.gz", {**easy, **files})
    archive.rename(tmp_path / "data" / "lra_release.gz")
    dataset = read(tmp_path / "data")
    assert same(made, dataset)
    assert dataset.source == ("generated" if marked else "unofficial")


def test_metadata_may_be_a_real_array(made: Dataset, tmp_path: Path) -> None:
    path = unmarked(made, tmp_path) / "metadata" / "0.npy"
    table = np.array([line.split() for line in path.read_text().splitlines()])
    np.save(path, table)
    assert path.read_bytes().startswith(b"\x93NUMPY")
    assert same(made, read(tmp_path))


def test_metadata_that_needs_unpickling_is_refused(made: Dataset, tmp_path: Path) -> None:
    path = unmarked(made, tmp_path) / "metadata" / "0.npy"
    content = io.BytesIO()
    np.save(content, np.array([["imgs/0", object()]], dtype=object), allow_pickle=True)
    path.write_bytes(content.getvalue())
    with pytest.raises(DataError, match=r"0\.npy is damaged"):
        read(tmp_path)


def test_batches_are_in_the_order_of_their_numbers(made: Dataset, tmp_path: Path) -> None:
    place = unmarked(made, tmp_path)
    lines = (place / "metadata" / "0.npy").read_text().splitlines()
    for batch, listed in ((10, lines[40:]), (9, lines[20:40]), (2, lines[:20])):
        (place / "metadata" / f"{batch}.npy").write_text("\r\n".join(listed))
    (place / "metadata" / "0.npy").unlink()
    assert same(made, read(tmp_path))


def test_empty_images_are_skipped_counted_and_named(
    made: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tasks")
    place = unmarked(made, tmp_path)
    (place / "imgs/0/sample_17.png").write_bytes(b"")
    dataset = read(tmp_path)
    assert dataset.notes["images skipped"] == 1
    assert "sample_17.png: the file is empty" in caplog.text
    skipped = json.loads((dataset.folder / "manifest.json").read_text())["skipped"]
    assert len(skipped) == 1
    rows = np.concatenate([s.which for s in dataset.splits.values() if isinstance(s, Pixels)])
    assert sorted(rows.tolist()) == [i for i in range(COUNT) if i != 17]
    Pathfinder().verify(dataset)


def test_missing_images_are_skipped_and_counted(made: Dataset, tmp_path: Path) -> None:
    (unmarked(made, tmp_path) / "imgs/0/sample_3.png").unlink()
    assert read(tmp_path).notes["images skipped"] == 1


def test_malformed_metadata_is_named(
    made: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tasks")
    path = unmarked(made, tmp_path) / "metadata" / "0.npy"
    lines = path.read_text().splitlines()
    lines[4] = "imgs/0 sample_4.png 4 maybe"
    path.write_text("\n".join(lines))
    dataset = read(tmp_path)
    assert dataset.notes["lines of metadata skipped"] == 1
    assert "0.npy:5: got 'imgs/0 sample_4.png 4 maybe'" in caplog.text
    assert dataset.notes["images that no metadata lists"] == 1


def damage_many(place: Path) -> None:
    for i in range(5):
        (place / f"imgs/0/sample_{i}.png").write_bytes(b"")


def damage_one(place: Path) -> None:
    image = place / "imgs/0/sample_5.png"
    image.write_bytes(image.read_bytes()[:60])


def damage_metadata(place: Path) -> None:
    (place / "metadata/0.npy").write_text("<html>\n")


def damage_header(place: Path) -> None:
    (place / "metadata/0.npy").write_bytes(b"\x93NUMPY\x01\x00\x0b\x00{'descr': (\n")


def damage_large(place: Path) -> None:
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 0, 0, 0, 0)
    chunk = b"IHDR" + header
    body = struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    (place / "imgs/0/sample_5.png").write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def damage_size(place: Path) -> None:
    from PIL import Image

    Image.new("L", (64, 64)).save(place / "imgs/0/sample_5.png")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_many, "5 of 60 images"),
        (damage_one, r"sample_5\.png is damaged"),
        (damage_metadata, "no metadata lists an image"),
        (damage_header, r"0\.npy is damaged"),
        (damage_large, r"sample_5\.png is"),
        (damage_size, r"sample_5\.png is \(64, 64\), expected \(32, 32\)"),
    ],
)
def test_damaged_releases_are_refused(
    made: Dataset, tmp_path: Path, damage: Any, message: str
) -> None:
    damage(unmarked(made, tmp_path))
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_official_images_have_one_law() -> None:
    with pytest.raises(ValueError, match="source=generate"):
        Pathfinder(source="official", law="clean")
    with pytest.raises(ValueError, match="source=generate"):
        Pathfinder(source="official", data_seed=1)


def test_without_files_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, source="official", size=128, contour=9)
    for text in ("pathfinder128/curv_contour_length_9", "lra_release", "7.7 GB", "generate"):
        assert text in str(caught.value)


def test_an_archive_with_a_name_that_is_nearly_right_is_named(tmp_path: Path) -> None:
    (tmp_path / "LRA_release.zip").touch()
    with pytest.raises(DataError, match=r"almost such a name: .*LRA_release\.zip"):
        Pathfinder().prepare(tmp_path)


def test_an_export_overwrites_no_release(made: Dataset, tmp_path: Path) -> None:
    place = unmarked(made, tmp_path)
    for mark in (place, tmp_path):
        (mark / "exported-from").write_text("generated\n")
        with pytest.raises(DataError, match="an export would overwrite"):
            exported(made, tmp_path)


def test_a_changed_image_does_not_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.cache import Cache

    dataset = small().prepare(tmp_path)
    images = np.lib.format.open_memmap(dataset.folder / "images.npy", mode="r+")
    images[33] = images[34]
    images.flush()
    with pytest.raises(DataError, match=r"checksum of images\.npy differs"):
        small().verify(dataset)
    monkeypatch.setattr(Cache, "check_files", lambda *args, **kwargs: None)
    with pytest.raises(DataError, match="image 33 is not what its law draws"):
        small().verify(dataset)


@pytest.mark.parametrize("size", [32, 64, 128])
def test_markers_are_found_from_pixels(size: int) -> None:
    task = Pathfinder(size=size)  # pyright: ignore[reportArgumentType]
    count = 300
    images = np.zeros((count, size, size), np.uint8)
    labels, facts = np.zeros(count, np.uint8), np.zeros((count, 5), np.int64)
    draw_images(task.law, 0, 0, images, labels, facts)
    found = find_markers(images.reshape(count, -1, 1), size, task.law.marker_radius)
    there = facts[:, :4].reshape(-1, 2, 2)
    error = [
        np.abs(found.reshape(-1, 2, 2) - pair).max(axis=(1, 2)) for pair in (there, there[:, ::-1])
    ]
    assert (np.minimum(*error) <= 1).mean() > 0.97


@pytest.mark.thorough
def test_marker_positions_give_the_label_away(tmp_path: Path) -> None:
    """About 68 % on the hard level at 32 pixels; little more than chance under the clean law."""
    dataset = Pathfinder(examples=20_000).prepare(tmp_path)
    assert dataset.baselines["marker positions"] == pytest.approx(68, abs=3)
    found = arrays(dataset)
    assert describe_unrelated_labels(found["labels"], found["marker_predictions"], 32) == ""
    markers = find_markers(found["images"], 32, small().law.marker_radius)
    shuffled = np.random.default_rng(0).permutation(found["labels"])
    assert "do not belong" in describe_unrelated_labels(
        shuffled, cross_fitted_trees(markers, shuffled), 32
    )
    clean = Pathfinder(examples=20_000, law="clean").prepare(tmp_path)
    assert clean.baselines["marker positions"] < 61
