"""Releases that hold the same files twice: one copy is read, and nothing is merged silently."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from common.errors import DataError
from made_data import (
    LISTOPS,
    LISTOPS_LINE,
    PATHFINDER,
    cifar_python,
    pairs,
    pathfinder,
    reviews,
    wikitext,
    write_archive,
    write_files,
)
from tasks.base import Dataset, Task
from tasks.cache import read_cache
from tasks.image.task import Image
from tasks.listops.task import ListOps
from tasks.lm.task import LanguageModelling
from tasks.pathfinder.task import Pathfinder
from tasks.retrieval import Retrieval
from tasks.sources.copies import NOTE
from tasks.text import Text

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


@pytest.mark.parametrize("in_archive", [False, True])
def test_of_two_folders_of_listops_the_inner_one_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, in_archive: bool
) -> None:
    files: dict[str, bytes] = {}
    for folder, count in ((OUTER, 3), (INNER, 2)):
        content = LISTOPS + (count - 1) * LISTOPS_LINE
        names = [f"basic_{split}.tsv" for split in ("train", "val", "test")]
        files |= under(f"{folder}/listops-1000", dict.fromkeys(names, content))
    if in_archive:
        write_archive(tmp_path / "a.tar.gz", files).rename(tmp_path / "lra_release.gz")
    else:
        write_files(tmp_path, files)
    dataset = ListOps().prepare(tmp_path)
    assert dataset.sizes == dict.fromkeys(("train", "val", "test"), 2)
    top = tmp_path / ("lra_release.gz" if in_archive else "")
    read, other = (top / folder / "listops-1000" for folder in (INNER, OUTER))
    assert_named(dataset, read, other, caplog.text)


PATHFINDER_FILES = {**pathfinder(), f"{PATHFINDER}/exported-from": b"{}"}
ARCHIVES: Mapping[str, tuple[Task, str, Callable[[], Mapping[str, bytes]], str]] = {
    "text": (Text(holdout=4), "aclImdb.tar", reviews, "aclImdb/train/pos/3_9.txt"),
    "text, another rating": (Text(holdout=4), "aclImdb.tar", reviews, "aclImdb/train/pos/3_8.txt"),
    "retrieval": (Retrieval(), "lra_release.gz", pairs, "new_aan_pairs.test.tsv"),
    "image": (Image(), "cifar-10-a.tar", cifar_python, "cifar-10-batches-py/data_batch_2"),
    "lm": (LanguageModelling(), "wikitext-2.tar", wikitext, "wikitext-2/wiki.valid.tokens"),
    "listops": (
        ListOps(), "lra_release.gz", lambda: {"x/basic_val.tsv": LISTOPS}, "x/basic_val.tsv"
    ),
    **{
        f"pathfinder, {name}": (
            Pathfinder(), "lra_release.gz", lambda: PATHFINDER_FILES, f"{PATHFINDER}/{name}"
        )
        for name in ("metadata/0.npy", "imgs/0/sample_3.png", "exported-from")
    },
}  # fmt: skip


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives_that_hold_a_file_twice_are_refused(tmp_path: Path, case: str) -> None:
    task, archive, files, name = ARCHIVES[case]
    path = write_archive(tmp_path / "a.tar", files())
    content = files().get(name, b"another text")
    with tarfile.open(path, "a") as opened:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        opened.addfile(member, io.BytesIO(content))
    path.rename(tmp_path / archive)
    with pytest.raises(DataError, match=r"second review|holds both|more than once|twice"):
        task.prepare(tmp_path)
