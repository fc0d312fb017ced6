"""Files of a folder or an archive, one after another; compressed files, and rows of tables.

An archive is read and never unpacked: no name in it can reach the file system, and links and
devices are refused. A damaged one raises errors of many kinds, which `explain_errors` around the
reading turns into one that names it.
"""

import bz2
import codecs
import gzip
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Self

from tqdm.utils import CallbackIOWrapper

from lra.common.errors import DataError
from lra.common.progress import progress
from lra.common.untrusted import most_unpacked, open_regular, refuse_growth

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
    members = _folder_members(path, wanted, inside) if path.is_dir() else _archived(path, wanted)
    seen: set[object] = set()
    for name, size, file in members:
        if file is None:
            raise DataError(f"{path}/{name} is not a regular file; refused")
        if size > largest:
            raise DataError(f"{path}/{name} has {size:,} bytes, more than expected; refused")
        match = wanted.search(name)
        assert match is not None
        key = match.groups() or name
        if key in seen:
            raise DataError(
                f"{path}/{name} occurs more than once; unpack the archive, and keep one"
            )
        seen.add(key)
        yield match, file


Members = Iterator[tuple[str, int, IO[bytes] | None]]
"""Names, sizes and contents of files; no content for a link or a device."""


def _folder_members(path: Path, wanted: re.Pattern[str], inside: str) -> Members:
    names = sorted(file.relative_to(path).as_posix() for file in path.glob(inside))
    names = [name for name in names if wanted.search(name)]
    for name in progress(f"reading {path}", names, unit="files"):
        with open_regular(path / name) as file:
            yield name, (path / name).stat().st_size, file


def _archived(path: Path, wanted: re.Pattern[str]) -> Members:
    members = _zip_members if is_zip(path) else _tar_members
    with (
        open_regular(path) as raw,
        progress(f"reading {path}", total=path.stat().st_size, unit="B") as bar,
    ):
        yield from members(path, CallbackIOWrapper(bar.update, raw, "read"), wanted)


class _Member(tarfile.TarInfo):
    """A file of a tar archive, whose name and other facts must not be large."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type not in tarfile.REGULAR_TYPES and header.size > CHUNK:
            raise ValueError(f"a header has {header.size:,} bytes")
        return header


def _tar_members(path: Path, raw: Any, wanted: re.Pattern[str]) -> Members:
    stream: Any = _Decompressed(path, raw)
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
        for member in archive:
            vars(archive)["members"] = []  # it would keep them all, to find them by name
            if wanted.search(member.name) and not member.isdir():
                file = archive.extractfile(member) if member.isreg() else None
                yield member.name, member.size, file
    while stream.read(CHUNK):  # the checksum of what came before is at the end
        pass


def _zip_members(path: Path, raw: Any, wanted: re.Pattern[str]) -> Members:
    left = most_unpacked(path.stat().st_size)
    with zipfile.ZipFile(raw) as archive:
        for member in archive.infolist():
            if wanted.search(member.filename) and not member.is_dir():
                left -= member.file_size
                if left < 0:
                    refuse_growth(path)
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
        stream = _Decompressed(path, raw)
        while len(content) <= largest and (part := stream.read(CHUNK)):
            content += part
    if len(content) > largest:
        raise DataError(f"{path} unpacks to more than {largest:,} bytes; refused")
    return bytes(content)


class _Decompressed:
    """The content of a file, which undoes the compression that its first bytes name."""

    def __init__(self, path: Path, raw: Any) -> None:
        start = raw.peek(8)
        openers = (opener for magic, opener in _OPENERS if start.startswith(magic))
        self._stream = next(openers, lambda file: file)(raw)
        self._path, self._left = path, most_unpacked(path.stat().st_size)

    def read(self, size: int) -> bytes:
        """Read so many bytes or fewer; raise DataError beyond `most_unpacked`."""
        part = self._stream.read(size)
        self._left -= len(part)
        if self._left < 0:
            refuse_growth(self._path)
        return part


def read_rows(file: IO[bytes], shown: str, *, longest: int) -> Iterator[list[bytes]]:
    """Read the fields of each line; lines end in LF or CRLF, and a byte order mark is left out.

    Quotes belong to the text. Spreadsheets and pandas put a field that contains quotes into quotes
    and double those within; a file is refused if most of its fields with quotes are like that.

    Args:
        file: the open file.
        shown: its path, for messages.
        longest: most bytes of a line.
    Yields: the fields.
    Raises: DataError for a line that is too long, and for a file that was saved with quotes.
    """
    quoted = unquoted = 0
    for number, line in enumerate(iter(lambda: file.readline(longest + 1), b""), start=1):
        if len(line) > longest:
            raise DataError(f"{shown}:{number}: the line is longer than {longest:,} bytes")
        text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        fields = text.rstrip(b"\r\n").split(b"\t")
        # The first field may be the end of a text that has line breaks.
        for field in fields[1:] if b'"' in line else ():
            if b'"' in field:
                inner = field[1:].replace(b'""', b"")[:-1]
                is_quoted = field.startswith(b'"') and b'"' not in inner
                quoted, unquoted = quoted + is_quoted, unquoted + (not is_quoted)
        yield fields
    if quoted > unquoted:
        raise DataError(
            f"{shown}: its fields are in quotes, so another program, such as a spreadsheet or "
            f"pandas, saved this file again; get the original file, or write it without quotes"
        )
