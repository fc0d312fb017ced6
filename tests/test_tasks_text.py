"""Text: reviews from archives and folders, in characters and in bytes."""

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lra.common.errors import DataError
from lra.tasks import text
from lra.tasks.base import Dataset
from lra.tasks.documents import END, UNKNOWN, Documents
from lra.tasks.sources import downloads
from lra.tasks.splits import PackedSequences
from lra.tasks.text import Text
from made_data import real_data, review_tables, reviews, write_archive, write_files


def small(**options: Any) -> Text:
    """Make a task that the few reviews are enough for."""
    return Text(**{"holdout": 4, "min_frequency": 1, "sequence_length": 64, **options})


def place(data_dir: Path, kind: str) -> Path:
    """Put the same reviews somewhere that people have them."""
    files = reviews()
    if kind == "Parquet folder":
        review_tables(data_dir / "imdb/plain_text", files)
        return data_dir
    inner = {name.removeprefix("aclImdb/"): content for name, content in files.items()}
    if kind == "archive":
        return write_archive(data_dir / "aclImdb_v1.tar.gz", files)
    if kind == "other archive":
        return write_archive(data_dir / "downloads" / "aclImdb.tar.xz", files)
    return write_files(data_dir / ("text/raw" if kind == "deeper" else "") / "aclImdb", inner)


KINDS = ["other archive", "deeper", "Parquet folder"]


def words(dataset: Dataset, split: str, index: int) -> str:
    """Turn an example back into text."""
    packed = dataset.splits[split]
    assert isinstance(packed, PackedSequences)
    vocabulary = np.load(dataset.folder / "vocabulary.npy")
    ids = packed.batch(np.array([index])).inputs.tolist()
    if not len(vocabulary):
        return bytes(i - 1 for i in ids).decode()
    names = {UNKNOWN: "?", END: "$"}
    return "".join(names.get(i) or chr(vocabulary[i - END - 1]) for i in ids)


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_structure_gives_the_same_data(tmp_path: Path, kind: str) -> None:
    place(tmp_path, kind)
    dataset = small().prepare(tmp_path)
    assert dataset.sizes == {"train": 12, "val": 4, "test": 16}
    assert dataset.source == "unofficial"
    assert dataset.unofficial_because.startswith("the checksum of its content")
    assert dataset.fingerprint.startswith("03971ba2"), "the same in any version"
    assert words(dataset, "test", 0) == "a dull film of cats, test 0$"
    assert dataset.splits["test"].labels.tolist() == [0] * 8 + [1] * 8
    place(tmp_path / "again", "archive")
    assert small().prepare(tmp_path / "again").fingerprint == dataset.fingerprint
    small().verify(dataset)


def test_bytes_are_bytes_and_one(tmp_path: Path) -> None:
    place(tmp_path, "archive")
    task = Text(unit="bytes", sequence_length=64, end_token=False, holdout=4)
    assert task.info.vocab_size == 257
    dataset = task.prepare(tmp_path)
    assert words(dataset, "test", 0) == "a dull film of cats, test 0"
    assert words(dataset, "test", 7) == ("a dull film of cats, " * 8)[:64]
    with_end = Text(unit="bytes", sequence_length=64, end_token=True, holdout=4)
    assert with_end.info.vocab_size == 258
    batch = with_end.prepare(tmp_path).splits["test"].batch(np.array([7]))
    assert (len(batch.inputs), int(batch.inputs[-1])) == (64, 257)


def test_rare_characters_are_one_token(tmp_path: Path) -> None:
    files = reviews() | {"aclImdb/train/pos/99_9.txt": "a rare ☃ film".encode()}
    write_archive(tmp_path / "aclImdb.tar.gz", files)
    kept = small(train=13).prepare(tmp_path)
    assert chr(0x2603) in {chr(c) for c in np.load(kept.folder / "vocabulary.npy")}
    rare = small(min_frequency=2).prepare(tmp_path)
    vocabulary = np.load(rare.folder / "vocabulary.npy")
    assert 0x2603 not in vocabulary
    top = np.load(small(vocab_size=8).prepare(tmp_path).folder / "vocabulary.npy")
    assert top.tolist() == vocabulary[:5].tolist() and chr(top[0]) == " ", "the commonest ones"


def test_bytes_that_are_no_text_are_counted(tmp_path: Path) -> None:
    files = reviews() | {"aclImdb/test/pos/99_9.txt": b"caf\xe9", "aclImdb/test/neg/98_1.txt": b""}
    write_archive(tmp_path / "aclImdb.tar.gz", files)
    dataset = small().prepare(tmp_path)
    assert dataset.notes["texts with bytes that are no UTF-8, read as U+FFFD"] == 1
    assert dataset.notes["empty texts, read as one blank"] == 1
    assert words(dataset, "test", 8) == " $"
    assert words(dataset, "test", 17) == "caf?$"


