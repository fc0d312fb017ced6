"""Prepared data on disk: arrays and a manifest that says what they are and where they came from."""

import hashlib
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from lra.common.errors import DataError
from lra.common.untrusted import explain_errors, map_array, open_regular, read_regular

FORMAT = 3
VERIFY_ON_OPEN = 128 * 2**20
"""Opening a cache of at most this many bytes reads all of it and compares the checksums."""
PREDICTIONS = "_predictions.npy"
"""End of the names of files that hold what trivial baselines and ideal predictors predict."""
LARGEST_MANIFEST = 256 * 2**20
"""Most bytes of a manifest, which has a line on each thing that was left out."""
REBUILD = "delete that folder and run the same command again to rebuild it"


class FileFacts(BaseModel):
    """Size and checksum of a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    bytes: int
    sha256: str


class OriginFacts(FileFacts):
    """Size, checksum and time of a file that data was read from."""

    modified_ns: int
    """When the file was last changed; the same content with another time is the same file."""


class Manifest(BaseModel):
    """What a cache holds and where it came from."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: int
    task: str
    source: str
    unofficial_because: str = ""
    """What the data has in another way than the official release, if its source is unofficial."""
    request: dict[str, Any]
    """Everything asked of the data: the law, its seed, the counts; or how files are read."""
    origin: dict[str, OriginFacts]
    """Files that the data was read from, by their path under the data folder."""
    sizes: dict[str, int]
    baselines: dict[str, float]
    notes: dict[str, int]
    """Counts that a user should know of, such as the texts that two splits have in common."""
    skipped: list[str]
    """A line on each thing that was left out, with its place and the reason."""
    files: dict[str, FileFacts]

    @property
    def fingerprint(self) -> str:
        """Hash of every byte of the data and of the facts that describe it.

        It does not depend on whether the data was read from an archive or a folder, nor on what
        baselines and ideal predictors predict, as processors round differently.
        """
        included = {"format", "task", "source", "request", "sizes", "files"}
        facts = self.model_dump(mode="json", include=included)
        names = [name for name in facts["files"] if not name.endswith(PREDICTIONS)]
        return canonical_hash({**facts, "files": {name: facts["files"][name] for name in names}})


def canonical_hash(value: object) -> str:
    """Hash a JSON value independently of key order: 64 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def file_facts(path: Path) -> FileFacts:
    """Read a file's size and checksum."""
    with open_regular(path) as file:
        digest = hashlib.file_digest(cast("Any", file), "sha256").hexdigest()
    return FileFacts(bytes=path.stat().st_size, sha256=digest)


class Cache:
    """An opened cache folder."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

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
            size = path.stat().st_size if path.is_file() else None
            if size != facts.bytes:
                fault = "is missing" if size is None else f"has {size} bytes"
                raise self.damaged(f"{name} {fault}, expected {facts.bytes} bytes")
            if checksums and file_facts(path).sha256 != facts.sha256:
                raise self.damaged(f"the checksum of {name} differs")


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
