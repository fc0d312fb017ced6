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
    png,
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
    files = pathfinder()
    lines = files[name].splitlines(keepends=True)
    return {**files, name: b"".join(line[:-2] + FLIP[line[-2:]] for line in lines)}


def labels(dataset: Dataset) -> list[int]:
    return np.load(dataset.folder / "labels.npy").tolist()


def assert_named(dataset: Dataset, read: Path, other: Path, log: str) -> None:
    """A copy that was not read is in the log, the notes and the manifest."""
    line = f"{other} was not read: it is another copy of the data, and {read} was read"
    assert line in log
    assert dataset.notes[NOTE] == 1
    assert line in read_cache(dataset.folder).manifest.skipped


@pytest.mark.parametrize("other", [OUTER, "a/b", "."])
def test_of_two_folders_the_inner_one_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, other: str
) -> None:
    write_files(tmp_path / INNER, pathfinder())
    write_files(tmp_path / other, flipped())
    dataset = Pathfinder().prepare(tmp_path)
    assert labels(dataset) == [0, 1] * 6
    assert_named(dataset, tmp_path / INNER / PATHFINDER, tmp_path / other / PATHFINDER, caplog.text)


def test_the_data_folder_may_be_the_outer_one(tmp_path: Path) -> None:
    write_files(tmp_path / INNER, pathfinder())
    write_files(tmp_path / OUTER, flipped())
    assert labels(Pathfinder().prepare(tmp_path / OUTER)) == [0, 1] * 6


@pytest.mark.parametrize("inner_is_last", [False, True])
@pytest.mark.parametrize("top", ["", "./"])
def test_of_two_folders_in_an_archive_the_inner_one_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, top: str, inner_is_last: bool
) -> None:
    inner, outer = under(top + INNER, pathfinder()), under(top + OUTER, flipped())
    inner[f"{top}{INNER}/{PATHFINDER}/imgs/0/sample_3.png"] = b""
    files = {**outer, **inner} if inner_is_last else {**inner, **outer}
    archive = tmp_path / "lra_release.gz"
    write_archive(tmp_path / "a.tar.gz", files).rename(archive)
    dataset = Pathfinder().prepare(tmp_path)
    assert labels(dataset) == [0, 1] * 6
    assert dataset.notes["images skipped"] == 1, "no image is filled in from the other copy"
    assert_named(dataset, archive / INNER / PATHFINDER, archive / OUTER / PATHFINDER, caplog.text)


def test_a_single_copy_in_the_outer_folder_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = under(OUTER, pathfinder()) | under(INNER, {"pathfinder64/a/imgs/0/sample_0.png": png()})
    write_archive(tmp_path / "a.tar.gz", files).rename(tmp_path / "lra_release.gz")
    dataset = Pathfinder().prepare(tmp_path)
    assert labels(dataset) == [0, 1] * 6
    assert NOTE not in dataset.notes and "another copy" not in caplog.text


def test_caches_of_the_size_that_is_released_twice_are_made_anew(tmp_path: Path) -> None:
    """Caches of earlier versions may hold the outer copy of pathfinder128."""
    name = PATHFINDER.replace("32", "128")
    lines = pathfinder()[f"{PATHFINDER}/metadata/0.npy"]
    images = {f"{name}/imgs/0/sample_{i}.png": png((128, 128)) for i in range(12)}
    write_files(tmp_path, {**images, f"{name}/metadata/0.npy": lines})
    dataset = Pathfinder(size=128).prepare(tmp_path)
    request = read_cache(dataset.folder).manifest.request
    assert request == {"size": 128, "contour": 14, "source": "read, inner copy first"}


def append(path: Path, name: str, content: bytes) -> None:
    """Add a file to a tar archive, which may hold one of that name already."""
    with tarfile.open(path, "a") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("name", ["metadata/0.npy", "imgs/0/sample_3.png", "exported-from"])
