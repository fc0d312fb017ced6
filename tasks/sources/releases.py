"""Official files: where they are looked for, and where people can get them."""

import itertools
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath

import numpy as np

from lra.common.errors import DataError
from lra.common.files import format_bytes, free_disk_bytes
from lra.common.progress import duration
from lra.common.untrusted import explain_errors
from lra.tasks.cache import Cache, OriginFacts, file_facts
from lra.tasks.preparation import Build, Preparation
from lra.tasks.random_words import permutation
from lra.tasks.sources.downloads import Address, DownloadError, download, missing_bytes
from lra.tasks.sources.parquet import SPLITS, accept_table, list_tables
from lra.tasks.sources.prepared import open_prepared

logger = logging.getLogger(__name__)

DEPTHS = ("", "*/", "*/*/", "*/*/*/")
"""Official files may lie in the data folder or up to three folders below it."""

UNFINISHED = (".partial", ".lock")
"""Endings of the names of other files that a download leaves beside its own."""

LARGEST_UNASKED = 2**30
"""Most bytes that are downloaded with source=auto; more are with source=download alone."""

NEARLY_ARCHIVE = r"lra.?release(.*(gz|tar|zip|part|download))?$"
"""Names, in small letters, that are nearly that of the archive of the Long Range Arena."""

ARCHIVE = "lra_release"
"""The archive of the Long Range Arena has this folder, and in it another one of the same name."""

NOTE = "other copies of the data that were not read"

FEW = 20
"""A manifest describes each file of a folder that has at most this many."""


def copy_order(path: PurePath | str) -> tuple[bool, int, tuple[str, ...]]:
    """Return a sort key for the paths of several copies: the copy to read comes first.

    The archive of the Long Range Arena holds pathfinder128 twice. The labels of one copy cannot be
    learned (google-research/long-range-arena#38); published code reads lra_release/lra_release.
    """
    parts = PurePosixPath(path).parts
    is_inner = (ARCHIVE, ARCHIVE) in itertools.pairwise(parts)
    return not is_inner, len(parts), parts


def note_copies(made: Build, read: PurePath | str, others: Iterable[PurePath | str]) -> None:
    """Name the other copies of the data that were not read, in the log and in the manifest."""
    for other in others:
        line = f"{other} was not read: it is another copy of the data, and {read} was read"
        logger.warning(line)
        made.skipped.append(line)
        made.notes[NOTE] = made.notes.get(NOTE, 0) + 1


