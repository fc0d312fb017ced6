"""Whether files in the official file structure are the release, an export of ours, or neither."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from lra.common.errors import DataError
from lra.common.files import write_atomically
from lra.common.untrusted import read_regular
from lra.tasks.cache import Manifest
from lra.tasks.preparation import Build

MARK = "exported-from"
"""File beside exported data that says where the data came from."""

Source = Literal["official", "generated", "generated, clean law", "unofficial"]


class Mark(BaseModel):
    """What the mark beside exported files says of them."""

    model_config = ConfigDict(frozen=True)
    source: Source
    unofficial_because: str = ""


def mark_export(folder: Path, manifest: Manifest, names: Iterable[str], doubt: str = "") -> None:
    """Make a folder for exported files, with a note that they are not the official release.

    Args:
        folder: where the files are exported to.
        manifest: of the cache that is exported.
        names: names of the files and folders to be exported.
        doubt: why the files are unofficial, though the cache is not.
    Raises: DataError if the folder has one of these names already, but no mark of an export.
    """
    path = folder / MARK
    present = [name for name in names if (folder / name).exists()]
    if present and (not path.is_file() or read_mark(read_regular(path)) is None):
        raise DataError(
            f"{folder} holds {', '.join(present)}, which an export would overwrite; name another "
            f"folder"
        )
    said = {"source": manifest.source, "unofficial_because": manifest.unofficial_because}
    if doubt:
        said = {"source": "unofficial", "unofficial_because": doubt}
    folder.mkdir(parents=True, exist_ok=True)
    mark = Mark.model_validate(said)
    write_atomically(path, (mark.model_dump_json(indent=2) + "\n").encode())


def read_mark(content: bytes) -> Mark | None:
    """Read a mark; None for one that is not of this kind."""
    try:
        return Mark.model_validate_json(content)
    except ValidationError:
        return None


def determine_source(made: Build, mark: bytes | None, doubt: str) -> None:
    """Say in a cache whether the files that it was read from are official.

    An export of ours is known by its mark; all else is official only if nothing speaks against it.

    Args:
        made: the cache in the making, official so far.
        mark: content of the file MARK beside the files, if there is one.
        doubt: what the files have in another way than the release; empty if nothing.
    """
    said = None if mark is None else read_mark(mark)
    if said is not None and said.source != "official":
        made.source, made.unofficial_because = said.source, said.unofficial_because
    elif mark is not None and said is None:
        made.mark_unofficial(f"the file {MARK} beside it is no mark of an export")
    elif doubt:
        made.mark_unofficial(doubt)
