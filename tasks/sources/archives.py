"""Files of a folder or of a tar archive, one after another.

An archive is read and never unpacked: no name in it can reach the file system, links and
devices are refused, and the bytes that are read from it are limited.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from tasks.base import DataError
from tasks.progress import progress

CHUNK = 2**20
GIB = 2**30
LARGEST_FILE = 32 * GIB
LARGEST_TOTAL = 128 * GIB
"""Most bytes of all files read from an archive, unpacked."""

_OPENERS: tuple[tuple[bytes, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
    (b"BZh", bz2.BZ2File),
)
_FAULTS = (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, OSError, ValueError)


def walk(
    path: Path,
    wanted: re.Pattern[str],
    *,
    inside: str,
    largest: int = LARGEST_FILE,
    total: int = LARGEST_TOTAL,
) -> Iterator[tuple[re.Match[str], IO[bytes]]]:
    """Read the files of a folder in the order of their names, or of an archive in its own order.

    A file must be read before the next is asked for.

    Args:
        path: a folder, or a tar archive, uncompressed or compressed by gzip, xz or bzip2.
        wanted: regular expression; files are read if it is found in their names.
        inside: pattern of the files of a folder.
        largest: most bytes that a file of an archive may have.
        total: most bytes that all files read from an archive may have.
    Yields: the match of each file's name, in which "/" separates folders, and the open file.
    Raises: DataError for an archive that is damaged, cut off or hostile.
    """
    if path.is_dir():
        return _walk_folder(path, inside, wanted)
    return _walk_archive(path, wanted, largest, total)


def _walk_folder(
    folder: Path, inside: str, wanted: re.Pattern[str]
) -> Iterator[tuple[re.Match[str], IO[bytes]]]:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.glob(inside))
    matches = [match for name in names if (match := wanted.search(name))]
    for match in progress(f"reading {folder}", matches, unit="files"):
        with (folder / match.string).open("rb") as file:
            yield match, file


def _walk_archive(
    path: Path, wanted: re.Pattern[str], largest: int, total: int
) -> Iterator[tuple[re.Match[str], IO[bytes]]]:
    size = path.stat().st_size
    with (
        path.open("rb") as raw,
        progress(f"reading {path}", total=size, unit="B") as bar,
        _faults_named(path),
        _unpacked(_Counted(raw, bar)) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        for member in archive:
            match = wanted.search(member.name)
            if match is None or member.isdir():
                continue
            file = archive.extractfile(member) if member.isreg() else None
            if file is None:
                raise DataError(f"{path}: {member.name} is not a regular file; refused")
            total -= member.size
            if member.size > largest or total < 0:
                raise DataError(
                    f"{path}: {member.name} has {member.size:,} bytes, more than expected of it; "
                    f"refused"
                )
            yield match, io.BufferedReader(_Member(path, file))
        while stream.read(CHUNK):  # the checksum of what came before is at the end
            pass


@contextlib.contextmanager
def _faults_named(path: Path) -> Iterator[None]:
    """Turn the many errors of broken archives into one that names the archive."""
    try:
        yield
    except _FAULTS as error:
        raise DataError(
            f"{path} ({path.stat().st_size:,} bytes) is damaged or incomplete: {error}; get it anew"
        ) from None


class _Member(io.RawIOBase):
    """A file in an archive; reading beyond the end of a truncated archive is a DataError."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        super().__init__()
        self.path = path
        self.file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _faults_named(self.path):
            data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Counted:
    """A file whose reads move a progress bar."""

    def __init__(self, raw: IO[bytes], bar: Any) -> None:
        self.raw = raw
        self.bar = bar

    def read(self, size: int = -1) -> bytes:
        data = self.raw.read(size)
        self.bar.update(len(data))
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.raw.seek(offset, whence)

    def tell(self) -> int:
        return self.raw.tell()

    def __enter__(self) -> _Counted:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def _unpacked(file: _Counted) -> Any:
    """Undo an archive's compression, which its first bytes name."""
    start = file.raw.read(8)
    file.raw.seek(0)
    for magic, opener in _OPENERS:
        if start.startswith(magic):
            return opener(file)
    return file
