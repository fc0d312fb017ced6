"""The mark that tells exported files from the official release in whose layout they are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tasks.base import DataError

MARK = "exported-from"
"""File that names the source of exported data, beside it."""


def mark_origin(folder: Path, source: str, names: Iterable[str]) -> None:
    """Make a folder for exported files, with word that they are not the official release.

    Args:
        names: of the files and folders to be exported.
    Raises: DataError if the folder holds some that no export made.
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
    """Return the source of the data that files in the official layout hold."""
    mark = folder / MARK
    return mark.read_text(encoding="utf-8").strip() if mark.is_file() else "official"
