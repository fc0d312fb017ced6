"""Many small files in one: a results folder may keep the files of its runs in `runs.parquet`.

It is a table with a row for each file: folder and name, as they were in the results folder, and the
content. The files of a run are read in the same way whether they are packed or not.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from common.untrusted import LARGEST_TEXT, explain_errors, read_regular

PACK = "runs.parquet"
"""The packed files of a results folder."""


def read_file(path: Path, *, largest: int = LARGEST_TEXT) -> bytes:
    """Read a file of a results folder, packed or not; the unpacked one if there are both.

    Raises: DataError and OSError as `read_regular`; DataError for a damaged pack.
    """
    try:
        return read_regular(path, largest=largest)
    except (FileNotFoundError, NotADirectoryError):
        for pack, name in _packs_above(path):
            if name in (files := read_pack(pack.parent)):
                return files[name]
        raise


def has_file(path: Path) -> bool:
    """Whether a file of a results folder is there, packed or not."""
    return file_on_disk(path).is_file()


def file_on_disk(path: Path) -> Path:
    """Return a file of a results folder or, where it is packed, the file that holds it."""
    if path.is_file():
        return path
    packs = _packs_above(path)
    return next((pack for pack, name in packs if name in read_pack(pack.parent)), path)


def list_files(folder: Path, pattern: str) -> list[Path]:
    """List the files in a results folder or a part of it, packed or not.

    Args:
        pattern: of their paths within the folder: "runs/*/*/*/result.json".
    """
    found = set(folder.glob(pattern))
    for pack, relative in _packs_above(folder):
        whole = PurePosixPath(relative, pattern).as_posix()
        found |= {pack.parent / name for name in fnmatch.filter(read_pack(pack.parent), whole)}
    return sorted(found)


def _packs_above(path: Path) -> Iterator[tuple[Path, str]]:
    """Find the packs that a file or folder may be in, and its path in there."""
    for parent in [path, *path.parents][:6]:
        if (parent / PACK).is_file():
            yield parent / PACK, path.relative_to(parent).as_posix()


def read_pack(results_dir: Path) -> Mapping[str, bytes]:
    """Read all packed files of a results folder, by relative path; empty without a pack.

    Raises: DataError for a damaged pack.
    """
    pack = results_dir / PACK
    if not pack.is_file():
        return {}
    facts = pack.stat()
    return _read(pack, facts.st_mtime_ns, facts.st_size)


@functools.lru_cache(maxsize=16)
def _read(pack: Path, *_version: int) -> Mapping[str, bytes]:
    import pyarrow.parquet as pq

    with explain_errors(str(pack), "get it again from the repository"):
        rows = pq.ParquetFile(pack).read().to_pylist()
        return {f"{row['folder']}/{row['name']}": row["content"] for row in rows}
