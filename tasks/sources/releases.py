"""Official files: where they are looked for, and where people can get them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.cache import Build, Cache, cache_folder, open_or_build
from tasks.errors import DataError
from tasks.manifest import origin_facts
from tasks.sources.copies import copy_order, note_copies
from tasks.sources.downloads import DownloadError, download, look_up_address
from tasks.untrusted import explain_errors

logger = logging.getLogger(__name__)

DEPTHS = ("", "*/", "*/*/", "*/*/*/")
"""Official files may lie in the data folder or up to three folders below it."""

UNFINISHED = (".partial", ".lock")
"""Endings of the names of other files that a download leaves beside its own."""

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
    registered_as: str | None = None
    """Name of a data set of tensorflow-datasets with a public address."""
    saved_as: str | None = None
    """Name that a download gets; None: that of the address."""
    accept: Callable[[Path], Path | None]
    """Returns the archive or folder to read for a path that fits a pattern, or None to skip it."""
    inside: str
    """Pattern of the files to read in a folder."""

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

    def get(self, data_dir: Path, source: str) -> list[Path]:
        """Find the official files, or download them, as a task's option `source` allows.

        Returns: archives and folders, the one to read first; empty if there is none and none can be
            downloaded.
        Raises: DataError for a download that fails.
        """
        found = self.find(data_dir) if source in ("auto", "official") else []
        if found or source not in ("auto", "download") or self.registered_as is None:
            return found
        try:
            address = look_up_address(self.registered_as)
            return [download(address, data_dir / (self.saved_as or address.file_name))]
        except DownloadError as error:
            raise DataError(f"{self.missing(data_dir)} The download failed: {error}") from None

    def missing(self, data_dir: Path) -> str:
        """Say which files were looked for, in which folder, and where people get them."""
        names = "; ".join(f"{name} ({what})" for name, what in self.names.items())
        return (
            f"no official data of {self.task} in {data_dir} or up to three folders below; looked "
            f"for: {names}. {self.people_get_it}"
        )


def open_release(
    release: Release,
    data_dir: Path,
    *,
    name: str,
    source: str,
    request: dict[str, Any],
    read: Callable[[Build, Path], None],
) -> Cache:
    """Open the cache of official data; where there is none, find the files and read them.

    Args:
        release: the task's release.
        data_dir: where the files are looked for and the cache is.
        name: a word that describes the request and begins the name of the cache's folder.
        source: the task's option `source`: auto, official or download.
        request: everything that the cache depends on, except the files.
        read: function that reads an archive or folder into the cache, and sets the cache's source
            if the data is not the official one.
    Raises: DataError if there are no files, or if they are not official and should be.
    """

    def build(made: Build) -> None:
        found = release.get(data_dir, source)
        if not found:
            raise DataError(release.missing(data_dir))
        path, *others = found
        files = [path] if path.is_file() else sorted(path.glob(release.inside))
        if len(files) <= FEW:
            made.origin = {f.relative_to(data_dir).as_posix(): origin_facts(f) for f in files}
        with explain_errors(f"{path}", "is it complete?"):
            read(made, path)
        note_copies(made, path, others)

    folder = cache_folder(data_dir, release.task, name, request)
    cache = open_or_build(
        folder, task=release.task, source="official", request=request, build=build
    )
    cache.check_origin(data_dir)
    check_official(cache, source)
    return cache


def describe_size_difference(
    sizes: Mapping[str, int], official: Mapping[str, int], unit: str
) -> str:
    """Say that splits have other sizes than those of the release."""
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
            f"{cache.folder} was read from other data than the official release{reason}. Results "
            f"with it are marked {cache.manifest.source}, and compare only with each other"
        )
        return
    raise DataError(
        f"task.source is {source}, but {cache.folder} was read from other data than the official "
        f"release{reason}; put that in its place and delete this folder, or use task.source=auto "
        f"to take the data for what it is"
    )