def test_splits_are_disjoint_and_seeded(tmp_path: Path) -> None:
    place(tmp_path, "archive")

    def shown(**options: Any) -> dict[str, list[str]]:
        dataset = small(**options).prepare(tmp_path)
        return {s: [words(dataset, s, i) for i in range(n)] for s, n in dataset.sizes.items()}

    one, other = shown(), shown(data_seed=1)
    assert (len(one["train"]), len(one["val"])) == (12, 4)
    assert sorted(one["train"] + one["val"]) == sorted(other["train"] + other["val"])
    assert one["val"] != other["val"]
    assert set(shown(train=5)["train"]) < set(one["train"]), "the holdout is the same"
    assert set(shown(test=5)["test"]) < set(one["test"])


def test_without_a_holdout_selection_is_on_test(tmp_path: Path) -> None:
    place(tmp_path, "archive")
    dataset = small(holdout=0).prepare(tmp_path)
    assert dataset.selected_on == "test"
    assert dataset.sizes == {"train": 16, "val": 16, "test": 16}
    assert small().prepare(tmp_path).selected_on == "val"
    for options, message in (
        ({"holdout": 16}, "task.holdout is 16, of 16 reviews"),
        ({"train": 13}, "task.train is 13, but there are 12"),
        ({"source": "official"}, r"task\.source is official, but .* other data"),
    ):
        with pytest.raises(DataError, match=message):
            small(**options).prepare(tmp_path)
    with pytest.raises(ValueError, match="have no effect"):
        small(unit="bytes", min_frequency=5)


@pytest.mark.parametrize("source", ["auto", "official"])
def test_offline_and_without_files_it_says_what_is_missing(
    tmp_path: Path, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setattr(downloads, "RETRIES", 0)
    with pytest.raises(DataError) as caught:
        Text(source=source).prepare(tmp_path)
    for part in ("aclImdb_v1.tar.gz", "84,125,825", str(tmp_path), "ai.stanford.edu"):
        assert part in str(caught.value)
    assert ("download failed" in str(caught.value)) == (source != "official")
    assert not list(tmp_path.rglob("*.partial"))


def test_a_changed_archive_is_noticed_and_a_deleted_one_no_loss(tmp_path: Path) -> None:
    archive = place(tmp_path, "archive")
    dataset = small().prepare(tmp_path)
    archive.write_bytes(archive.read_bytes() + b"\0")
    with pytest.raises(DataError, match="has changed since"):
        small().prepare(tmp_path)
    archive.unlink()
    assert small().prepare(tmp_path).fingerprint == dataset.fingerprint


def test_reviews_with_the_checksum_of_the_release_are_official(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = place(tmp_path / "archive", "archive")
    content = text._reviews(archive, Documents(small().alphabet))[1]
    monkeypatch.setattr(text, "OFFICIAL_CONTENT", content)
    official = small(source="official").prepare(tmp_path / "archive")
    review_tables(tmp_path / "tables", reviews())
    tables = small(source="official").prepare(tmp_path / "tables")
    assert (tables.source, tables.fingerprint) == ("official", official.fingerprint)
    review_tables(tmp_path / "sorted", reviews(), block=1)
    assert "in the order of" in small().prepare(tmp_path / "sorted").unofficial_because


@pytest.mark.thorough
def test_the_original_reviews(tmp_path: Path) -> None:
    (tmp_path / "aclImdb.tar.xz").symlink_to(real_data("aclImdb.tar.xz"))
    task = Text(source="official")
    dataset = task.prepare(tmp_path)
    assert dataset.source == "official" and dataset.fingerprint.startswith("ba165064")
    assert dataset.sizes == {"train": 22_500, "val": 2_500, "test": 25_000}
    assert dataset.notes["texts in both train and test"] == 123
    assert len(np.load(dataset.folder / "vocabulary.npy")) == 131, "134 with the three others"
    assert dataset.baselines["bag of bytes"] == pytest.approx(65.9, abs=0.5)
    task.verify(dataset)
    with tarfile.open(real_data("aclImdb.tar.xz")) as archive:
        opened = {m.name: archive.extractfile(m) for m in archive if m.name.endswith(".txt")}
        files = {name: file.read() for name, file in opened.items() if file is not None}
    review_tables(tmp_path / "tables" / "plain_text", files)
    tables = task.prepare(tmp_path / "tables")
    assert (tables.source, tables.fingerprint) == ("official", dataset.fingerprint)
