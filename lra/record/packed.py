"""Many small files in one: a results folder may keep the files of its runs in `runs.parquet`.

It is a table with a row for each file: folder and name, as they were in the results folder, and the
content. The files of a run are read in the same way whether they are packed or not.
"""

from __future__ import annotations

import fnmatch
import functools
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from common.errors import DataError
from common.files import write_atomically
from common.untrusted import LARGEST_TEXT, explain_errors, read_regular

PACK = "runs.parquet"
"""The packed files of a results folder."""
_PATH = re.compile(r"([\w-][\w.-]*/){1,4}[\w-][\w.-]*")
"""The path of a packed file, which leads nowhere else: runs/TASK/MIXER/RUN/result.json."""


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
        files = {f"{row['folder']}/{row['name']}": row["content"] for row in rows}
        if wrong := [path for path in files if not _PATH.fullmatch(path)]:
            raise DataError(f"{pack}: {wrong[0]!r} is no path of a file of results")
        return files


def write_pack(results_dir: Path, files: Mapping[str, bytes]) -> None:
    """Write contents by relative path as a pack. The same files give the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    places = sorted((PurePosixPath(path) for path in files), key=lambda path: (path.name, path))
    columns = {
        "folder": [path.parent.as_posix() for path in places],
        "name": [path.name for path in places],
        "content": [files[path.as_posix()] for path in places],
    }
    buffer = io.BytesIO()
    pq.write_table(
        pa.table(columns), buffer, compression="zstd", compression_level=19, use_dictionary=False
    )
    results_dir.mkdir(parents=True, exist_ok=True)
    write_atomically(results_dir / PACK, buffer.getvalue())
