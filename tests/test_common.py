"""What everything rests on: files that are written whole, and the number of cores."""

from __future__ import annotations

import errno
import resource
from pathlib import Path
from typing import IO

import pytest

from common import cores
from common.cores import core_count, cpu_quota
from common.files import name_file_in_errors, stream_atomically, write_atomically


@pytest.mark.parametrize(
    ("files", "own", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, "0::/\n", 1.5),
        ({"cpu.max": "max 100000\n"}, "0::/\n", None),
        ({"cpu.max": "nonsense\n"}, "0::/\n", None),
        ({}, "0::/\n", None),
        # The smallest on the way up counts, and a sibling's does not.
        ({"a/cpu.max": "100000 50000", "a/b/cpu.max": "300000 100000"}, "0::/a/b\n", 2.0),
        ({"a/cpu.max": "300000 100000", "a/b/cpu.max": "100000 100000"}, "0::/a/b\n", 1.0),
        ({"c/cpu.max": "100000 100000", "a/cpu.max": "max 100000"}, "0::/a\n", None),
        # A container's group is named from outside.
        ({"cpu.max": "300000 100000"}, "0::/docker/x\n", 3.0),
        ({"cpu.max": "300000 100000"}, "0::/../../x\n", 3.0),
        (
            {"cpu/k/cpu.cfs_quota_us": "50000\n", "cpu/k/cpu.cfs_period_us": "100000\n"},
            "12:memory:/\n4:cpu,cpuacct:/k/pod\n0::/\n",
            0.5,
        ),
        (
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            "4:cpu,cpuacct:/\n",
            None,
        ),
    ],
)
def test_the_smallest_quota_on_the_way_up_is_found(
    tmp_path: Path,
    files: dict[str, str],
    own: str,
    expected: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in {**files, "own": own}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cores, "GROUPS", tmp_path)
    monkeypatch.setattr(cores, "OWN", tmp_path / "own")
    assert cpu_quota() == expected


@pytest.mark.parametrize(("quota", "expected"), [(None, 64), (0.5, 1), (2.5, 2), (100.0, 64)])
def test_a_quota_counts_in_whole_cores(
    quota: float | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "visible_cores", lambda: list(range(64)))
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
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
    with pytest.raises(BrokenPipeError) as broken, name_file_in_errors("standard output"):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    assert broken.value.filename == "standard output"


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
