"""Prepared data on disk: arrays and a manifest that says what they are.

A cache is written to a folder beside its final place and renamed when complete, under a
lock, so that a killed preparation leaves nothing that passes for one and two processes that
prepare at once do the work once. What a preparation of the same request left behind is handed
to the next one, which may go on from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from tasks.base import DataError

logger = logging.getLogger(__name__)

FORMAT = 3
VERIFY_ON_OPEN = 128 * 2**20
"""Bytes up to which opening a cache reads it all and compares the checksums."""

REQUEST = "request.json"
"""Names, in an unfinished cache, the request that it is made for."""


class FileFacts(BaseModel):
    """What a file must be."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    bytes: int
    sha256: str


class OriginFacts(FileFacts):
    """What a file was that data was read from."""

    modified_ns: int
    """When it was last changed, which is no part of what it is."""


class Manifest(BaseModel):
    """What a cache holds and where it came from."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: int
    task: str
    source: str
    request: dict[str, Any]
    """Everything asked of the data: the law, its seed, the counts; or how files are read."""
    origin: dict[str, OriginFacts]
    """Files that the data was read from, by their path under the data folder."""
    sizes: dict[str, int]
    baselines: dict[str, float]
    notes: dict[str, int]
    """What a user should know of the data, counted: texts that two splits share, say."""
    skipped: list[str]
    """What was left out, each with its place and the reason."""
    files: dict[str, FileFacts]


def canonical_hash(value: object) -> str:
    """Hash a JSON value independently of key order: 64 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def cache_folder(data_dir: Path, task: str, name: str, request: dict[str, Any]) -> Path:
    """Name the folder of a cache, by a word on its request and the start of its hash."""
    return data_dir / task / f"{name}-{canonical_hash(request)[:12]}"


def file_facts(path: Path) -> FileFacts:
    """Read a file's size and checksum."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileFacts(bytes=path.stat().st_size, sha256=digest)


def origin_facts(path: Path) -> OriginFacts:
    """Read the size, checksum and time of a file that data is read from."""
    return OriginFacts(**dict(file_facts(path)), modified_ns=path.stat().st_mtime_ns)


class Cache:
    """An opened cache folder."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @property
    def fingerprint(self) -> str:
        """Hash of every byte of the data and of what it claims to be.

        Whether it was read from an archive or a folder makes no difference.
        """
        included = {"format", "task", "source", "request", "sizes", "files"}
        return canonical_hash(self.manifest.model_dump(mode="json", include=included))

    def array(self, name: str) -> np.ndarray:
        """Map an array into memory."""
        return np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)

    def check_files(self, *, checksums: bool) -> None:
        """Compare the files with the manifest: their sizes, and their checksums on request.

        Raises: DataError naming the file that differs.
        """
        for name, facts in self.manifest.files.items():
            path = self.folder / name
            if not path.is_file():
                raise _damaged(self.folder, f"{name} is missing")
            if path.stat().st_size != facts.bytes:
                found = path.stat().st_size
                raise _damaged(self.folder, f"{name} has {found} bytes, expected {facts.bytes}")
            if checksums and file_facts(path).sha256 != facts.sha256:
                raise _damaged(self.folder, f"the checksum of {name} differs")

    def check_origin(self, data_dir: Path) -> None:
        """Compare the files that the data was read from with what they were then.

        A file of the same size and time is taken to be the same; another time costs a checksum.
        One that is gone is no longer needed.

        Raises: DataError naming the file that has changed.
        """
        for name, facts in self.manifest.origin.items():
            path = data_dir / name
            if not path.is_file():
                continue
            now = path.stat()
            if (now.st_size, now.st_mtime_ns) == (facts.bytes, facts.modified_ns):
                continue
            if now.st_size != facts.bytes or file_facts(path).sha256 != facts.sha256:
                raise DataError(
                    f"{path} has changed since the data cache {self.folder} was made from it; "
                    f"delete that folder and run the same command again to read the file anew"
                )


