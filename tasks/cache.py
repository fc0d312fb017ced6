"""Prepared data on disk: arrays and a manifest that says what they are.

A cache is written to a folder beside its final place and renamed when complete, under a
lock: a killed preparation leaves nothing that could be taken for a complete cache, and of two
processes that prepare the same data, one does the work and the other waits. What an interrupted
preparation left behind is handed to the next one of the same request, which may go on from there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from pydantic import ValidationError

from common.errors import DataError
from common.files import name_file_in_errors, reserve, write_atomically
from common.untrusted import explain_errors, map_array, read_regular
from tasks.manifest import LARGEST_MANIFEST, Manifest, OriginFacts, canonical_hash, file_facts

logger = logging.getLogger(__name__)

FORMAT = 3
VERIFY_ON_OPEN = 128 * 2**20
"""Opening a cache of at most this many bytes reads all of it and compares the checksums."""

REBUILD = "delete that folder and run the same command again to rebuild it"
REQUEST = "request.json"
"""The file of an unfinished cache that holds the request."""


def cache_folder(data_dir: Path, task: str, name: str, request: dict[str, Any]) -> Path:
    """Name the folder of a cache, by a word on its request and the start of its hash."""
    return data_dir / task / f"{name}-{canonical_hash(request)[:12]}"


class Cache:
    """An opened cache folder."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @property
    def fingerprint(self) -> str:
        """See `Manifest.fingerprint`."""
        return self.manifest.fingerprint

    @property
    def unofficial_because(self) -> str:
        """See `Manifest.unofficial_because`."""
        return self.manifest.unofficial_because

    def explain_errors(self) -> AbstractContextManager[None]:
        """Turn whatever is raised while the arrays are taken up into a DataError."""
        return explain_errors(f"the data cache {self.folder}", REBUILD)

    def array(self, name: str) -> np.ndarray:
        """Map an array into memory.

        Raises: DataError if the cache has no such array, as another version made it.
        """
        if f"{name}.npy" not in self.manifest.files:
            raise self.damaged(f"it has no {name}.npy")
        return map_array(self.folder / f"{name}.npy")

    def damaged(self, what: str) -> DataError:
        """Say what is wrong with the cache, and what to do."""
        return DataError(
            f"the data cache {self.folder} does not match its manifest: {what}; {REBUILD}"
        )

    def check_files(self, *, checksums: bool) -> None:
        """Compare the files with the manifest: their sizes, and their checksums on request.

        Raises: DataError naming the file that differs.
        """
        for name, facts in self.manifest.files.items():
            path = self.folder / name
            if not path.is_file():
                raise self.damaged(f"{name} is missing")
            if path.stat().st_size != facts.bytes:
                found = path.stat().st_size
                raise self.damaged(f"{name} has {found} bytes, expected {facts.bytes}")
            if checksums and file_facts(path).sha256 != facts.sha256:
                raise self.damaged(f"the checksum of {name} differs")

    def check_origin(self, data_dir: Path) -> None:
        """Compare the files that the data was read from with what they were then.

        A file with another time and the same content is the same; a deleted one is not needed.

        Raises: DataError naming the file that has changed.
        """
        for name, facts in self.manifest.origin.items():
            path = data_dir / name
            if not path.is_file():
                continue
            now = path.stat()
            is_same = (now.st_size, now.st_mtime_ns) == (facts.bytes, facts.modified_ns)
            if not is_same and file_facts(path).sha256 != facts.sha256:
                raise DataError(
                    f"{path} has changed since the data cache {self.folder} was made from it; "
                    f"delete that folder and run the same command again to read the new file"
                )


def read_cache(folder: Path) -> Cache:
    """Read a cache's manifest, without looking at its files.

    Raises: DataError if the manifest is unreadable.
    """
    try:
        content = read_regular(folder / "manifest.json", largest=LARGEST_MANIFEST)
        return Cache(folder, Manifest.model_validate_json(content))
    except (DataError, OSError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"the manifest of the data cache {folder} is unreadable ({reason}); {REBUILD}"
        ) from None