@dataclass(frozen=True, kw_only=True)
class Release:
    """The names that a task's official files have, and where people get them."""

    task: str
    names: Mapping[str, str]
    """Patterns of archives and folders, the preferred first, each with a description."""
    people_get_it: str
    """A sentence that says where people get the files."""
    addresses: tuple[Address, ...] = ()
    """Where the files can be downloaded; `find` finds them once the last one is there."""
    accept: Callable[[Path], Path | None]
    """Returns the archive or folder to read for a path that fits a pattern, or None to skip it."""
    inside: str
    """Pattern of the files to read in a folder."""
    table_column: str = ""
    """The column of texts or images of the same data in Parquet files, where they are read."""
    prepared: str = ""
    """Name of the same data in tensorflow-datasets, where it is read."""
    nearly: str = r"(?!)"
    """Regular expression of file names that are nearly right, in small letters."""

    def find(self, data_dir: Path) -> list[Path]:
        """List the archives and folders that hold the files, the one to read first.

        They come in the order of the patterns, those of one pattern as `copy_order` says.
        """
        top = data_dir.absolute()
        accepted_paths: list[Path] = []
        for name in self.names:
            paths = [path for depth in DEPTHS for path in data_dir.glob(f"{depth}{name}")]
            for path in sorted(paths, key=lambda path: copy_order(top / path)):
                if path.suffix in UNFINISHED:
                    continue
                is_table = path.suffix == ".parquet"
                accepted = accept_table(path, self.table_column) if is_table else self.accept(path)
                if accepted is not None:
                    accepted_paths.append(accepted)
        return list(dict.fromkeys(accepted_paths))

    def find_nearly(self, data_dir: Path) -> list[Path]:
        """List files whose names are nearly those of the release, as after a second download."""
        paths = (path for depth in DEPTHS for path in data_dir.glob(f"{depth}*"))
        fitting = (path for path in paths if re.search(self.nearly, path.name.lower()))
        files = (path for path in fitting if path.suffix not in UNFINISHED)
        return sorted(path for path in files if path.is_file())

    def locate(self, data_dir: Path, source: str) -> list[Path]:
        """Find the official files, the ones to read first; none if they are to be downloaded.

        Args:
            source: the task's option `source`: auto, official, download or tfds.
        Raises: DataError if there are none, and the option allows no download.
        """
        if source == "tfds":
            return [Path(open_prepared(self.prepared).data_path)]
        paths = self.find(data_dir) if source in ("auto", "official") else []
        most = {"auto": LARGEST_UNASKED, "download": math.inf}.get(source, 0)
        if not paths and not 0 < sum(address.bytes for address in self.addresses) <= most:
            nearly = ", ".join(str(path) for path in self.find_nearly(data_dir))
            rename = f" Rename or unpack what has almost such a name: {nearly}." if nearly else ""
            raise DataError(
                f"no official files of {self.task} in {data_dir} (searched three folders deep); "
                f"expected {self._names()}.{rename} {self.people_get_it}"
            )
        return paths

    def get(self, data_dir: Path, source: str) -> list[Path]:
        """Find the official files, or download them; see `locate`.

        Raises: DataError also for a download that fails.
        """
        paths = self.locate(data_dir, source)
        if paths:
            return paths
        logger.info(f"{self.task}: {self.describe_download(data_dir)}")
        for address in self.addresses:
            try:
                paths.append(download(address, data_dir / address.file_name))
            except DownloadError as error:
                size = f"about {format_bytes(address.bytes)}"
                if address.sha256:
                    size = f"{address.bytes:,} bytes, SHA-256 {address.sha256}"
                raise DataError(
                    f"no official files of {self.task} in {data_dir}, and the download failed: "
                    f"{error}. Run the same command again to go on with it, or put "
                    f"{address.file_name} ({size}) there yourself. Any "
                    f"of these will do: {self._names()}"
                ) from None
        return [self.accept(paths[-1]) or paths[-1]]

    def describe_download(self, data_dir: Path) -> str:
        """Say which files a download fetches, and their size, the time and the free disk space.

        Raises: DataError if the disk has no room for them.
        """
        names = ", ".join(address.file_name for address in self.addresses)
        size = sum(missing_bytes(one, data_dir / one.file_name) for one in self.addresses)
        free = free_disk_bytes(data_dir)
        if size > free:
            raise DataError(
                f"cannot download {names} ({format_bytes(size)}): the disk of {data_dir} has "
                f"{format_bytes(free)} left; free space, or choose another folder with --data-dir"
            )
        at_100_mbit = duration(size / 12.5e6)
        return (
            f"download {names} ({format_bytes(size)}, {at_100_mbit} at 100 Mbit/s; the disk has "
            f"{format_bytes(free)} left)"
        )

    def _names(self) -> str:
        return " or ".join(f"{name} ({what})" for name, what in self.names.items())


