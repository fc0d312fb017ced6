"""Archives: read whole or refused, and nothing of them ever reaches the disk."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from common.errors import DataError
from made_data import write_archive, write_files
from tasks.sources.archives import read_unpacked, walk

FILES = {"top/a.txt": b"first" * 1000, "top/deep/b.txt": b"second", "top/c.bin": b"other"}
ENDINGS = (".tar", ".tar.gz", ".tar.xz", ".tar.bz2", ".zip")


def texts(path: Path, **limits: int) -> dict[str, bytes]:
    found = walk(path, re.compile(r"\.txt$"), inside="**/*", **limits)
    return {match.string: file.read() for match, file in found}


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_archive_is_known_by_its_content_not_its_name(tmp_path: Path, ending: str) -> None:
    path = write_archive(tmp_path / f"x{ending}", FILES).rename(tmp_path / "no ending")
    assert texts(path) == {name: FILES[name] for name in ("top/a.txt", "top/deep/b.txt")}


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    folder = write_files(tmp_path, dict(reversed(FILES.items())))
    assert list(texts(folder)) == ["top/a.txt", "top/deep/b.txt"]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kept", [0, 5, 100, 0.5, 0.9])
def test_a_truncated_archive_is_named(tmp_path: Path, ending: str, kept: float) -> None:
    path = write_archive(tmp_path / f"x{ending}", {f"{i}.txt": bytes(9000) for i in range(9)})
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if kept < 1 else int(kept)])
    with pytest.raises(DataError, match=rf"x\{ending}.* damaged or incomplete"):
        texts(path)


@pytest.mark.parametrize("ending", ENDINGS[1:])
def test_a_changed_byte_is_noticed(tmp_path: Path, ending: str) -> None:
    path = write_archive(tmp_path / f"x{ending}", {f"{i}.txt": bytes([i]) * 9000 for i in range(9)})
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged or incomplete"):
        texts(path)


@pytest.mark.parametrize("name", ["../escape.txt", "/tmp/escape.txt", "a/../../escape.txt"])
def test_names_that_lead_out_are_mere_names(tmp_path: Path, name: str) -> None:
    path = write_archive(tmp_path / "in" / "x.tar", {name: b"payload"})
    before = sorted(tmp_path.rglob("*"))
    assert list(texts(path).values()) == [b"payload"]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("passwords.txt")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(DataError, match="not a regular file; refused"):
        texts(path)


@pytest.mark.parametrize("ending", [".tar.gz", ".zip"])
def test_what_an_archive_unpacks_to_is_limited(tmp_path: Path, ending: str) -> None:
    bomb = write_archive(tmp_path / f"x{ending}", {"a.txt": bytes(10**6), "b.txt": bytes(10**6)})
    assert bomb.stat().st_size < 10**4
    with pytest.raises(DataError, match=r"a\.txt has 1,000,000 bytes, more than expected"):
        texts(bomb, largest=10**5)
    with pytest.raises(DataError, match="unpacks to more than is expected"):
        texts(bomb, total=15 * 10**5)


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "page.tar.gz"
    path.write_bytes(b"<html>403 Forbidden</html>" * 100)
    with pytest.raises(DataError, match="damaged or incomplete"):
        texts(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_a_single_file_is_read_whole(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path, content = tmp_path / "text", b"some text " * 1000
    path.write_bytes(pack(content))
    assert read_unpacked(path, largest=10_000) == content
    with pytest.raises(DataError, match=r"expected at most|more than is expected"):
        read_unpacked(path, largest=9_999)
    path.write_bytes(pack(content)[:-5])
    if pack is not bytes:
        with pytest.raises(DataError, match="damaged or incomplete"):
            read_unpacked(path, largest=10_000)


def test_lines_come_from_a_file_in_an_archive(tmp_path: Path) -> None:
    lines = b"".join(b"line %d\n" % i for i in range(5000))
    path = write_archive(tmp_path / "x.tar.gz", {"a.txt": lines})
    ((_, file),) = (
        (match, io.BytesIO(file.read())) for match, file in walk(path, re.compile("a"), inside="*")
    )
    assert len(file.readlines()) == 5000