def open_cache(folder: Path, request: dict[str, Any]) -> Cache:
    """Open a cache and check it against its manifest.

    Checksums are compared up to VERIFY_ON_OPEN bytes in all, sizes always.

    Raises: DataError if it is damaged or was made for another request.
    """
    cache = read_cache(folder)
    if cache.manifest.format != FORMAT or cache.manifest.request != request:
        raise cache.damaged("it was made for other settings or by another version")
    total = sum(facts.bytes for facts in cache.manifest.files.values())
    cache.check_files(checksums=total <= VERIFY_ON_OPEN)
    return cache


class Build:
    """A cache in the making: arrays are written at once, the facts about them at the end."""

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        self.source = source
        self.unofficial_because = ""
        self.sizes: dict[str, int] = {}
        self.baselines: dict[str, float] = {}
        self.origin: dict[str, OriginFacts] = {}
        self.notes: dict[str, int] = {}
        self.skipped: list[str] = []

    def mark_unofficial(self, because: str) -> None:
        """Say that the data is not the official release, and what it has in another way."""
        self.source, self.unofficial_because = "unofficial", because

    def save(self, name: str, array: np.ndarray) -> None:
        """Write an array."""
        path = self.folder / f"{name}.npy"
        with name_file_in_errors(path):
            np.save(path, array, allow_pickle=False)

    def mapped(self, name: str, shape: tuple[int, ...], dtype: type) -> np.memmap:
        """Map an array of a fixed size, to be written in place.

        The array that an interrupted preparation of the same request left is used again; a new
        array holds zeros. Its space on the disk is taken at once.

        Raises: OSError naming the file where the disk lacks that space.
        """
        path = self.folder / f"{name}.npy"
        if path.is_file():
            with contextlib.suppress(ValueError):  # the file is incomplete
                found = np.lib.format.open_memmap(path, mode="r+")
                if (found.shape, found.dtype) == (shape, np.dtype(dtype)):
                    reserve(path)
                    return found
        with name_file_in_errors(path):
            array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        reserve(path)
        return array

    def array(self, name: str) -> np.ndarray:
        """Map an array that was written into memory, read-only."""
        return map_array(self.folder / f"{name}.npy")

    def drop(self, name: str) -> None:
        """Delete an array that the finished data does not need."""
        (self.folder / f"{name}.npy").unlink()


def open_or_build(
    folder: Path, *, task: str, source: str, request: dict[str, Any], build: Callable[[Build], None]
) -> Cache:
    """Open the cache in a folder; where there is none, make it with `build`.

    Args:
        folder: of the cache.
        task: name of the task.
        source: where the data comes from, unless `build` finds another source.
        request: everything that the data depends on.
        build: writes the arrays and the facts about them.
    Raises: DataError as `open_cache` and `build` do.
    """
    if folder.exists():  # complete, as it is named last; and the data folder may be read-only
        return open_cache(folder, request)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        if not folder.exists():
            made = Build(_partial(folder, request), source)
            try:
                build(made)
                _finish(made, task, request)
                made.folder.rename(folder)
            except Exception:  # not an interruption, after which the work can go on
                shutil.rmtree(made.folder, ignore_errors=True)
                raise
        return open_cache(folder, request)


def _partial(folder: Path, request: dict[str, Any]) -> Path:
    """Make the folder to build in, or find that of an interrupted build of the same request."""
    partial = folder.with_name(f"{folder.name}.partial")
    mark = partial / REQUEST
    text = json.dumps(request, sort_keys=True).encode()
    if not (mark.is_file() and read_regular(mark) == text):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        write_atomically(mark, text)
    return partial


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    lock = FileLock(f"{folder}.lock")
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        logger.info(f"waiting for another process, which is preparing {folder}")
        held = lock.acquire()
    with held:
        yield


def _finish(made: Build, task: str, request: dict[str, Any]) -> None:
    (made.folder / REQUEST).unlink()
    paths = sorted(made.folder.iterdir())
    for path in paths:
        with name_file_in_errors(path), path.open("rb") as file:
            os.fsync(file.fileno())
    facts = {name: value for name, value in vars(made).items() if name != "folder"}
    files = {path.name: file_facts(path) for path in paths}
    manifest = Manifest(format=FORMAT, task=task, request=request, files=files, **facts)
    write_atomically(
        made.folder / "manifest.json", (manifest.model_dump_json(indent=2) + "\n").encode()
    )
