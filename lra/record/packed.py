"""Many small files in one: a results folder may keep the files of its runs in `runs.parquet`.

It is a table with a row for each file: folder and name, as they were in the results folder, and the
content. The files of a run are read in the same way whether they are packed or not. Files are
looked for as if a damaged pack were not there; `pack_faults` names it.
"""

import fnmatch
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from lra.common.errors import DataError
from lra.common.tables import read_table
from lra.common.untrusted import LARGEST_TEXT, explain_errors, read_regular

PACK = "runs.parquet"
"""The packed files of a results folder."""


class _Pack(NamedTuple):
    files: dict[str, bytes]
    """Contents by path."""
    folders: dict[str, list[str]]
    """Names of the files of each folder."""
    fault: str = ""


def read_file(path: Path, *, largest: int = LARGEST_TEXT) -> bytes:
    """Read a file of a results folder, packed or not; the unpacked one if there are both.

    Raises: DataError and OSError as `read_regular`; DataError for a damaged pack.
    """
    try:
        return read_regular(path, largest=largest)
    except (FileNotFoundError, NotADirectoryError):
        for results_dir, name in _packs_above(path):
            if (content := read_pack(results_dir).get(name)) is not None:
                if len(content) > largest:
                    raise DataError(
                        f"{path} has {len(content):,} bytes, expected at most {largest:,}; is it "
                        f"another file?"
                    ) from None
                return content
        raise


def has_file(path: Path) -> bool:
    """Whether a file of a results folder is there, packed or not."""
    return file_on_disk(path).is_file()


def file_on_disk(path: Path) -> Path:
    """Return a file of a results folder or, where it is packed, the file that holds it."""
    if path.is_file():
        return path
    packs = _packs_above(path)
    return next((folder / PACK for folder, name in packs if name in _open(folder).files), path)


def list_files(folder: Path, pattern: str) -> list[Path]:
    """List the files in a results folder or a part of it, packed or not.

    Args:
        pattern: of their paths within the folder: "runs/*/*/*/result.json".
    """
    files = set(folder.glob(pattern))
    for results_dir, relative in _packs_above(folder):
        whole, pack = PurePosixPath(relative, pattern), _open(results_dir)
        above = whole.parent.as_posix()
        folders = fnmatch.filter(pack.folders, above) if "*" in above else [above]
        for parent in folders:
            names = fnmatch.filter(pack.folders.get(parent, ()), whole.name)
            files |= {results_dir / parent / name for name in names}
    return sorted(files)


def pack_faults(results_dir: Path) -> list[str]:
    """Say what is wrong with the packed files of a results folder; empty if nothing."""
    fault = _open(results_dir).fault
    return [fault] if fault else []


def _packs_above(path: Path) -> Iterator[tuple[Path, str]]:
    """Find the results folders with packs that a file or folder may be in, and its path there."""
    for parent in [path, *path.parents][:6]:
        if (parent / PACK).is_file():
            yield parent, path.relative_to(parent).as_posix()


def read_pack(results_dir: Path) -> Mapping[str, bytes]:
    """Read all packed files of a results folder, by relative path; empty without a pack.

    Raises: DataError for a damaged pack.
    """
    pack = _open(results_dir)
    if pack.fault:
        raise DataError(pack.fault)
    return pack.files


def _open(results_dir: Path) -> _Pack:
    path = results_dir / PACK
    if not path.is_file():
        return _Pack({}, {})
    facts = path.stat()
    return _read(path, facts.st_mtime_ns, facts.st_size)


@functools.lru_cache(maxsize=16)
def _read(path: Path, *_version: int) -> _Pack:
    files: dict[str, bytes] = {}
    folders: dict[str, list[str]] = {}
    try:
        with explain_errors(str(path), "get it again from the repository"):
            for folder, name, content in read_table(path, ["folder", "name", "content"]):
                entry = "/".join((folder, name))
                if "/" in name or not {"", ".", ".."}.isdisjoint(entry.split("/")):
                    raise ValueError(f"{entry!r} is no path in a results folder")
                if type(content) is not bytes:
                    raise ValueError(f"{entry} has no content")
                if entry in files:
                    raise ValueError(f"it has {entry} twice")
                files[entry] = content
                folders.setdefault(folder, []).append(name)
    except (DataError, OSError) as error:
        return _Pack({}, {}, str(error))
    return _Pack(files, folders)
