"""Retrieval: pairs of papers, in files with everything that papers have in them."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lra.common.errors import DataError
from lra.tasks.base import Dataset
from lra.tasks.documents import END
from lra.tasks.retrieval import Retrieval
from made_data import pair_lines, pairs, place_real_data, write_archive, write_files

TRAIN = "new_aan_pairs.train.tsv"


def small(**options: Any) -> Retrieval:
    """Make a task that reads the start of the papers."""
    return Retrieval(sequence_length=400, **options)


def prepare(folder: Path, files: dict[str, bytes]) -> Dataset:
    write_files(folder, files)
    return small().prepare(folder)


def changed(lines: list[bytes], end: bytes = b"\n") -> dict[str, bytes]:
    """Put lines in front of those of the training file."""
    files = pairs()
    files[TRAIN] = end.join([*lines, files[TRAIN].replace(b"\n", end)])
    return files


def texts(dataset: Dataset, split: str, index: int) -> tuple[list[str], int]:
    vocabulary = np.load(dataset.folder / "vocabulary.npy")
    batch = dataset.splits[split].batch(np.array([index]))
    papers = batch.inputs.split(batch.lengths[0].tolist())
    shown = [
        "".join(chr(vocabulary[i - END - 1]) if i > END else "$" for i in ids) for ids in papers
    ]
    return shown, int(batch.labels[0])


def test_the_files_may_lie_anywhere_near(tmp_path: Path) -> None:
    write_files(tmp_path / "lra_release/lra_release/tsv_data", pairs())
    dataset = small().prepare(tmp_path)
    assert dataset.sizes == {"train": 40, "val": 10, "test": 10}
    assert dataset.source == "unofficial"
    assert "other numbers of pairs than the release" in dataset.unofficial_because
    label, _, _, first, second = pair_lines(40)[7].split(b"\t")
    shown, found = texts(dataset, "train", 7)
    assert shown == [text.decode()[:399] + "$" for text in (first, second)]
    assert found == float(label)
    small().verify(dataset)


def test_the_whole_archive_will_do_and_each_paper_is_stored_once(tmp_path: Path) -> None:
    files = {f"lra_release/lra_release/tsv_data/{n}": c for n, c in pairs().items()}
    archive = write_archive(tmp_path / "a.tar.gz", {"lra_release/other.txt": b"x", **files})
    archive.rename(tmp_path / "lra_release.gz")
    one = small().prepare(tmp_path)
    assert one.fingerprint == prepare(tmp_path / "unpacked", pairs()).fingerprint
    assert one.fingerprint.startswith("4c714237"), "the same on any machine and in any version"
    assert one.notes["distinct texts"] == 12
    batch = one.splits["train"].batch(np.array([3, 5]))
    assert batch.lengths.shape == (2, 2) and len(batch.inputs) == int(batch.lengths.sum())


@pytest.mark.parametrize("label", [b"1", b"1.0"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_labels_line_ends_and_quotes(tmp_path: Path, label: bytes, end: bytes) -> None:
    line = label + b'\ta\tb\tHe said "no\t"open and "left"'
    marked = {name: b"\xef\xbb\xbf" + text for name, text in changed([line], end).items()}
    dataset = prepare(tmp_path, marked)
    assert dataset.sizes["train"] == 41
    assert texts(dataset, "train", 0) == (['He said "no$', '"open and "left"$'], 1)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"1\tx\ty\tonly one text", "got 4 tab-separated fields"),
        (b"2\tx\ty\tone\ttwo", "got label '2'"),
    ],
)
def test_malformed_lines_are_named_and_counted(
    tmp_path: Path, line: bytes, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="lra.tasks")
    dataset = prepare(tmp_path, changed([pair_lines(1)[0], line]))
    assert dataset.sizes["train"] == 41
    assert dataset.notes["lines skipped as malformed"] == 1
    assert f"{TRAIN}:2: {fault}" in caplog.text
    assert fault in (dataset.folder / "manifest.json").read_text().replace('\\"', '"')


def test_files_that_another_program_saved_with_quotes_are_refused(tmp_path: Path) -> None:
    write_files(tmp_path, pairs())
    table = pd.read_csv(tmp_path / TRAIN, sep="\t", header=None, quoting=3)
    table.to_csv(tmp_path / TRAIN, sep="\t", index=False, header=False)
    with pytest.raises(DataError, match="its fields are in quotes"):
        small().prepare(tmp_path)


def test_official_pairs_have_the_numbers_and_the_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lra.tasks.retrieval.OFFICIAL_COUNTS", {"train": 40, "val": 10, "test": 10})
    write_files(tmp_path / "a", pairs())
    dataset = small(source="official", unit="bytes").prepare(tmp_path / "a")
    assert dataset.source == "official"
    assert dataset.notes["pairs taken for the official ones without a checksum"] == 60
    other = {name: text.replace(b"paper", "papér".encode()) for name, text in pairs().items()}
    write_files(tmp_path / "b", other)
    with pytest.raises(DataError, match="characters beyond the printable ones of ASCII"):
        small(source="official", unit="bytes").prepare(tmp_path / "b")


def test_a_file_of_another_kind_or_a_missing_one_is_refused(tmp_path: Path) -> None:
    lines = [pair_lines(1)[0], *[b"a,b,c,d,e"] * 9]
    with pytest.raises(DataError, match=r"9 of 50 lines .*train\.tsv are malformed, the first"):
        prepare(tmp_path / "a", changed(lines))
    with pytest.raises(DataError, match=r"eval\.tsv are malformed, the first: it is empty"):
        prepare(tmp_path / "b", {**pairs(), "new_aan_pairs.eval.tsv": b""})
    files = pairs()
    del files["new_aan_pairs.test.tsv"]
    with pytest.raises(DataError, match=r"lacks new_aan_pairs\.test\.tsv"):
        prepare(tmp_path / "c", files)


@pytest.mark.thorough
def test_real_papers(tmp_path: Path) -> None:
    place_real_data("retrieval", tmp_path / "data")
    task = Retrieval()
    dataset = task.prepare(tmp_path / "data")
    assert dataset.source == "unofficial"
    assert dataset.sizes == {"train": 17_576, "val": 2_196, "test": 2_196}
    assert dataset.notes["distinct texts"] == 1_682
    assert dataset.baselines["bag of bytes"] == pytest.approx(63.3, abs=1.5)
    task.verify(dataset)
    with pytest.raises(DataError, match="other data than the official release"):
        Retrieval(source="official").prepare(tmp_path / "data")
