"""What everything rests on: files that are written whole, and the number of cores."""

from __future__ import annotations

import errno
import resource
from pathlib import Path
from typing import IO

import pytest

from common import threads
from common.files import stream_atomically, write_atomically
from common.threads import core_count


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
