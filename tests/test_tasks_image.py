"""Image: CIFAR-10, gray in two roundings, and no code from a pickle."""

import itertools
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage

from lra.common.errors import DataError
from lra.tasks.base import Dataset
from lra.tasks.image import cifar
from lra.tasks.image.cifar import pillow_gray, tensorflow_gray
from lra.tasks.image.task import Image
from lra.tasks.pixels import Pixels
from lra.tasks.random_words import permutation
from made_data import (
    as_png,
    cifar_arrays,
    cifar_python,
    cifar_tables,
    real_data,
    write_archive,
    write_files,
    write_table,
)

PLANES = np.zeros((1, 3072), np.uint8)


def place(data_dir: Path, form: str = "archive") -> None:
    if form == "tables":
        cifar_tables(data_dir / "plain_text")
    elif form == "archive":
        write_archive(data_dir / "cifar-10-python.tar.gz", cifar_python())
    else:
        write_files(data_dir / "image", cifar_python())


@pytest.mark.parametrize("form", ["folder", "tables"])
def test_an_archive_and_other_forms_give_the_same_data(tmp_path: Path, form: str) -> None:
    place(tmp_path, form)
    task = Image()
    dataset = task.prepare(tmp_path)
    assert dataset.sizes == {"train": 90, "val": 10, "test": 20}
    assert dataset.source == "unofficial"
    assert dataset.unofficial_because.startswith("the checksum of its content")
    place(tmp_path / "other")
    assert Image().prepare(tmp_path / "other").fingerprint == dataset.fingerprint
    task.verify(dataset)


def test_batches_with_the_checksums_of_the_release_are_official(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path / "archive")
    batches = cifar.read_batches(tmp_path / "archive" / "cifar-10-python.tar.gz")
    monkeypatch.setattr(cifar, "BATCH", 20)
    for name, batch in batches.items():
        monkeypatch.setitem(cifar.OFFICIAL_BATCHES, name, cifar.batch_digests(*batch))
    archive = Image(source="official").prepare(tmp_path / "archive")
    cifar_tables(tmp_path / "tables", (3, 2, 1, 4, 0))
    tables = Image(source="official").prepare(tmp_path / "tables")
    assert tables.source == archive.source == "official"
    assert tables.fingerprint == archive.fingerprint
    cifar_tables(tmp_path / "twice", (3, 2, 2, 4, 0))
    assert Image().prepare(tmp_path / "twice").source == "unofficial"


def read_pixels(dataset: Dataset) -> dict[str, np.ndarray]:
    """Read all images of each split: (images, pixels)."""
    return {
        name: split.batch(np.arange(len(split))).inputs.numpy().reshape(len(split), 1024)
        for name, split in dataset.splits.items()
    }


def test_a_permutation_is_one_order_of_pixels_in_all_splits(tmp_path: Path) -> None:
    place(tmp_path)
    plain = Image().prepare(tmp_path)
    assert plain.fingerprint.startswith("cc16aa51"), "as before there was the option"
    for seed, start in ((0, [542, 191, 939, 360, 878]), (1, None)):
        task = Image(permutation=seed)
        permuted = task.prepare(tmp_path)
        order = np.array(permutation(seed, 2**63, 1024), dtype=np.int64)
        assert start is None or order[:5].tolist() == start, "the same on any machine"
        for name, pixels in read_pixels(plain).items():
            assert np.array_equal(read_pixels(permuted)[name], pixels[:, order])
        assert permuted.fingerprint != plain.fingerprint
        assert permuted.folder == plain.folder and permuted.baselines == plain.baselines
        task.verify(permuted)


