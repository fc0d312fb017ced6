"""The mark beside exported files, which have the official file structure but are no release."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tasks.base import DataError

MARK = "exported-from"
"""File beside exported data that names its source."""


def mark_origin(folder: Path, source: str, names: Iterable[str]) -> None:
    """Make a folder for exported files, with a note that they are not the official release.

    Args:
        folder: where the files are exported to.
        source: source of the exported data.
        names: names of the files and folders to be exported.
    Raises: DataError if the folder has one of these names already, but no mark of an export.
    """
    mark = folder / MARK
    present = [name for name in names if (folder / name).exists()]
    if present and not mark.exists():
        raise DataError(
            f"{folder} holds {', '.join(present)}, which an export would overwrite; name another "
            f"folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    mark.write_text(f"{source}\n", encoding="utf-8")


def origin_of(folder: Path) -> str:
    """Return the source of the files in a folder: official, unless an export says otherwise."""
    mark = folder / MARK
    return mark.read_text(encoding="utf-8").strip() if mark.is_file() else "official"
