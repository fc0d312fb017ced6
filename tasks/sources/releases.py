"""Official files: where they are looked for, where they can be had, and what to say if not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.base import DataError
from tasks.cache import Build, Cache, cache_folder, open_or_build, origin_facts
from tasks.sources.downloads import DownloadError, download, registered

logger = logging.getLogger(__name__)

DEPTHS = ("", "*/", "*/*/", "*/*/*/")
"""Official files may lie in the data folder or up to three folders below it."""

UNFINISHED = (".partial", ".lock")
"""Endings of what a download leaves beside its file."""

FEW = 20
"""Files of a folder up to which a manifest describes each."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """What a task's official data looks like on disk."""

    task: str
    names: Mapping[str, str]
    """Patterns of archives and folders, the preferred first, with a word on what each is."""
    people_get_it: str
    """Where from."""
    registered_as: str | None = None
    """Name of a data set of tensorflow-datasets with a public address."""
    accept: Callable[[Path], Path | None]
    """Returns the archive or folder to read, given a path that a pattern fits; None to pass on."""
    inside: str
    """Pattern of the files of a folder."""

    def find(self, data_dir: Path) -> Path | None:
        """Look for an archive or folder, first pattern and shallowest place first."""
        for name in self.names:
            for depth in DEPTHS:
                for path in sorted(data_dir.glob(f"{depth}{name}")):
                    accepted = self.accept(path) if path.suffix not in UNFINISHED else None
                    if accepted is not None:
                        return accepted
        return None

    def get(self, data_dir: Path, source: str) -> Path | None:
        """Find the official files, or download them, as a task's option `source` allows.

        Returns: an archive or folder; None if there is none to be had.
        Raises: DataError for a download that fails.
        """
        found = self.find(data_dir) if source in ("auto", "official") else None
        if found is not None or source not in ("auto", "download") or self.registered_as is None:
            return found
        try:
            address = registered(self.registered_as)
            return download(address, data_dir / address.file_name)
        except DownloadError as error:
            raise DataError(f"{self.missing(data_dir)} The download failed: {error}") from None

    def missing(self, data_dir: Path) -> str:
        """Say what was looked for, where, and where people get it."""
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
        name: says in a word what the request asks for, in the name of the cache's folder.
        source: the task's option: auto, official or download.
        request: all that the cache depends on, but the files.
        read: reads an archive or folder, and sets the source if it is not the official data.
    Raises: DataError if there are no files, or if they are not official and should be.
    """

    def build(made: Build) -> None:
        path = release.get(data_dir, source)
        if path is None:
            raise DataError(release.missing(data_dir))
        files = [path] if path.is_file() else sorted(path.glob(release.inside))
        if len(files) <= FEW:
            made.origin = {f.relative_to(data_dir).as_posix(): origin_facts(f) for f in files}
        read(made, path)
        if made.source != "official":
            logger.warning(
                f"{path} is not the official release ({made.sizes}): results with it "
                f"are marked {made.source}, and compare with each other alone"
            )

    folder = cache_folder(data_dir, release.task, name, request)
    cache = open_or_build(
        folder, task=release.task, source="official", request=request, build=build
    )
    cache.check_origin(data_dir)
    if source != "auto" and cache.manifest.source != "official":
        raise DataError(
            f"task.source is {source}, but {cache.folder} was read from other data than the "
            f"official release; put that in its place and delete this folder, or use "
            f"task.source=auto to take the data for what it is"
        )
    return cache