@pytest.mark.parametrize(("channels", "count"), [("pillow", 1), ("colour", 3)])
def test_pixels_are_standardised_levels(tmp_path: Path, channels: Any, count: int) -> None:
    place(tmp_path)
    task = Image(channels=channels)
    assert (task.info.channels, task.info.vocab_size) == (count, None)
    batch = task.prepare(tmp_path).splits["test"].batch(np.array([3]))
    planes = cifar_arrays()[5][0][3].reshape(3, 1024).T
    if channels == "pillow":
        expected = (pillow_gray(planes) / 255 - 122.6 / 255) / (61.0 / 255)
    else:
        expected = (planes - np.array([125.3, 123.0, 113.9])) / np.array([63.0, 62.1, 66.7])
    np.testing.assert_allclose(batch.inputs.numpy(), expected, atol=1e-6)


def test_gray_in_two_roundings() -> None:
    """Worked by hand: (1, 2, 3) weighs 1.8149, 1.815 in fixed point; (3, 2, 1) 2.1847, 2.185."""
    known = np.array([[1, 2, 3], [3, 2, 1], [255, 255, 255], [0, 0, 0], [10, 200, 30], [255, 0, 0]])
    pixels = known.astype(np.uint8)[:, None]
    assert np.asarray(PillowImage.fromarray(pixels).convert("L")).tolist() == [
        [x] for x in (2, 2, 255, 0, 124, 76)
    ]
    assert pillow_gray(pixels).ravel().tolist() == [2, 2, 255, 0, 124, 76]
    assert tensorflow_gray(pixels).ravel().tolist() == [1, 2, 255, 0, 124, 76]


def test_splits_are_the_published_ones(tmp_path: Path) -> None:
    place(tmp_path)
    random, ordered = Image(split="random").prepare(tmp_path), Image(split="tfds").prepare(tmp_path)
    for dataset in (random, ordered):
        rows = [s.which.tolist() for s in dataset.splits.values() if isinstance(s, Pixels)]
        assert sorted(itertools.chain(*rows)) == list(range(120))
        assert rows[2] == list(range(100, 120))
    assert random.fingerprint != ordered.fingerprint
    val = random.splits["val"]
    assert isinstance(val, Pixels) and val.which[:6].tolist() == RANDOM_SPLIT


RANDOM_SPLIT = [14, 55, 0, 64, 77, 39]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data_batch_2", pickle.dumps({b"data": PLANES[:, :5], b"labels": [1]}), "shape"),
        ("data_batch_2", pickle.dumps({b"data": PLANES, b"labels": [10]}), "has label 10"),
        ("data_batch_4", None, "lacks data_batch_4"),
    ],
)
def test_damaged_or_missing_batches_are_named(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    files = cifar_python()
    del files[f"cifar-10-batches-py/{name}"]
    if content is not None:
        files[f"cifar-10-batches-py/{name}"] = content
    write_archive(tmp_path / "cifar-10-python.tar.gz", files)
    with pytest.raises(DataError, match=message):
        Image().prepare(tmp_path)


@pytest.mark.thorough
def test_the_original_images(tmp_path: Path) -> None:
    with tarfile.open(real_data("cifar-10-batches-py.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    task = Image(source="official")
    dataset = task.prepare(tmp_path)
    assert dataset.source == "official"
    assert dataset.sizes == {"train": 45_000, "val": 5_000, "test": 10_000}
    assert dataset.fingerprint.startswith("65deeb48")
    images = np.load(dataset.folder / "images.npy")
    assert images[:50_000].mean() == pytest.approx(122.6, abs=0.05)
    assert images[:50_000].std() == pytest.approx(61.0, abs=0.05)
    batches = cifar.read_batches(tmp_path / "cifar-10-batches-py")
    for split, order in (("train", (3, 2, 1, 4, 0)), ("test", (0,))):  # as Hugging Face has them
        images, labels = batches[split]
        rows = np.concatenate([np.arange(i * 10_000, (i + 1) * 10_000) for i in order])
        files = [as_png(pixels) for pixels in images[rows].reshape(-1, 32, 32, 3)]
        write_table(tmp_path / "tables" / "plain_text", split, "img", files, labels[rows])
    tables = task.prepare(tmp_path / "tables")
    assert (tables.source, tables.fingerprint) == ("official", dataset.fingerprint)
