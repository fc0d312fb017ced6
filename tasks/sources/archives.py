"""Files of a folder, of a tar or zip archive, one after another; and single ones, compressed.

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
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

from common.errors import DataError
from common.progress import progress
from common.untrusted import explain_errors, open_regular

CHUNK = 2**20
GIB = 2**30
LARGEST_FILE = 32 * GIB
LARGEST_TOTAL = 128 * GIB
"""Most bytes of all that is unpacked from an archive, whether it is wanted or skipped."""

ZIP = (b"PK\x03\x04", b"PK\x05\x06")
"""How zip archives begin; the second one is empty."""

LARGEST_GROWTH = 200
AT_EASE = 64 * CHUNK
"""An archive of which more than so many bytes are unpacked may not grow more than so many times."""

_OPENERS: tuple[tuple[bytes, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
    (b"BZh", bz2.BZ2File),
)


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
        path: a folder, a zip archive, or a tar archive, which gzip, xz or bzip2 may compress.
        wanted: regular expression; files are read if it is found in their names.
        inside: pattern of the files of a folder.
        largest: most bytes that a file may have.
        total: most bytes that may be unpacked from an archive.
    Yields: the match of each file's name, in which "/" separates folders, and the open file.
    Raises: DataError for an archive that is damaged, cut off or hostile.
    """
    if path.is_dir():
        return _walk_folder(path, inside, wanted, largest)
    if is_zip(path):
        return _walk_zip(path, wanted, largest, total)
    return _walk_tar(path, wanted, largest, total)


def is_zip(path: Path) -> bool:
    """Whether a regular file begins as a zip archive does."""
    with open_regular(path) as file:
        return file.read(len(ZIP[0])) in ZIP


def read_unpacked(path: Path, *, largest: int) -> bytes:
    """Read a file as a whole, which gzip, xz or bzip2 may compress.

    Args:
        largest: most bytes that it may have, compressed or not.
    Raises: DataError for a file that is damaged, cut off or hostile.
    """
    with open_regular(path, largest=largest) as raw, _decompressed(raw, path, largest) as stream:
        content = io.BytesIO()
        while part := stream.read(CHUNK):
            content.write(part)
        return content.getvalue()


def _walk_folder(
    folder: Path, inside: str, wanted: re.Pattern[str], largest: int
) -> Iterator[tuple[re.Match[str], IO[bytes]]]:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.glob(inside))
    matches = [match for name in names if (match := wanted.search(name))]
    for match in progress(f"reading {folder}", matches, unit="files"):
        with open_regular(folder / match.string, largest=largest) as file:
            yield match, file


def _walk_tar(
    path: Path, wanted: re.Pattern[str], largest: int, total: int
) -> Iterator[tuple[re.Match[str], IO[bytes]]]:
    with open_regular(path) as raw, _decompressed(raw, path, total) as limited:
        stream: Any = limited
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                vars(archive)["members"] = []  # it would keep them all, to find them by name
                match = wanted.search(member.name)
                if match is not None and not member.isdir():
                    yield match, _open_member(archive, member, path, largest)
        while stream.read(CHUNK):  # the checksum of what came before is at the end
            pass


@contextlib.contextmanager
def _decompressed(raw: IO[bytes], path: Path, total: int) -> Iterator[_Limited]:
    """Undo a file's compression, with a progress bar, a limit and faults that name the file."""
    size = path.stat().st_size
    with (
        progress(f"reading {path}", total=size, unit="B") as bar,
        _explain_errors(path),
        _unpacked(_Counted(raw, bar)) as unpacked,
    ):
        yield _Limited(unpacked, path, _most(total, size))


def _most(total: int, size: int) -> int:
    """Most bytes that an archive of some size may unpack to."""
    return min(total, max(AT_EASE, LARGEST_GROWTH * size))


def _walk_zip(
    path: Path, wanted: re.Pattern[str], largest: int, total: int
) -> Iterator[tuple[re.Match[str], IO[bytes]]]:
    left = _most(total, path.stat().st_size)
    with (
        open_regular(path) as raw,
        _explain_errors(path),
        zipfile.ZipFile(raw) as archive,
    ):
        members = [(wanted.search(member.filename), member) for member in archive.infolist()]
        files = [(match, member) for match, member in members if match and not member.is_dir()]
        for match, member in progress(f"reading {path}", files, unit="files"):
            left -= member.file_size
            if left < 0:
                raise _unpacks_to_more(path)
            yield match, _open_zipped(archive, member, path, largest)


def _open_zipped(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, largest: int
) -> IO[bytes]:
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise DataError(f"{path}: {member.filename} is not a regular file; refused")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(f"{path}: {member.filename} is compressed in an unusual way; refused")
    _check_size(member.filename, member.file_size, path, largest)
    return io.BufferedReader(_Member(path, archive.open(member)))


def _check_size(name: str, size: int, path: Path, largest: int) -> None:
    if size > largest:
        raise DataError(f"{path}: {name} has {size:,} bytes, more than expected of it; refused")


def _unpacks_to_more(path: Path) -> DataError:
    return DataError(
        f"{path} ({path.stat().st_size:,} bytes) unpacks to more than is expected of it; refused"
    )


def _open_member(
    archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, largest: int
) -> IO[bytes]:
    file = archive.extractfile(member) if member.isreg() else None
    if file is None:
        raise DataError(f"{path}: {member.name} is not a regular file; refused")
    _check_size(member.name, member.size, path, largest)
    return io.BufferedReader(_Member(path, file))


def _explain_errors(path: Path) -> AbstractContextManager[None]:
    """Turn the many errors of broken archives into one that names the archive."""
    return explain_errors(f"{path} ({path.stat().st_size:,} bytes)", "get it anew")


class _Limited:
    """What a decompressor makes of an archive, up to a number of bytes."""

    def __init__(self, unpacked: Any, path: Path, left: int) -> None:
        self.unpacked = unpacked
        self.path = path
        self.left = left

    def read(self, size: int) -> bytes:
        data = self.unpacked.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise _unpacks_to_more(self.path)
        return data


class _Member(io.RawIOBase):
    """A file in an archive; reading beyond the end of a truncated archive is a DataError."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        super().__init__()
        self.path = path
        self.file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _explain_errors(self.path):
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