@dataclass(kw_only=True)
class ReleaseCache(Preparation):
    """The cache of a release's data, which is read into it from the official files."""

    task: str = field(init=False)
    source: str = "official"
    build: Callable[[Build], None] = field(init=False)
    release: Release
    option: str
    """The task's option `source`: auto, official, download or tfds."""
    read: Callable[[Build, Path], None]
    """Reads an archive or folder into the cache, and sets the cache's source if the data is not the
    official one."""

    def __post_init__(self) -> None:
        self.task = self.release.task
        self.build = self._read

    def is_wanted(self) -> bool:
        """Whether to read files, by the option `source` of data that can also be generated.

        A file with nearly the name of an official one is an error, and nothing is generated.
        """
        if self.option != "auto":
            return self.option == "official"
        release, data_dir = self.release, self.data_dir
        return bool(self.folder.exists() or release.find(data_dir) or release.find_nearly(data_dir))

    def describe(self) -> str:
        """See `Preparation.describe`."""
        if self.folder.exists():
            return ""
        paths = self.release.locate(self.data_dir, self.option)
        if not paths:
            return self.release.describe_download(self.data_dir)
        path = paths[0]
        size = f" ({format_bytes(path.stat().st_size)})" if path.is_file() else ""
        return f"read {path}{size}"

    def open_or_build(self) -> Cache:
        """See `Preparation.open_or_build`.

        Raises: DataError also if the files have changed, or are not official and should be.
        """
        cache = super().open_or_build()
        _check_origin(cache, self.data_dir)
        if cache.manifest.source == "official":
            return cache
        because = cache.manifest.unofficial_because
        other = f"other data than the official release{because and f': {because}'}"
        if self.option != "auto":
            raise DataError(
                f"task.source is {self.option}, but {cache.folder} was read from {other}; replace "
                f"the files by the release and delete this folder, or use task.source=auto to use "
                f"the data as unofficial"
            )
        logger.warning(
            f"{cache.folder} holds {other}. Results on it are marked {cache.manifest.source} and "
            f"compare only with each other"
        )
        return cache

    def _read(self, made: Build) -> None:
        path, *others = self.release.get(self.data_dir, self.option)
        files = list_tables(path, *SPLITS) or [path]
        files = files if path.is_file() else sorted(path.glob(self.release.inside))
        if len(files) <= FEW:
            made.origin = {
                file.relative_to(self.data_dir).as_posix(): OriginFacts(
                    **dict(file_facts(file)), modified_ns=file.stat().st_mtime_ns
                )
                for file in files
            }
        with explain_errors(f"{path}", "is it complete?"):
            self.read(made, path)
        note_copies(made, path, others)


def choose_source(source: str, *, is_official: bool, options: str) -> str:
    """Say where data that can also be generated comes from: generate, official or auto.

    Args:
        source: the task's option `source`.
        is_official: whether the other options ask for what the official data is.
        options: the names of these options.
    Raises: ValueError if official data is asked for that cannot be.
    """
    if source == "official" and not is_official:
        raise ValueError(
            f"source is official, but the official data has values of its own for {options}; "
            f"leave them out, or use source=generate"
        )
    return source if is_official else "generate"


def describe_size_difference(
    sizes: Mapping[str, int], official: Mapping[str, int], unit: str
) -> str:
    """Describe the sizes of splits that differ from those of the release."""
    has, expected = (
        ", ".join(f"{name} {count:,}" for name, count in counts.items())
        for counts in (sizes, official)
    )
    return f"it has other numbers of {unit} than the release: {has}; expected {expected}"


def choose_rows(
    seed: int, stream: int, available: int, count: int | None, option: str
) -> np.ndarray:
    """Choose `count` of the available examples at random, or all of them: (count,), rising.

    Args:
        stream: number that distinguishes choices of the same seed.
        option: name of the option that holds the count, for the error.
    Raises: DataError if there are too few.
    """
    if count is None:
        return np.arange(available)
    if count > available:
        raise DataError(f"{option} is {count}, but there are {available} examples to choose from")
    return np.sort(permutation(seed, stream, available)[:count])


def _check_origin(cache: Cache, data_dir: Path) -> None:
    """Compare the files that the data was read from with what they were then.

    A file with another time and the same content is the same; a deleted one is not needed.

    Raises: DataError naming the file that has changed.
    """
    for name, facts in cache.manifest.origin.items():
        path = data_dir / name
        if not path.is_file():
            continue
        now = path.stat()
        is_same = (now.st_size, now.st_mtime_ns) == (facts.bytes, facts.modified_ns)
        if not is_same and file_facts(path).sha256 != facts.sha256:
            raise DataError(
                f"{path} has changed since the data cache {cache.folder} was made from it; "
                f"delete that folder and run the same command again to read the new file"
            )
