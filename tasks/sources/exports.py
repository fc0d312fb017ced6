"""Whether files in the official file structure are the release, an export of ours, or neither."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from tasks.base import DataError
from tasks.cache import Build

MARK = "exported-from"
"""File beside exported data that names its source and the digest of its content."""


class Mark(BaseModel):
    """What the mark beside exported files says of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    source: str
    unofficial_because: str = ""
    content: str
    """See `content_digest`."""


def content_digest(arrays: Iterable[np.ndarray]) -> str:
    """Hash the content of arrays one after another, which may be parts of larger ones."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def mark_export(folder: Path, mark: Mark, names: Iterable[str]) -> None:
    """Make a folder for exported files, with a note that they are not the official release.

    Args:
        folder: where the files are exported to.
        mark: what is noted of them.
        names: names of the files and folders to be exported.
    Raises: DataError if the folder has one of these names already, but no mark of an export.
    """
    path = folder / MARK
    present = [name for name in names if (folder / name).exists()]
    if present and not path.exists():
        raise DataError(
            f"{folder} holds {', '.join(present)}, which an export would overwrite; name another "
            f"folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{MARK}.partial")
    partial.write_text(json.dumps(mark.model_dump(), indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def settle_source(made: Build, folder: Path, content: str, doubt: str) -> None:
    """Say in a cache whether the files that it was read from are official.

    An export of ours is known by its mark, if it still holds what the mark says; all else is
    official only if nothing speaks against it.

    Args:
        made: the cache in the making, official so far.
        folder: where the files, and the mark beside them, are.
        content: digest of what was read, see `content_digest`.
        doubt: what the files have in another way than the release; empty if nothing.
    """
    mark = _read_mark(folder / MARK)
    if mark is not None and mark.content != content:
        doubt = f"the files are not those that {MARK} beside them was written for"
    elif mark is not None and mark.source != made.source:
        made.source, made.unofficial_because = mark.source, mark.unofficial_because
        return
    if doubt:
        made.mark_unofficial(doubt)


def _read_mark(path: Path) -> Mark | None:
    """Read a mark; one that is not of this kind fits no content."""
    if not path.is_file():
        return None
    try:
        return Mark.model_validate_json(path.read_bytes())
    except ValidationError:
        return Mark(source="", content="")
