"""Image: CIFAR-10 in both its versions, gray in three roundings, and no code from a pickle."""

from __future__ import annotations

import hashlib
import itertools
import pickle
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage

from common.errors import DataError
from lra.runtime.errors import UserError
from made_data import (
    as_png,
    cifar_arrays,
    cifar_binary,
    cifar_python,
    cifar_tables,
    real_data,
    write_archive,
    write_files,
    write_table,
)
from requested import compose
from tasks.base import Dataset, Split
from tasks.image import cifar
from tasks.image.cifar import pillow_gray, tensorflow_gray, torchvision_gray
from tasks.image.task import Image, tfds_order
from tasks.splits import Pixels

MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


def place(data_dir: Path, kind: str) -> None:
    version, form = kind.split()
    if version == "Parquet":
        cifar_tables(data_dir / ("plain_text" if form == "folder" else ""))
        return
    files = {"python": cifar_python, "binary": cifar_binary}[version]()
    if form == "archive":
        write_archive(data_dir / f"cifar-10-{version}.tar.gz", files)
    else:
        write_files(data_dir / "image", files)


KINDS = ["python archive", "binary archive", "python folder", "binary folder"]
KINDS += ["Parquet folder", "Parquet files"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_version_gives_the_same_data(tmp_path: Path, kind: str) -> None:
    place(tmp_path, kind)
    task = Image()
    dataset = task.prepare(tmp_path)
    assert dataset.sizes == {"train": 90, "val": 10, "test": 20}
    assert dataset.source == "unofficial"
    assert dataset.unofficial_because.startswith("the checksum of its content")
    place(tmp_path / "other", "python archive")
    assert Image().prepare(tmp_path / "other").fingerprint == dataset.fingerprint
    task.verify(dataset)


def test_training_batches_in_a_table_are_put_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path / "archive", "python archive")
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


def test_a_table_of_something_else_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    write_table(tmp_path / "plain_text", "train", "text", ["a review"], [1])
    with pytest.raises(DataError, match=r"no official files of image .*train\*\.parquet \(with"):
        Image(source="official").prepare(tmp_path)
    assert "has the columns text, label; expected img and label; not read" in caplog.text


def test_a_pixel_is_where_it_was(tmp_path: Path) -> None:
    place(tmp_path, "python archive")
    dataset = Image(channels="tensorflow", pixels="embedding", split="tfds").prepare(tmp_path)
    data, labels = cifar_arrays()[5]
    batch = dataset.splits["test"].batch(np.array([7, 2]))
    planes = data[[7, 2]].reshape(2, 3, 1024).transpose(0, 2, 1)
    assert batch.inputs.tolist() == tensorflow_gray(planes).ravel().tolist()
    assert batch.labels.tolist() == labels[[7, 2]].tolist()
    assert batch.lengths.tolist() == [[1024], [1024]]


def read_pixels(split: Split) -> np.ndarray:
    """Read all images of a split: (images, pixels)."""
    return split.batch(np.arange(len(split))).inputs.numpy().reshape(len(split), 1024)


def orders_of(permuted: Dataset, plain: Dataset) -> list[list[int]]:
    """Find, for each split, which pixel every position has, by its levels in all images."""
    orders: list[list[int]] = []
    for name, split in plain.splits.items():
        assert np.array_equal(permuted.splits[name].labels, split.labels)
        pixel_of = {column.tobytes(): i for i, column in enumerate(read_pixels(split).T)}
        assert len(pixel_of) == 1024, "all pixels differ"
        moved = read_pixels(permuted.splits[name]).T
        orders.append([pixel_of[column.tobytes()] for column in moved])
    return orders


