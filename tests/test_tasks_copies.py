"""Releases that hold the same files twice: one copy is read, and nothing is merged silently."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from lra.common.errors import DataError
from lra.tasks.base import Dataset, Task
from lra.tasks.cache import read_cache
from lra.tasks.image.task import Image
from lra.tasks.listops.task import ListOps
from lra.tasks.lm.task import LanguageModelling
from lra.tasks.pathfinder.task import Pathfinder
from lra.tasks.retrieval import Retrieval
from lra.tasks.sources.releases import NOTE
from lra.tasks.text import Text
from made_data import (
    LISTOPS,
    PATHFINDER,
    cifar_python,
    pairs,
    pathfinder,
    reviews,
    wikitext,
    write_archive,
    write_files,
)

INNER, OUTER = "lra_release/lra_release", "lra_release"
FLIP = {b"0\n": b"1\n", b"1\n": b"0\n"}


def under(folder: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{folder}/{name}": content for name, content in files.items()}


def flipped() -> dict[str, bytes]:
    """Make Pathfinder's files with the opposite labels."""
    name = f"{PATHFINDER}/metadata/0.npy"
    lines = pathfinder()[name].splitlines(keepends=True)
    return {**pathfinder(), name: b"".join(line[:-2] + FLIP[line[-2:]] for line in lines)}


def labels(dataset: Dataset) -> list[int]:
    return np.load(dataset.folder / "labels.npy").tolist()


def assert_named(dataset: Dataset, read: Path, other: Path, log: str) -> None:
    """A copy that was not read is in the log, the notes and the manifest."""
    line = f"{other} was not read: it is another copy of the data, and {read} was read"
    manifest = read_cache(dataset.folder).manifest
    assert line in log and line in manifest.skipped
    assert manifest.notes[NOTE] == 1


@pytest.mark.parametrize("other", [OUTER, "a/b", "."])
def test_of_two_folders_the_inner_one_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, other: str
) -> None:
    write_files(tmp_path / INNER, pathfinder())
    write_files(tmp_path / other, flipped())
    dataset = Pathfinder().prepare(tmp_path)
    assert labels(dataset) == [0, 1] * 6
    assert_named(dataset, tmp_path / INNER / PATHFINDER, tmp_path / other / PATHFINDER, caplog.text)


@pytest.mark.parametrize("inner_is_last", [False, True])
def test_of_two_folders_in_an_archive_the_inner_one_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, inner_is_last: bool
) -> None:
    inner, outer = under(INNER, pathfinder()), under(OUTER, flipped())
    inner[f"{INNER}/{PATHFINDER}/imgs/0/sample_3.png"] = b""
    files = {**outer, **inner} if inner_is_last else {**inner, **outer}
    archive = tmp_path / "lra_release.gz"
    write_archive(tmp_path / "a.tar.gz", files).rename(archive)
    dataset = Pathfinder().prepare(tmp_path)
    assert labels(dataset) == [0, 1] * 6
    assert dataset.notes["images skipped"] == 1, "no image is filled in from the other copy"
    assert_named(dataset, archive / INNER / PATHFINDER, archive / OUTER / PATHFINDER, caplog.text)


@pytest.mark.parametrize(
    ("task", "name", "files", "other"),
    [
        (Text(holdout=4), "aclImdb.tar.gz", reviews(), "b/train/pos/3_8.txt"),
        (Retrieval(), "lra_release.gz", pairs(), "b/new_aan_pairs.test.tsv"),
        (ListOps(), "lra_release.gz", {"a/basic_val.tsv": LISTOPS}, "b/basic_val.tsv"),
        (Image(), "cifar-10-a.tar.gz", cifar_python(), "b/data_batch_2"),
        (LanguageModelling(), "wikitext-2.tar.gz", wikitext(), "b/valid.txt"),
    ],
)
def test_archives_that_hold_a_file_in_two_places_are_refused(
    tmp_path: Path, task: Task, name: str, files: Mapping[str, bytes], other: str
) -> None:
    archive = write_archive(tmp_path / "a.tar.gz", {**files, other: b"another text"})
    archive.rename(tmp_path / name)
    with pytest.raises(DataError, match=r"more than once|twice"):
        task.prepare(tmp_path)
