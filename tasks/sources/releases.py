"""Official files: where they are looked for, and where people can get them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import DataError
from common.files import format_bytes
from common.untrusted import explain_errors
from tasks.cache import Build, Cache, cache_folder, open_or_build
from tasks.manifest import origin_facts
from tasks.sources.copies import copy_order, note_copies
from tasks.sources.downloads import Address, DownloadError, download
from tasks.sources.parquet import table_files

logger = logging.getLogger(__name__)

DEPTHS = ("", "*/", "*/*/", "*/*/*/")
"""Official files may lie in the data folder or up to three folders below it."""

UNFINISHED = (".partial", ".lock")
"""Endings of the names of other files that a download leaves beside its own."""

NEARLY_ARCHIVE = r"lra.?release(.*(gz|tar|zip|part|download))?$"
"""Names, in small letters, that are nearly that of the archive of the Long Range Arena."""

FEW = 20
"""A manifest describes each file of a folder that has at most this many."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """The names that a task's official files have, and where people get them."""

    task: str
    names: Mapping[str, str]
    """Patterns of archives and folders, the preferred first, each with a description."""
    people_get_it: str
    """A sentence that says where people get the files."""
    address: Address | None = None
    """Where the files can be downloaded."""
    accept: Callable[[Path], Path | None]
    """Returns the archive or folder to read for a path that fits a pattern, or None to skip it."""
    inside: str
    """Pattern of the files to read in a folder."""
    nearly: str = r"(?!)"
    """Regular expression of file names that are nearly right, in small letters."""

    def find(self, data_dir: Path) -> list[Path]:
        """List the archives and folders that hold the files, the one to read first.

        They come in the order of the patterns, those of one pattern as `copy_order` says.
        """
        top = data_dir.absolute()
        found: list[Path] = []
        for name in self.names:
            paths = [path for depth in DEPTHS for path in data_dir.glob(f"{depth}{name}")]
            for path in sorted(paths, key=lambda path: copy_order(top / path)):
                accepted = self.accept(path) if path.suffix not in UNFINISHED else None
                if accepted is not None:
                    found.append(accepted)
        return list(dict.fromkeys(found))

    def find_nearly(self, data_dir: Path) -> list[Path]:
        """List files whose names are nearly those of the release, as after a second download."""
        paths = (path for depth in DEPTHS for path in data_dir.glob(f"{depth}*"))
        found = (path for path in paths if re.search(self.nearly, path.name.lower()))
        return sorted(path for path in found if path.is_file())

    def locate(self, data_dir: Path, source: str) -> list[Path] | Address:
        """Find the official files, the ones to read first; or else the address of a download.

        Raises: DataError if there are none, and the option `source` allows no download.
        """
        found = self.find(data_dir) if source in ("auto", "official") else []
        if not found and source in ("auto", "download") and self.address is not None:
            return self.address
        if not found:
            raise DataError(self.missing(data_dir))
        return found

    def get(self, data_dir: Path, source: str) -> list[Path]:
        """Find the official files, or download them; see `locate`.

        Raises: DataError also for a download that fails.
        """
        found = self.locate(data_dir, source)
        if not isinstance(found, Address):
            return found
        try:
            return [download(found, data_dir / found.file_name)]
        except DownloadError as error:
            raise DataError(
                f"no official files of {self.task} in {data_dir}, and the download failed: "
                f"{error}. Run the same command again to go on with it, or put {found.file_name} "
                f"({found.bytes:,} bytes, SHA-256 {found.sha256}) there yourself. Any of these "
                f"will do: {self._names()}"
            ) from None

    def missing(self, data_dir: Path) -> str:
        """Say which files are missing, from which folder, and where people get them."""
        nearly = ", ".join(str(path) for path in self.find_nearly(data_dir))
        rename = f" Rename or unpack what has almost such a name: {nearly}." if nearly else ""
        return (
            f"no official files of {self.task} in {data_dir} (searched three folders deep); "
            f"expected {self._names()}.{rename} {self.people_get_it}"
        )

    def _names(self) -> str:
        return " or ".join(f"{name} ({what})" for name, what in self.names.items())


@dataclass(frozen=True, kw_only=True)
class ReleaseCache:
    """The cache of a release's data, which is read into it from the official files."""

    release: Release
    data_dir: Path
    """Folder that holds the official files and the cache."""
    name: str
    """A word that describes the request and begins the name of the cache's folder."""
    source: str
    """The task's option `source`: auto, official or download."""
    request: dict[str, Any]
    """Everything that the cache depends on, except the files."""

    @property
    def folder(self) -> Path:
        """The folder of the cache."""
        return cache_folder(self.data_dir, self.release.task, self.name, self.request)

    def describe_preparation(self) -> str:
        """Say what `open_or_read` still has to do; see `Task.describe_preparation`."""
        if self.folder.exists():
            return ""
        found = self.release.locate(self.data_dir, self.source)
        if isinstance(found, Address):
            return f"download {found.urls[0]} ({format_bytes(found.bytes)}) and read it"
        path = found[0]
        size = f" ({format_bytes(path.stat().st_size)})" if path.is_file() else ""
        return f"read {path}{size}"

    def open_or_read(self, read: Callable[[Build, Path], None]) -> Cache:
        """Open the cache; where there is none, find the files and read them.

        Args:
            read: function that reads an archive or folder into the cache, and sets the cache's
                source if the data is not the official one.
        Raises: DataError if there are no files, or if they are not official and should be.
        """

        def build(made: Build) -> None:
            path, *others = self.release.get(self.data_dir, self.source)
            files = table_files(path) or [path]
            files = files if path.is_file() else sorted(path.glob(self.release.inside))
            if len(files) <= FEW:
                made.origin = {
                    file.relative_to(self.data_dir).as_posix(): origin_facts(file) for file in files
                }
            with explain_errors(f"{path}", "is it complete?"):
                read(made, path)
            note_copies(made, path, others)

        cache = open_or_build(
            self.folder,
            task=self.release.task,
            source="official",
            request=self.request,
            build=build,
        )
        cache.check_origin(self.data_dir)
        check_official(cache, self.source)
        return cache


def describe_size_difference(
    sizes: Mapping[str, int], official: Mapping[str, int], unit: str
) -> str:
    """Describe the sizes of splits that differ from those of the release."""
    has, expected = (
        ", ".join(f"{name} {count:,}" for name, count in counts.items())
        for counts in (sizes, official)
    )
    return f"it has other numbers of {unit} than the release: {has}; expected {expected}"


def check_official(cache: Cache, source: str) -> None:
    """Warn of data that is not the official release, or refuse it.

    Args:
        cache: data that was read from files.
        source: the task's option `source`; all but auto insist on the release.
    Raises: DataError that says why the data is not official.
    """
    if cache.manifest.source == "official":
        return
    reason = f": {cache.unofficial_because}" if cache.unofficial_because else ""
    if source == "auto":
        logger.warning(
            f"{cache.folder} holds other data than the official release{reason}. Results on it "
            f"are marked {cache.manifest.source} and compare only with each other"
        )
        return
    raise DataError(
        f"task.source is {source}, but {cache.folder} was read from other data than the official "
        f"release{reason}; replace the files by the release and delete this folder, or use "
        f"task.source=auto to use the data as unofficial"
    )