def test_a_permutation_is_one_order_of_pixels_in_all_splits(tmp_path: Path) -> None:
    place(tmp_path, "python archive")
    plain = Image().prepare(tmp_path)
    assert plain.fingerprint.startswith("cc16aa51"), "as before there was the option"
    found: dict[int, list[int]] = {}
    for seed in (0, 1):
        task = Image(permutation=seed)
        permuted = task.prepare(tmp_path)
        train, val, test = orders_of(permuted, plain)
        assert train == val == test and sorted(train) == list(range(1024))
        again = Image(permutation=seed).prepare(tmp_path)
        assert orders_of(again, plain)[0] == train
        assert again.fingerprint == permuted.fingerprint != plain.fingerprint
        assert permuted.folder == plain.folder and permuted.baselines == plain.baselines
        task.verify(permuted)
        found[seed] = train
    assert found[0][:5] == [542, 191, 939, 360, 878], "the same on any machine"
    assert found[0] != found[1]


def test_a_permutation_is_a_setting_of_tasks_with_images() -> None:
    for task in ("image", "pathfinder", "pathx"):
        plain, null, first, second = (
            compose(task, "mean", overrides=overrides).hash
            for overrides in ([], *([f"task.permutation={seed}"] for seed in ("null", 0, 1)))
        )
        assert plain == null and len({plain, first, second}) == 3
        with pytest.raises(UserError, match="got -1; input should be greater"):
            compose(task, "mean", overrides=["task.permutation=-1"])
    with pytest.raises(UserError, match="unknown option of text 'permutation'"):
        compose("text", "mean", overrides=["task.permutation=1"])


@pytest.mark.parametrize(("channels", "count"), [("pillow", 1), ("colour", 3)])
def test_levels_are_standardised(tmp_path: Path, channels: Any, count: int) -> None:
    place(tmp_path, "binary archive")
    task = Image(channels=channels)
    assert (task.info.channels, task.info.vocab_size) == (count, None)
    batch = task.prepare(tmp_path).splits["test"].batch(np.array([3]))
    planes = cifar_arrays()[5][0][3].reshape(3, 1024).T
    if channels == "pillow":
        expected = (pillow_gray(planes) / 255 - 122.6 / 255) / (61.0 / 255)
    else:
        expected = (planes - np.array([125.3, 123.0, 113.9])) / np.array([63.0, 62.1, 66.7])
    np.testing.assert_allclose(batch.inputs.numpy(), expected, atol=1e-6)


def test_gray_in_three_roundings() -> None:
    """Worked by hand: (1, 2, 3) weighs 1.8149, 1.815 in fixed point; (3, 2, 1) 2.1847, 2.185."""
    known = np.array([[1, 2, 3], [3, 2, 1], [255, 255, 255], [0, 0, 0], [10, 200, 30], [255, 0, 0]])
    pixels = known.astype(np.uint8)[:, None]
    assert pillow_gray(pixels).ravel().tolist() == [2, 2, 255, 0, 124, 76]
    assert torchvision_gray(pixels).ravel().tolist() == [1, 2, 254, 0, 123, 76]
    assert tensorflow_gray(pixels).ravel().tolist() == [1, 2, 255, 0, 124, 76]


def test_pillow_gray_is_pillows() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, size=(500, 400, 3), dtype=np.uint8)
    expected = np.asarray(PillowImage.fromarray(pixels).convert("L"))
    assert np.array_equal(pillow_gray(pixels)[..., 0], expected)


def test_splits_are_the_published_ones(tmp_path: Path) -> None:
    hashing = pytest.importorskip("tensorflow_datasets.core.hashing")
    hasher = hashing.Hasher("train")
    assert tfds_order(3000).tolist() == sorted(range(3000), key=hasher.hash_key)
    place(tmp_path, "python archive")
    random, ordered = Image(split="random").prepare(tmp_path), Image(split="tfds").prepare(tmp_path)
    for dataset in (random, ordered):
        rows = [s.which.tolist() for s in dataset.splits.values() if isinstance(s, Pixels)]
        assert sorted(itertools.chain(*rows)) == list(range(120))
        assert rows[2] == list(range(100, 120))
    assert random.fingerprint != ordered.fingerprint
    val = random.splits["val"]
    assert isinstance(val, Pixels) and val.which[:6].tolist() == RANDOM_SPLIT


