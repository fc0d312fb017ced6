"""Files of a folder or an archive, one after another, and single files that may be compressed.

An archive is read and never unpacked: no name in it can reach the file system, and links and
devices are refused. A damaged one raises errors of many kinds, which `explain_errors` around the
reading turns into one that names it.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from tqdm.utils import CallbackIOWrapper

from common.errors import DataError
from common.progress import progress
from common.untrusted import open_regular

CHUNK = 2**20
GIB = 2**30
LARGEST_FILE = 32 * GIB

ZIP = (b"PK\x03\x04", b"PK\x05\x06")
"""How zip archives begin; the second one is empty."""

_OPENERS: tuple[tuple[bytes, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"\xfd7zXZ\x00", lzma.open),
    (b"BZh", bz2.open),
)


def walk(
    path: Path, wanted: re.Pattern[str], *, inside: str, largest: int = LARGEST_FILE
) -> Iterator[tuple[re.Match[str], IO[bytes]]]:
    """Read the files of a folder in the order of their names, or of an archive in its own order.

    A file must be read before the next is asked for.

    Args:
        path: a folder, a zip archive, or a tar archive, which gzip, xz or bzip2 may compress.
        wanted: regular expression; files are read if it is found in their names. Its groups
            identify a file.
        inside: pattern of the files of a folder.
        largest: most bytes that a file may have.
    Yields: the match of each file's name, in which "/" separates folders, and the open file.
    Raises: DataError for links and devices, for a file that is too large, and for one that occurs
        more than once.
    """
    seen: set[object] = set()
    for match, file in _walk(path, wanted, inside, largest):
        key = match.groups() or match.string
        if key in seen:
            raise DataError(
                f"{path}/{match.string} occurs more than once; unpack the archive, and keep one"
            )
        seen.add(key)
        yield match, file


def _walk(
    path: Path, wanted: re.Pattern[str], inside: str, largest: int
) -> Iterator[tuple[re.Match[str], IO[bytes]]]:
    if path.is_dir():
        names = sorted(file.relative_to(path).as_posix() for file in path.glob(inside))
        matches = [match for name in names if (match := wanted.search(name))]
        for match in progress(f"reading {path}", matches, unit="files"):
            with open_regular(path / match.string, largest=largest) as file:
                yield match, file
        return
    members = _zip_members if is_zip(path) else _tar_members
    with (
        open_regular(path) as raw,
        progress(f"reading {path}", total=path.stat().st_size, unit="B") as bar,
    ):
        for name, size, file in members(CallbackIOWrapper(bar.update, raw, "read"), wanted):
            if file is None:
                raise DataError(f"{path}: {name} is not a regular file; refused")
            if size > largest:
                raise DataError(f"{path}: {name} has {size:,} bytes, more than expected; refused")
            match = wanted.search(name)
            assert match is not None
            yield match, file


Members = Iterator[tuple[str, int, IO[bytes] | None]]
"""Names, sizes and contents of files; no content for a link or a device."""


def _tar_members(raw: Any, wanted: re.Pattern[str]) -> Members:
    stream = _decompress(raw)
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            vars(archive)["members"] = []  # it would keep them all, to find them by name
            if wanted.search(member.name) and not member.isdir():
                file = archive.extractfile(member) if member.isreg() else None
                yield member.name, member.size, file
    while stream.read(CHUNK):  # the checksum of what came before is at the end
        pass


def _zip_members(raw: Any, wanted: re.Pattern[str]) -> Members:
    with zipfile.ZipFile(raw) as archive:
        for member in archive.infolist():
            if wanted.search(member.filename) and not member.is_dir():
                with archive.open(member) as file:
                    yield member.filename, member.file_size, file


def is_zip(path: Path) -> bool:
    """Whether a regular file begins as a zip archive does."""
    with open_regular(path) as file:
        return file.read(len(ZIP[0])) in ZIP


def read_unpacked(path: Path, *, largest: int) -> bytes:
    """Read a file as a whole, which gzip, xz or bzip2 may compress.

    Args:
        largest: most bytes that it may have, compressed or not.
    Raises: DataError for a larger one.
    """
    content = bytearray()
    with open_regular(path, largest=largest) as raw:
        stream = _decompress(raw)
        while len(content) <= largest and (part := stream.read(CHUNK)):
            content += part
    if len(content) > largest:
        raise DataError(f"{path} unpacks to more than {largest:,} bytes; refused")
    return bytes(content)


def _decompress(raw: Any) -> Any:
    """Undo the compression of an open file, which its first bytes name."""
    start = raw.peek(8)
    openers = (opener for magic, opener in _OPENERS if start.startswith(magic))
    return next(openers, lambda file: file)(raw)
