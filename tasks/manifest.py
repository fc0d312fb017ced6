"""The manifest of prepared data: its files, their origin, and the fingerprint of the data."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict

from common.untrusted import open_regular

PREDICTIONS = "_predictions.npy"
"""End of the names of files that hold what trivial baselines and ideal predictors predict."""

LARGEST_MANIFEST = 256 * 2**20
"""Most bytes of a manifest, which has a line on each thing that was left out."""


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


def origin_facts(path: Path) -> OriginFacts:
    """Read the size, checksum and time of a file that data is read from."""
    return OriginFacts(**dict(file_facts(path)), modified_ns=path.stat().st_mtime_ns)