RANDOM_SPLIT = [14, 55, 0, 64, 77, 39]


class Harmful:
    def __reduce__(self) -> tuple:
        return (print, ("code was run",))


def test_no_code_comes_out_of_a_pickle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = cifar_python() | {"cifar-10-batches-py/data_batch_3": pickle.dumps(Harmful())}
    write_archive(tmp_path / "cifar-10-python.tar.gz", files)
    with pytest.raises(DataError, match=r"data_batch_3 .*asks for builtins\.print; refused"):
        Image().prepare(tmp_path)
    assert "code was run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "data_batch_2 is no batch"),
        (pickle.dumps([1, 2]), "data_batch_2 is no batch"),
        (pickle.dumps({b"data": np.zeros((2, 5), np.uint8), b"labels": [1, 2]}), "shape"),
        (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]}), "has label 10"),
    ],
)
def test_damaged_batches_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    files = cifar_python() | {"cifar-10-batches-py/data_batch_2": content}
    write_archive(tmp_path / "cifar-10-python.tar.gz", files)
    with pytest.raises(DataError, match=message):
        Image().prepare(tmp_path)


def test_a_cut_off_binary_batch_is_named(tmp_path: Path) -> None:
    files = cifar_binary()
    name = "cifar-10-batches-bin/data_batch_2.bin"
    write_archive(tmp_path / "cifar-10-binary.tar.gz", files | {name: files[name][:-5]})
    with pytest.raises(DataError, match=r"data_batch_2\.bin has \d+ bytes, expected a multiple"):
        Image().prepare(tmp_path)


@pytest.mark.parametrize("name", ["data_batch_4", "test_batch"])
def test_a_missing_batch_is_named(tmp_path: Path, name: str) -> None:
    files = cifar_python()
    del files[f"cifar-10-batches-py/{name}"]
    write_archive(tmp_path / "cifar-10-python.tar.gz", files)
    with pytest.raises(DataError, match=f"lacks {name}"):
        Image().prepare(tmp_path)


def test_an_embedding_of_colour_is_refused() -> None:
    with pytest.raises(ValueError, match="takes one channel"):
        Image(pixels="embedding", channels="colour")


def test_the_original_images(tmp_path: Path) -> None:
    with tarfile.open(real_data("cifar-10-batches-py.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    files = (tmp_path / "cifar-10-batches-py").glob("*_batch*")
    assert {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in files} == MD5
    task = Image(source="official")
    dataset = task.prepare(tmp_path)
    assert dataset.source == "official"
    assert dataset.sizes == {"train": 45_000, "val": 5_000, "test": 10_000}
    assert dataset.baselines == {"majority class": 10.0}
    images = np.load(dataset.folder / "images.npy")
    assert images[:50_000].mean() == pytest.approx(122.6, abs=0.05)
    assert images[:50_000].std() == pytest.approx(61.0, abs=0.05)
    task.verify(dataset)
    start = time.monotonic()
    task.prepare(tmp_path)
    assert time.monotonic() - start < 0.5
    batches = cifar.read_batches(tmp_path / "cifar-10-batches-py")
    for split, order in (("train", (3, 2, 1, 4, 0)), ("test", (0,))):  # as Hugging Face has them
        images, labels = batches[split]
        rows = np.concatenate([np.arange(i * 10_000, (i + 1) * 10_000) for i in order])
        files = [as_png(pixels) for pixels in images[rows].reshape(-1, 32, 32, 3)]
        write_table(tmp_path / "tables" / "plain_text", split, "img", files, labels[rows])
    tables = task.prepare(tmp_path / "tables")
    assert (tables.source, tables.fingerprint) == ("official", dataset.fingerprint)