def _damaged(folder: Path, what: str) -> DataError:
    return DataError(
        f"the data cache {folder} does not match its manifest: {what}; "
        f"delete that folder and run the same command again to rebuild it"
    )


def read_cache(folder: Path) -> Cache:
    """Read a cache's manifest, without looking at its files.

    Raises: DataError if the manifest is unreadable.
    """
    try:
        manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    except (OSError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise _damaged(folder, f"manifest.json is unreadable ({reason})") from None
    return Cache(folder, manifest)


def open_cache(folder: Path, request: dict[str, Any]) -> Cache:
    """Open a cache and check it against its manifest.

    Checksums are compared up to VERIFY_ON_OPEN bytes in all, sizes always.

    Raises: DataError if it is damaged or was made for another request.
    """
    cache = read_cache(folder)
    if cache.manifest.format != FORMAT or cache.manifest.request != request:
        raise _damaged(folder, "it was made for other settings or by another version")
    total = sum(facts.bytes for facts in cache.manifest.files.values())
    cache.check_files(checksums=total <= VERIFY_ON_OPEN)
    return cache


class Build:
    """What a preparation hands over: arrays are written at once, facts at the end."""

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        self.source = source
        self.sizes: dict[str, int] = {}
        self.baselines: dict[str, float] = {}
        self.origin: dict[str, OriginFacts] = {}
        self.notes: dict[str, int] = {}
        self.skipped: list[str] = []

    def save(self, name: str, array: np.ndarray) -> None:
        """Write an array."""
        np.save(self.folder / f"{name}.npy", array, allow_pickle=False)

    def mapped(self, name: str, shape: tuple[int, ...], dtype: type) -> np.memmap:
        """Map an array of a fixed size, to be written in place.

        One that an interrupted preparation of the same request left is taken up; new ones
        hold zeros.
        """
        path = self.folder / f"{name}.npy"
        if path.is_file():
            with contextlib.suppress(ValueError):  # made in part
                return np.lib.format.open_memmap(path, mode="r+")
        return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)

    def drop(self, name: str) -> None:
        """Delete an array that the finished data does not need."""
        (self.folder / f"{name}.npy").unlink()


def open_or_build(
    folder: Path, *, task: str, source: str, request: dict[str, Any], build: Callable[[Build], None]
) -> Cache:
    """Open the cache in a folder; where there is none, make it with `build`.

    Args:
        source: of the data, unless `build` finds that it is another.
    Raises: DataError as `open_cache` and `build` do.
    """
    if folder.exists():  # complete, as it got its name last; and maybe not ours to lock
        return open_cache(folder, request)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        if not folder.exists():
            made = Build(_partial(folder, request), source)
            try:
                build(made)
                _finish(made, task, request)
                made.folder.rename(folder)
            except Exception:  # an interruption leaves it, to go on from
                shutil.rmtree(made.folder, ignore_errors=True)
                raise
        return open_cache(folder, request)


def _partial(folder: Path, request: dict[str, Any]) -> Path:
    """Make the folder to build in, or take up that of an interrupted build of this request."""
    partial = folder.with_name(f"{folder.name}.partial")
    mark = partial / REQUEST
    text = json.dumps(request, sort_keys=True)
    if not (mark.is_file() and mark.read_text(encoding="utf-8") == text):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        mark.write_text(text, encoding="utf-8")
    return partial


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    lock = FileLock(f"{folder}.lock")
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        logger.info(f"waiting for another process that prepares {folder}")
        held = lock.acquire()
    with held:
        yield


def _finish(made: Build, task: str, request: dict[str, Any]) -> None:
    (made.folder / REQUEST).unlink()
    paths = sorted(made.folder.iterdir())
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    manifest = Manifest(
        format=FORMAT,
        task=task,
        source=made.source,
        request=request,
        origin=made.origin,
        sizes=made.sizes,
        baselines=made.baselines,
        notes=made.notes,
        skipped=made.skipped,
        files={path.name: file_facts(path) for path in paths},
    )
    with (made.folder / "manifest.json").open("w") as file:
        file.write(manifest.model_dump_json(indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