@pytest.mark.parametrize("content", [None, b""])
def test_a_file_of_pathfinder_that_is_in_an_archive_twice(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    files = {**pathfinder(), f"{PATHFINDER}/exported-from": b"{}"}
    archive = write_archive(tmp_path / "lra_release.tar", files)
    name = f"{PATHFINDER}/{name}"
    append(archive, name, flipped().get(name, b"") if content is None else content)
    archive.rename(tmp_path / "lra_release.gz")
    with pytest.raises(DataError, match=f"{name} occurs more than once; unpack the archive"):
        Pathfinder().prepare(tmp_path)


ARCHIVES: Mapping[str, tuple[Task, str, Callable[[], dict[str, bytes]], str]] = {
    "text": (Text(holdout=4), "aclImdb.tar", reviews, "aclImdb/train/pos/3_9.txt"),
    "text, another rating": (Text(holdout=4), "aclImdb.tar", reviews, "aclImdb/train/pos/3_8.txt"),
    "retrieval": (Retrieval(), "lra_release.gz", pairs, "new_aan_pairs.test.tsv"),
    "image": (Image(), "cifar-10-a.tar", cifar_python, "cifar-10-batches-py/data_batch_2"),
    "lm": (LanguageModelling(), "wikitext-2.tar", wikitext, "wikitext-2/wiki.valid.tokens"),
}


@pytest.mark.parametrize("case", ARCHIVES)
@pytest.mark.parametrize("folder", ["", "copy/"])
def test_other_archives_that_hold_a_file_twice_are_refused(
    tmp_path: Path, case: str, folder: str
) -> None:
    task, archive, files, name = ARCHIVES[case]
    path = write_archive(tmp_path / "a.tar", files())
    append(path, folder + name, files().get(name, b"another text"))
    path.rename(tmp_path / archive)
    with pytest.raises(DataError, match=r"second review|holds both|more than once|twice") as caught:
        task.prepare(tmp_path)
    assert "\n" not in str(caught.value)


def test_archives_and_folders_that_are_not_read_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    archive = write_archive(tmp_path / "aclImdb_v1.tar.gz", reviews())
    write_files(tmp_path, reviews())
    dataset = Text(holdout=4).prepare(tmp_path)
    assert_named(dataset, archive, tmp_path / "aclImdb", caplog.text)
    caplog.clear()
    Text(holdout=4).prepare(tmp_path)
    assert "another copy" not in caplog.text, "said once, when the data is read"


def test_of_two_folders_with_pairs_the_inner_one_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in (INNER, OUTER):
        write_files(tmp_path / folder / "tsv_data", pairs())
    dataset = Retrieval().prepare(tmp_path)
    assert_named(dataset, tmp_path / INNER / "tsv_data", tmp_path / OUTER / "tsv_data", caplog.text)


@pytest.mark.parametrize("name", ["", "lra_release.gz"])
def test_of_two_folders_of_listops_the_inner_one_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """In the data folder and in the archive."""
    files: dict[str, bytes] = {}
    for folder, count in ((OUTER, 3), (INNER, 2)):
        content = LISTOPS + (count - 1) * LISTOPS_LINE
        names = [f"basic_{split}.tsv" for split in ("train", "val", "test")]
        files |= under(f"{folder}/listops-1000", dict.fromkeys(names, content))
    if name:
        write_archive(tmp_path / "a.tar.gz", files).rename(tmp_path / name)
    else:
        write_files(tmp_path, files)
    manifest = read_cache(ListOps().prepare(tmp_path).folder).manifest
    assert manifest.sizes == dict.fromkeys(("train", "val", "test"), 2)
    read, other = (tmp_path / name / folder / "listops-1000" for folder in (INNER, OUTER))
    line = f"{other} was not read: it is another copy of the data, and {read} was read"
    assert line in caplog.text and manifest.skipped == [line]
    assert manifest.notes == {NOTE: 1}


def test_a_file_of_listops_that_is_in_an_archive_twice_is_refused(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar", {"x/basic_val.tsv": LISTOPS})
    append(archive, "x/basic_val.tsv", LISTOPS)
    archive.rename(tmp_path / "lra_release.gz")
    with pytest.raises(DataError, match=r"x/basic_val\.tsv occurs more than once; unpack"):
        ListOps().prepare(tmp_path)
