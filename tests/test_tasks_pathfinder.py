"""Pathfinder's data: generated in chunks, exported, and read in the official file structure."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lra.common.errors import DataError
from lra.tasks.base import Dataset
from lra.tasks.baselines import cross_fitted_trees
from lra.tasks.pathfinder import Pathfinder, PathX
from lra.tasks.pathfinder.draw import draw_images, generate
from lra.tasks.pathfinder.files import describe_unrelated_labels
from lra.tasks.pathfinder.markers import find_markers
from lra.tasks.pixels import Pixels
from lra.tasks.preparation import Build
from made_data import png, write_archive

COUNT = 60
FOLDER = "pathfinder32/curv_contour_length_14"


def small(**options: Any) -> Pathfinder:
    return Pathfinder(**{"examples": COUNT, **options})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small().prepare(tmp_path_factory.mktemp("made"))


def arrays(dataset: Dataset) -> dict[str, np.ndarray]:
    return {path.stem: np.load(path) for path in dataset.folder.glob("*.npy")}


def same(one: Dataset, other: Dataset) -> bool:
    a, b = arrays(one), arrays(other)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def rows_of(dataset: Dataset) -> list[int]:
    parts = [split.which for split in dataset.splits.values() if isinstance(split, Pixels)]
    return np.concatenate(parts).tolist()


def export(dataset: Dataset, folder: Path, *, marked: bool = False) -> Path:
    (place,) = small().export(dataset, folder)
    if not marked:
        (place / "exported-from").unlink()
    return place


def read(folder: Path, **options: Any) -> Dataset:
    """Read files in the official file structure for what they are."""
    return Pathfinder(**options).prepare(folder)


def edit_lines(place: Path, change: Callable[[list[str]], list[str]]) -> None:
    path = place / "metadata" / "0.npy"
    path.write_text("\n".join(change(path.read_text().splitlines())))


def test_the_two_ways_to_split_and_to_show_levels(made: Dataset) -> None:
    data_dir = made.folder.parent.parent
    other = small(split="in-order", pixels="embedding")
    assert (other.info.vocab_size, other.info.channels) == (256, None)
    dataset = other.prepare(data_dir)
    assert made.sizes == dataset.sizes == {"train": 48, "val": 6, "test": 6}
    assert rows_of(dataset) == sorted(rows_of(made)) == list(range(COUNT)) != rows_of(made)
    assert dataset.folder == made.folder and dataset.fingerprint != made.fingerprint
    levels = small(pixels="embedding").prepare(data_dir).splits["test"].batch([1, 4]).inputs
    scaled = made.splits["test"].batch([1, 4]).inputs
    assert levels.shape == (2048,) and scaled.shape == (2048, 1)
    np.testing.assert_allclose(scaled[:, 0], (levels / 255 - 0.5) / 0.5, atol=1e-6)


def test_path_x_is_pathfinder_at_its_size(tmp_path: Path) -> None:
    task = PathX(examples=10)
    assert (task.info.max_length, task.info.grid, task.info.name) == (16_384, (128, 128), "pathx")
    assert same(task.prepare(tmp_path), Pathfinder(size=128, examples=10).prepare(tmp_path))


def test_longer_images_are_drawn_at_a_size_that_there_is() -> None:
    options: dict[str, Any] = {"size": None, "permutation": None, "data_seed": 0}
    changed = {"source": "generate", "data_seed": 1, "examples": 90, "size": 64}
    assert Pathfinder.fresh(options, length=4096, examples=9) == changed
    with pytest.raises(DataError, match="there are images of 1024, 4096, 16384, 65536 pixels"):
        Pathfinder.fresh(options, length=4097, examples=9)
    with pytest.raises(DataError, match="an order of 1024 pixels"):
        Pathfinder.fresh({**options, "permutation": 3}, length=4096, examples=9)


def test_workers_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lra.tasks.pathfinder.draw.PIXELS_A_CHUNK", 32 * 32 * 30)
    folders = [tmp_path / str(workers) for workers in (1, 3)]
    for workers, folder in zip((1, 3), folders, strict=True):
        folder.mkdir()
        generate(Build(folder, "generated"), small(contour=6).law, 3, 200, workers)
    for name in ("images.npy", "labels.npy", "rows.npy"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_what_was_drawn_is_not_drawn_again(
    made: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lra.tasks.pathfinder.draw.PIXELS_A_CHUNK", 32 * 32 * 10)
    monkeypatch.setattr("lra.tasks.pathfinder.draw.CHUNKS_A_MARK", 1)
    calls: list[int] = []

    def interrupted(law: Any, seed: int, first: int, images: Any, labels: Any) -> None:
        if len(labels):  # without, it is compiled
            calls.append(first)
        if len(calls) == 4:
            raise KeyboardInterrupt
        draw_images(law, seed, first, images, labels)

    monkeypatch.setattr("lra.tasks.pathfinder.draw.draw_images", interrupted)
    monkeypatch.setattr("lra.tasks.pathfinder.draw.core_count", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        small().prepare(tmp_path)
    done = calls[:3]
    assert same(made, small().prepare(tmp_path))
    assert sorted(set(calls)) == list(range(0, COUNT, 10))
    assert all(calls.count(first) == 1 for first in done)


def test_an_export_reads_back_to_the_same_cache(made: Dataset, tmp_path: Path) -> None:
    place = export(made, tmp_path, marked=True)
    assert place == tmp_path / FOLDER
    label = str(arrays(made)["labels"][0])
    line = f"imgs/0 sample_0.png 0 {label} 1.0 14 4 2 0.5 1 1"
    assert (place / "metadata" / "0.npy").read_text().splitlines()[0] == line
    easy = small(contour=6)
    easy.export(easy.prepare(tmp_path / "made"), tmp_path)  # side by side
    back = read(tmp_path)
    assert same(made, back)
    assert back.source == read(tmp_path, contour=6).source == "generated", "never the release"
    with pytest.raises(DataError, match="other data than the official"):
        Pathfinder(source="official").prepare(tmp_path)


def test_an_export_overwrites_no_release(made: Dataset, tmp_path: Path) -> None:
    place = export(made, tmp_path)
    (place / "exported-from").write_text("generated\n")
    with pytest.raises(DataError, match="an export would overwrite"):
        export(made, tmp_path)


@pytest.mark.parametrize("marked", [False, True])
def test_the_whole_archive_will_do(made: Dataset, tmp_path: Path, marked: bool) -> None:
    place = export(made, tmp_path / "unpacked", marked=marked)
    files = {
        f"lra_release/lra_release/{path.relative_to(tmp_path / 'unpacked')}": path.read_bytes()
        for path in sorted(place.rglob("*"), reverse=True)
        if path.is_file()
    }
    easy = {name.replace("length_14", "length_9"): content for name, content in files.items()}
    archive = write_archive(tmp_path / "data" / "a.gz", {**easy, **files})
    archive.rename(tmp_path / "data" / "lra_release.gz")
    dataset = read(tmp_path / "data")
    assert same(made, dataset)
    assert dataset.source == ("generated" if marked else "unofficial")


def test_official_is_what_has_the_number(
    made: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lra.tasks.pathfinder.files.OFFICIAL_COUNT", COUNT)
    export(made, tmp_path)
    dataset = Pathfinder(source="official").prepare(tmp_path)
    assert (dataset.source, dataset.unofficial_because) == ("official", "")


@pytest.mark.parametrize(
    ("size", "count", "right", "ones", "alarm"),
    [
        (128, 200_000, 0.51, 0.5, True),
        (128, 200_000, 0.53, 0.5, False),
        (128, 200_000, 0.60, 0.6, True),
        (128, 60, 0.40, 0.5, False),
    ],
)
def test_labels_that_belong_to_other_images_are_known(
    size: int, count: int, right: float, ones: float, alarm: bool
) -> None:
    """All predictions but a share of them are right; few images raise no alarm by chance."""
    rng = np.random.default_rng(0)
    labels = (np.arange(count) < ones * count).astype(np.uint8)
    predictions = labels ^ rng.permutation(np.arange(count) >= round(right * count))
    found = describe_unrelated_labels(labels, predictions, size)
    assert ("do not belong to its images" in found) == alarm


def test_batches_are_in_the_order_of_their_numbers(made: Dataset, tmp_path: Path) -> None:
    place = export(made, tmp_path)
    lines = (place / "metadata" / "0.npy").read_text().splitlines()
    for batch, listed in ((10, lines[40:]), (9, lines[20:40]), (2, lines[:20])):
        (place / "metadata" / f"{batch}.npy").write_text("\r\n".join(listed))
    (place / "metadata" / "0.npy").unlink()
    assert same(made, read(tmp_path))


def test_what_cannot_be_read_is_counted_and_named(made: Dataset, tmp_path: Path) -> None:
    (export(made, tmp_path / "a") / "imgs/0/sample_17.png").write_bytes(b"")
    dataset = read(tmp_path / "a")
    assert dataset.notes["images skipped"] == 1
    (skipped,) = json.loads((dataset.folder / "manifest.json").read_text())["skipped"]
    assert skipped.endswith("'imgs/0/sample_17.png' is missing or empty")
    assert sorted(rows_of(dataset)) == [i for i in range(COUNT) if i != 17]
    assert Pathfinder().verify(dataset)
    bad = "imgs/0 sample_4.png 4 maybe"
    edit_lines(export(made, tmp_path / "b"), lambda lines: [*lines[:4], bad, *lines[5:]])
    dataset = read(tmp_path / "b")
    assert dataset.notes["lines of metadata skipped"] == 1
    (skipped,) = json.loads((dataset.folder / "manifest.json").read_text())["skipped"]
    assert f"0.npy:5: got {bad!r}" in skipped


@pytest.mark.parametrize(
    ("names", "content", "message"),
    [
        ([f"imgs/0/sample_{i}.png" for i in range(5)], b"", "5 of 60 images"),
        (["imgs/0/sample_5.png"], png((64, 64)), r"is \(64, 64\), expected \(32, 32\)"),
        (["metadata/0.npy"], b"<html>\n", "no metadata lists an image"),
    ],
)
def test_damaged_releases_are_refused(
    made: Dataset, tmp_path: Path, names: list[str], content: bytes, message: str
) -> None:
    place = export(made, tmp_path)
    for name in names:
        (place / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, source="official", size=128, contour=9)
    for text in ("pathfinder128/curv_contour_length_9", "lra_release", "7.7 GB", "generate"):
        assert text in str(caught.value)
    (tmp_path / "LRA_release.zip").touch()
    with pytest.raises(DataError, match=r"almost such a name: .*LRA_release\.zip"):
        Pathfinder().prepare(tmp_path)


def test_a_changed_image_does_not_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = small().prepare(tmp_path)
    images = np.lib.format.open_memmap(dataset.folder / "images.npy", mode="r+")
    images[33] = images[34]
    images.flush()
    with pytest.raises(DataError, match=r"checksum of images\.npy differs"):
        small().verify(dataset)
    monkeypatch.setattr("lra.tasks.cache.Cache.check_files", lambda *_, **__: None)
    with pytest.raises(DataError, match="image 33 is not what its law draws"):
        small().verify(dataset)


@pytest.mark.parametrize("size", [32, 128])
def test_markers_are_found_from_pixels(size: int) -> None:
    task, count = small(size=size), 200
    images = np.zeros((count, size, size), np.uint8)
    labels, layouts = np.zeros(count, np.uint8), np.zeros((count, 5), np.int64)
    draw_images(task.law, 0, 0, images, labels, layouts)
    found = find_markers(images.reshape(count, -1, 1), size, task.law.marker_radius)
    there = layouts[:, :4].reshape(-1, 2, 2)
    error = [
        np.abs(found.reshape(-1, 2, 2) - pair).max(axis=(1, 2)) for pair in (there, there[:, ::-1])
    ]
    assert (np.minimum(*error) <= 1).mean() > 0.96


@pytest.mark.thorough
def test_marker_positions_give_the_label_away(tmp_path: Path) -> None:
    """About 68 % on the hard level at 32 pixels; little more than chance under the clean law."""
    dataset = Pathfinder(examples=20_000).prepare(tmp_path)
    assert dataset.baselines["marker positions"] == pytest.approx(68, abs=3)
    found = arrays(dataset)
    assert describe_unrelated_labels(found["labels"], found["marker_predictions"], 32) == ""
    markers = find_markers(found["images"], 32, small().law.marker_radius)
    shuffled = np.random.default_rng(0).permutation(found["labels"])
    predictions = cross_fitted_trees(markers, shuffled)
    assert "do not belong" in describe_unrelated_labels(shuffled, predictions, 32)
    clean = Pathfinder(examples=20_000, law="clean").prepare(tmp_path)
    assert clean.baselines["marker positions"] < 61
