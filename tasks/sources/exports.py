"""Whether files in the official file structure are the release, an export of ours, or neither."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from common.errors import DataError
from common.files import write_atomically
from common.untrusted import read_regular
from tasks.cache import Cache
from tasks.preparation import Build

MARK = "exported-from"
"""File beside exported data that names its source and the digest of its content."""

SEEDS_TRIED = 100
"""Seeds of our generators, from 0 on, whose first examples are looked for in what is read."""

Source = Literal["official", "generated", "generated, clean law", "unofficial"]


class Mark(BaseModel):
    """What the mark beside exported files says of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    source: Source
    unofficial_because: str = ""
    content: str
    """See `content_digest`."""


def content_digest(arrays: Iterable[np.ndarray]) -> str:
    """Hash the content of arrays one after another, which may be parts of larger ones."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def mark_export(
    folder: Path,
    cache: Cache,
    content: Iterable[np.ndarray],
    names: Iterable[str],
    because: str = "",
) -> None:
    """Make a folder for exported files, with a note that they are not the official release.

    Args:
        folder: where the files are exported to.
        cache: the data to be exported.
        content: its arrays, as they are read back.
        names: names of the files and folders to be exported.
        because: how the data differs from what the official files could hold, if it does.
    Raises: DataError if the folder has one of these names already, but no mark of an export.
    """
    path = folder / MARK
    present = [name for name in names if (folder / name).exists()]
    if present and (not path.is_file() or read_mark(read_regular(path)) is None):
        raise DataError(
            f"{folder} holds {', '.join(present)}, which an export would overwrite; name another "
            f"folder"
        )
    because = because or cache.manifest.unofficial_because
    source = "unofficial" if because else cache.manifest.source
    facts = {"source": source, "unofficial_because": because}
    mark = Mark.model_validate({**facts, "content": content_digest(content)})
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (mark.model_dump_json(indent=2) + "\n").encode())


def read_mark(content: bytes) -> Mark | None:
    """Read a mark; None for one that is not of this kind."""
    try:
        return Mark.model_validate_json(content)
    except ValidationError:
        return None


def determine_source(
    made: Build, mark: bytes | None, content: Iterable[np.ndarray], doubt: str
) -> None:
    """Say in a cache whether the files that it was read from are official.

    An export of ours is known by its mark, if it still holds what the mark says; all else is
    official only if nothing speaks against it.

    Args:
        made: the cache in the making, official so far.
        mark: content of the file MARK beside the files, if there is one.
        content: the arrays that were read.
        doubt: what the files have in another way than the release; empty if nothing.
    """
    said = None if mark is None else read_mark(mark)
    if mark is not None and (said is None or said.content != content_digest(content)):
        doubt = f"the files are not those that {MARK} beside them was written for"
    elif said is not None and said.source != made.source:
        made.source, made.unofficial_because = said.source, said.unofficial_because
        return
    if doubt:
        made.mark_unofficial(doubt)
