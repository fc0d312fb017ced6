"""Many small files in one: a results folder may keep the files of its runs in `runs.parquet`.

It is a table with a row for each file: folder and name, as they were in the results folder, and the
content. The files of a run are read in the same way whether they are packed or not.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

from common.errors import DataError
from common.files import write_atomically
from common.untrusted import LARGEST_TEXT, explain_errors, read_regular

PACK = "runs.parquet"
"""The packed files of a results folder."""
GROUPS = ("", "metrics.jsonl", "predictions.csv")
"""Names of the files in each row group of the table, "" for all others. These two are most of the
bytes, and are read when they are needed."""
LARGEST_GROUP = 2**31
"""Most bytes of the files that are read together, when they are unpacked."""
_PATH = re.compile(r"([\w-][\w.-]*/){1,4}[\w-][\w.-]*")
"""The path of a packed file, which leads nowhere else: runs/TASK/MIXER/RUN/result.json."""


def read_file(path: Path, *, largest: int = LARGEST_TEXT) -> bytes:
    """Read a file of a results folder, packed or not; the unpacked one if there are both.

    Raises: DataError and OSError as `read_regular`; DataError for a damaged pack.
    """
    try:
        return read_regular(path, largest=largest)
    except (FileNotFoundError, NotADirectoryError):
        for pack, relative in _packs_above(path):
            if relative in (files := _read_group(pack, path.name)):
                return files[relative]
        raise


def has_file(path: Path) -> bool:
    """Whether a file of a results folder is there, packed or not."""
    return file_on_disk(path).is_file()


def file_on_disk(path: Path) -> Path:
    """Return a file of a results folder or, where it is packed, the file that holds it."""
    if path.is_file():
        return path
    return next((pack for pack, name in _packs_above(path) if name in _list_names(pack)), path)


def list_files(results_dir: Path, pattern: str) -> list[Path]:
    """List the files of a results folder, packed or not: those of "runs/*/*/*/result.json"."""
    names = _list_names(results_dir / PACK)
    packed = (results_dir / name for name in names if PurePosixPath(name).match(pattern))
    return sorted({*results_dir.glob(pattern), *packed})


def list_files_of(folder: Path, pattern: str) -> list[Path]:
    """List the files of a run's folder, packed or not, whose name matches a pattern."""
    found = set(folder.glob(pattern))
    for pack, relative in _packs_above(folder):
        names = fnmatch.filter(_list_names(pack), f"{relative}/{pattern}")
        found |= {pack.parent / name for name in names}
    return sorted(found)


def read_pack(results_dir: Path) -> dict[str, bytes]:
    """Read all packed files of a results folder, by relative path; empty without a pack.

    Raises: DataError for a damaged pack.
    """
    pack = results_dir / PACK
    groups = [_read_group(pack, name) for name in GROUPS] if pack.is_file() else []
    return {path: content for group in groups for path, content in group.items()}


def write_pack(results_dir: Path, files: Mapping[str, bytes]) -> None:
    """Write contents by relative path as a pack. The same files give the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("folder", pa.string()), ("name", pa.string()), ("content", pa.binary())])
    groups: dict[str, list[dict[str, str | bytes]]] = {name: [] for name in GROUPS}
    for path in sorted(files):
        folder, _, name = path.rpartition("/")
        row = {"folder": folder, "name": name, "content": files[path]}
        groups[_group_of(name)].append(row)
    buffer = pa.BufferOutputStream()
    with pq.ParquetWriter(
        buffer, schema, compression="zstd", compression_level=19, use_dictionary=False
    ) as writer:
        for rows in groups.values():
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    results_dir.mkdir(parents=True, exist_ok=True)
    write_atomically(results_dir / PACK, buffer.getvalue().to_pybytes())


def _group_of(name: str) -> str:
    return name if name in GROUPS else ""


def _packs_above(path: Path) -> Iterator[tuple[Path, str]]:
    """Find the packs that a file or folder may be in, and its path in there."""
    for parent in list(path.parents)[:5]:
        if (parent / PACK).is_file():
            yield parent / PACK, path.relative_to(parent).as_posix()


def _list_names(pack: Path) -> Collection[str]:
    """List the paths of the packed files, without reading their contents."""
    return _read(pack, None, *_version_of(pack)).keys() if pack.is_file() else ()


def _read_group(pack: Path, name: str) -> Mapping[str, bytes]:
    """Read the packed files that are read together with a file of a name."""
    return _read(pack, GROUPS.index(_group_of(name)), *_version_of(pack))


def _version_of(pack: Path) -> tuple[int, int]:
    """Return what tells a changed file from the one that was read before."""
    facts = pack.stat()
    return facts.st_mtime_ns, facts.st_size


@functools.lru_cache(maxsize=32)
def _read(pack: Path, group: int | None, *_version: int) -> Mapping[str, bytes]:
    """Read the files of a group by their paths; None: the paths of all files, without contents."""
    import pyarrow.parquet as pq

    with explain_errors(str(pack), "get it again from the repository"):
        file = pq.ParquetFile(pack)
        if group is None:
            rows = file.read(columns=["folder", "name"]).to_pylist()
        else:
            size = file.metadata.row_group(group).total_byte_size
            if size > LARGEST_GROUP:
                limit = f"expected at most {LARGEST_GROUP:,}"
                raise DataError(f"{pack}: {size:,} bytes unpacked, {limit}")
            rows = file.read_row_group(group).to_pylist()
        files = {f"{row['folder']}/{row['name']}": row.get("content", b"") for row in rows}
        if wrong := [path for path in files if not _PATH.fullmatch(path)]:
            raise DataError(f"{pack}: {wrong[0]!r} is no path of a file of results")
        return files
