"""What everything rests on: files that are written whole, and the number of cores."""

import errno
import os
import resource
import socket
import threading
import tty
from pathlib import Path
from typing import IO

import pytest

from lra.common import threads
from lra.common.files import stream_atomically, write_atomically, write_output
from lra.common.threads import core_count


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000\n", 64), ("nonsense\n", 64), ("50000 100000", 1), ("250000 100000\n", 2)],
)
def test_a_quota_counts_in_whole_cores(
    tmp_path: Path, quota: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "visible_cores", lambda: list(range(64)))
    monkeypatch.setattr(threads, "QUOTA", tmp_path / "cpu.max")
    assert core_count() == 64
    (tmp_path / "cpu.max").write_text(quota)
    assert core_count() == expected


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
    try:
        with pytest.raises(OSError) as caught:
            write_atomically(path, bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))


def test_a_file_is_never_there_in_part(tmp_path: Path) -> None:
    """Whoever is killed while writing leaves the old content."""
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def write(file: IO[bytes]) -> Path:
        file.write(b"half of")
        file.flush()
        assert path.read_bytes() == b"old"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stream_atomically(path, write)
    assert [found.read_bytes() for found in tmp_path.iterdir()] == [b"old"]


@pytest.mark.parametrize("links", [0, 1, 2])
@pytest.mark.parametrize("old", [b"old", None])
def test_an_output_is_written_where_a_link_leads(
    tmp_path: Path, links: int, old: bytes | None
) -> None:
    """To a file that is there or is not, by a crash wholly or not at all; other names stay."""
    target = tmp_path / "deep" / "[a]"
    target.parent.mkdir()
    if old is not None:
        target.write_bytes(old)
        os.link(target, tmp_path / "other name")
    path, stale = target, target.with_name(".[a].1.tmp")
    for stranger in (stale, target.with_name(".a.1.tmp")):
        stranger.touch()
        os.utime(stranger, (0, 0))
    for number in range(links):
        (tmp_path / f"link-{number}").symlink_to(os.path.relpath(path, tmp_path))
        path = tmp_path / f"link-{number}"
    write_output(path, b"new")
    assert target.read_bytes() == path.read_bytes() == b"new"
    assert path.is_symlink() == (links > 0)
    assert old is None or (tmp_path / "other name").read_bytes() == old
    assert {file.name for file in target.parent.iterdir()} == {"[a]", ".a.1.tmp"}


def test_an_output_is_written_into_a_pipe_or_terminal(tmp_path: Path) -> None:
    """Also through a name in /proc, as /dev/stdout is; nothing takes their place."""
    content = bytes(range(33, 127)) * 2000  # more than a pipe holds
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with pytest.raises(OSError, match="nothing reads from this pipe"):
        write_output(link, content)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match="a socket, expected a file"):
            write_output(tmp_path / "socket", content)
    reader, writer = os.pipe()
    ends = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), os.open(pipe, os.O_WRONLY)  # kept open
    os.set_blocking(ends[0], True)
    for path in (pipe, link, Path(f"/proc/self/fd/{writer}")):
        with open(ends[0] if path in (pipe, link) else reader, "rb", closefd=False) as file:
            thread = threading.Thread(target=write_output, args=(path, content))
            thread.start()
            assert file.read(len(content)) == content
            thread.join()
    assert pipe.is_fifo() and link.is_symlink()
    master, terminal = os.openpty()
    tty.setraw(terminal)
    write_output(Path(os.ttyname(terminal)), b"text")
    assert os.read(master, 9) == b"text"


def test_an_output_without_a_name_is_written_and_folders_are_named(tmp_path: Path) -> None:
    with (tmp_path / "gone").open("w+b") as file:
        (tmp_path / "gone").unlink()
        write_output(Path(f"/proc/self/fd/{file.fileno()}"), b"text")
        assert file.read() == b"text"
    for path, number in ((tmp_path, errno.EISDIR), (tmp_path / "no" / "x", errno.ENOENT)):
        with pytest.raises(OSError) as caught:
            write_output(path, b"")
        assert caught.value.errno == number
    assert not [*tmp_path.iterdir()]
