"""Many small files in one: a results folder may keep the files of its runs in `runs.parquet`.

It is a table with a row for each file: folder and name, as they were in the results folder, and the
content. The files of a run are read in the same way whether they are packed or not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from common.errors import DataError
from common.files import write_atomically
from common.untrusted import LARGEST_TEXT, explain_errors, read_regular
from lra.runtime.errors import UserError

PACK = "runs.parquet"
"""The packed files of a results folder."""
_LARGE = ("metrics.jsonl", "predictions.csv")
"""Names of files that are read apart from others, since they are most of the bytes."""
LARGEST_GROUP = 2**31
"""Most bytes of the files that are read together, when they are unpacked."""
_ADVICE = "get it again from the repository"
_NAME = re.compile(r"[\w-][\w.-]*")
_DEEPEST = 4
"""Levels of folders between a results folder and a file: runs/TASK/MIXER/RUN/result.json."""


def read_file(path: Path, *, largest: int = LARGEST_TEXT) -> bytes:
    """Read a file of a results folder, packed or not; the unpacked one if there are both.

    Raises: DataError and OSError as `read_regular`; DataError for a damaged pack.
    """
    try:
        return read_regular(path, largest=largest)
    except (FileNotFoundError, NotADirectoryError):
        content = _packed(path)
        if content is None:
            raise
        return content


def has_file(path: Path) -> bool:
    """Whether a file of a results folder is there, packed or not."""
    return path.is_file() or _packed(path) is not None


def file_on_disk(path: Path) -> Path:
    """Return a file of a results folder or, where it is packed, the file that holds it."""
    packs = () if path.is_file() else _packs_above(path)
    return next((pack for pack, _ in packs), path)


def list_files(results_dir: Path, pattern: str) -> list[Path]:
    """List the files of a results folder, packed or not, whose relative path matches a pattern.

    Args:
        pattern: a pattern of `Path.glob`: "runs/*/*/*/result.json".
    """
    packed = (path for path in _names(results_dir / PACK) if PurePosixPath(path).match(pattern))
    return sorted({*results_dir.glob(pattern), *(results_dir / path for path in packed)})


def list_files_of(folder: Path, pattern: str) -> list[Path]:
    """List the files of a run's folder, packed or not, whose name matches a pattern."""
    names = {path.name for path in folder.glob(pattern)}
    for pack, relative in _packs_above(folder):
        names |= {name for name in _by_folder(pack).get(relative, ()) if fnmatch(name, pattern)}
    return sorted(folder / name for name in names)


def read_pack(results_dir: Path) -> dict[str, bytes]:
    """Read all packed files of a results folder, by relative path; empty without a pack.

    Raises: DataError for a damaged pack.
    """
    pack = results_dir / PACK
    return {name: _contents(pack, PurePosixPath(name).name)[name] for name in _names(pack)}


def write_pack(results_dir: Path, files: Mapping[str, bytes]) -> None:
    """Write the pack of a results folder. The same files give the same bytes.

    Args:
        files: contents, by relative path.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("folder", pa.string()), ("name", pa.string()), ("content", pa.binary())])
    buffer = pa.BufferOutputStream()
    with pq.ParquetWriter(
        buffer, schema, compression="zstd", compression_level=19, use_dictionary=False
    ) as writer:
        for kind in ("", *_LARGE):
            chosen = [path for path in sorted(files) if _kind(PurePosixPath(path).name) == kind]
            rows = [
                {"folder": str(p.parent), "name": p.name, "content": files[path]}
                for path in chosen
                for p in [PurePosixPath(path)]
            ]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    results_dir.mkdir(parents=True, exist_ok=True)
    write_atomically(results_dir / PACK, buffer.getvalue().to_pybytes())


def unpack(results_dir: Path, target: Path, folders: Collection[str] = ()) -> list[Path]:
    """Write packed files into the folders that they had; files that are there already stay.

    Args:
        target: results folder to write into.
        folders: relative paths of the folders to unpack; empty: all of them.
    Returns: the folders that were unpacked.
    Raises: UserError for a folder that is not packed.
    """
    pack = results_dir / PACK
    known = _by_folder(pack)
    if missing := [folder for folder in folders if folder not in known]:
        raise UserError(f"{pack} has no {missing[0]}; python -m lra.record list names its runs")
    for folder in folders or known:
        for name in known[folder]:
            path = target / folder / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, _contents(pack, name)[f"{folder}/{name}"])
    return [target / folder for folder in folders or known]


def _kind(name: str) -> str:
    return name if name in _LARGE else ""


def _packs_above(path: Path) -> Iterator[tuple[Path, str]]:
    """Find the pack that a file or folder belongs to, and its path in there."""
    for parent in list(path.parents)[: _DEEPEST + 1]:
        if (parent / PACK).is_file():
            yield parent / PACK, path.relative_to(parent).as_posix()


def _packed(path: Path) -> bytes | None:
    found = (_contents(pack, path.name).get(name) for pack, name in _packs_above(path))
    return next((content for content in found if content is not None), None)


def _names(pack: Path) -> list[str]:
    return [f"{folder}/{name}" for folder, names in _by_folder(pack).items() for name in names]


def _by_folder(pack: Path) -> Mapping[str, list[str]]:
    """List the names of the packed files of each folder, without reading their contents."""
    return _read_names(pack, *_version_of(pack)) if pack.is_file() else {}


def _contents(pack: Path, name: str) -> Mapping[str, bytes]:
    """Read the packed files that are read together with a file of a name."""
    return _read_group(pack, _kind(name), *_version_of(pack))


def _version_of(pack: Path) -> tuple[int, int]:
    """Return what tells a changed file from the one that was read before."""
    facts = pack.stat()
    return facts.st_mtime_ns, facts.st_size


@functools.lru_cache(maxsize=8)
def _read_names(pack: Path, *_version: int) -> Mapping[str, list[str]]:
    import pyarrow.parquet as pq

    found: dict[str, list[str]] = {}
    with explain_errors(str(pack), _ADVICE):
        for row in pq.ParquetFile(pack).read(columns=["folder", "name"]).to_pylist():
            folder, _, name = _checked_path(row, pack).rpartition("/")
            found.setdefault(folder, []).append(name)
    return found


@functools.lru_cache(maxsize=32)
def _read_group(pack: Path, kind: str, *_version: int) -> Mapping[str, bytes]:
    import pyarrow.parquet as pq

    with explain_errors(str(pack), _ADVICE):
        file, group = pq.ParquetFile(pack), ("", *_LARGE).index(kind)
        size = file.metadata.row_group(group).total_byte_size
        if size > LARGEST_GROUP:
            raise DataError(f"{pack}: {size:,} bytes unpacked, expected at most {LARGEST_GROUP:,}")
        rows = file.read_row_group(group).to_pylist()
        return {_checked_path(row, pack): row["content"] for row in rows}


def _checked_path(row: Mapping[str, Any], pack: Path) -> str:
    """Return the relative path of a packed file, which leads nowhere else."""
    parts = [*row["folder"].split("/"), row["name"]]
    if len(parts) > _DEEPEST + 1 or not all(map(_NAME.fullmatch, parts)):
        raise DataError(f"{pack}: {'/'.join(parts)!r} is no path of a file of results")
    return "/".join(parts)
