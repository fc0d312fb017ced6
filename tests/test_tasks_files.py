"""Errors of writing name the file."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from common.files import name_file_in_errors, stream_atomically, write_atomically
from tasks.pathfinder.files import write_release
from tasks.pathfinder.law import find_law


def write_pathfinder(folder: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (1, 32 * 32)).astype(np.uint8)
    rows = np.zeros(1, dtype=np.int64)
    write_release(folder, images, rows, rows, find_law(32, 14, border_quirk=True))


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda path: write_atomically(path, bytes(5000)), ""),
        (write_pathfinder, "/imgs/0/sample_0.png"),
    ],
)
def test_a_full_disk(tmp_path: Path, write: Callable[[Path], None], name: str) -> None:
    path = tmp_path / "file"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
    try:
        with pytest.raises(OSError) as caught:
            write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, f"{path}{name}")


def test_the_kind_of_an_error_stays() -> None:
    with pytest.raises(BrokenPipeError) as caught, name_file_in_errors("standard output"):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    assert caught.value.filename == "standard output"


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
