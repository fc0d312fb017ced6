"""Folders, archives and compressed files: read whole, and damage raises an error."""

import bz2
import gzip
import lzma
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lra.common.errors import DataError
from lra.common.untrusted import explain_errors
from lra.tasks.sources.archives import read_unpacked, walk
from made_data import write_archive

FILES = {"top/a.txt": b"first\n" * 1000, "top/deep/b.txt": b"second", "top/c.bin": b"other"}
ENDINGS = (".tar", ".tar.gz", ".tar.xz", ".tar.bz2", ".zip")


def texts(path: Path, largest: int = 10**6) -> dict[str, bytes]:
    with explain_errors(path.name):
        found = walk(path, re.compile(r"(.*)\.txt$"), inside="**/*", largest=largest)
        return {match.string: b"".join(file.readlines()) for match, file in found}


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_archive_is_known_by_its_content_not_its_name(tmp_path: Path, ending: str) -> None:
    path = write_archive(tmp_path / f"x{ending}", FILES).rename(tmp_path / "no ending")
    assert texts(path) == {name: FILES[name] for name in ("top/a.txt", "top/deep/b.txt")}
    with pytest.raises(DataError, match=r"a\.txt has 6,000 bytes, more than expected"):
        texts(path, largest=5_999)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kept", [5, 0.5, 0.9])
def test_a_truncated_or_changed_archive_is_noticed(
    tmp_path: Path, ending: str, kept: float
) -> None:
    path = write_archive(tmp_path / f"x{ending}", {f"{i}.txt": bytes([i]) * 9000 for i in range(9)})
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if kept < 1 else int(kept)])
    with pytest.raises(DataError, match=rf"x\{ending} is damaged or incomplete"):
        texts(path)
    if ending != ".tar":  # which has no checksums of what is in it
        half = len(content) // 2
        path.write_bytes(content[:half] + bytes([content[half] ^ 0x10]) + content[half + 1 :])
        with pytest.raises(DataError, match="damaged or incomplete"):
            texts(path)


@pytest.mark.parametrize("ending", ENDINGS[1:])
def test_an_archive_that_grows_too_much_is_refused(tmp_path: Path, ending: str) -> None:
    """Whether it has large files or many."""
    path = tmp_path / f"x{ending}"
    for count in (1, 40):
        write_archive(path, {f"{i}.txt": bytes(40 * 2**20 // count) for i in range(count)})
        with pytest.raises(DataError, match=r"bytes and unpacks to more than"):
            texts(path, largest=10**9)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_header_must_not_be_large(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("a.txt")
    member.type, member.size = kind, 2**21
    (tmp_path / "x").write_bytes(member.tobuf() + bytes(2**22))
    with pytest.raises(DataError, match="a header has 2,097,152 bytes"):
        texts(tmp_path / "x")


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_a_single_file_is_read_whole(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path, content = tmp_path / "text", b"some text " * 1000
    path.write_bytes(pack(content))
    assert read_unpacked(path, largest=10_000) == content
    with pytest.raises(DataError, match=r"expected at most|unpacks to more than 9,999"):
        read_unpacked(path, largest=9_999)
    path.write_bytes(pack(content)[:-5])
    if pack is not bytes:
        with pytest.raises(EOFError):
            read_unpacked(path, largest=10_000)
        path.write_bytes(pack(bytes(40 * 2**20)))
        with pytest.raises(DataError, match=r"bytes and unpacks to more than"):
            read_unpacked(path, largest=10**9)
