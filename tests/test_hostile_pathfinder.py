"""Hostile images and metadata of Pathfinder, and marks of exports: one line names the fault."""

from __future__ import annotations

import resource
import struct
import zlib
from pathlib import Path

import pytest

from common.errors import DataError
from made_data import MIB, NOISE, PATHFINDER, pathfinder, png, write_files
from tasks.pathfinder import Pathfinder


def chunk(kind: bytes, content: bytes) -> bytes:
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def image(side: int, *chunks: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks)


BOMB = zlib.compress(bytes(80 * MIB), 9)
IMAGES = {
    "noise": NOISE[:500],
    "no image": image(32),
    "giant size": image(2**31 - 1, chunk(b"IDAT", b"x")),
    "text bomb": image(32, chunk(b"zTXt", b"a\0\0" + BOMB), chunk(b"IDAT", b"")),
    "chunk beyond": png()[:33] + b"\xff\xff\xff\x7fIDATx",
    "large": png() + bytes(17 * MIB),
}
METADATA = {
    "empty": b"",
    "no UTF-8": b"imgs/0 sample_0.png 0 \xff\n",
    "label 2": b"imgs/0 sample_0.png 0 2\n" * 12,
    "twice": b"imgs/0 sample_0.png 0 1\n" * 12,
    "leads out": b"../../../outside secret 0 1\n" * 12,
    "control": b"\x1b[2J\x07 a 0 1\n" * 12,
    "long line": b"imgs/0 " + b"x" * MIB + b" 0 1\n",
}
HOSTILE = {f"image: {name}": {"imgs/0/sample_3.png": text} for name, text in IMAGES.items()}
HOSTILE |= {f"metadata: {name}": {"metadata/0.npy": text} for name, text in METADATA.items()}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str, tmp_path: Path) -> None:
    files = {f"{PATHFINDER}/{file}": content for file, content in HOSTILE[name].items()}
    write_files(tmp_path / "data", {**pathfinder(), **files})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError) as caught:
        Pathfinder().prepare(tmp_path / "data")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024, "in KiB"


def test_other_kinds_of_images_and_a_bomb_are_read_at_their_size(tmp_path: Path) -> None:
    kinds = [png(mode="RGB"), png(mode="P"), image(32, chunk(b"IDAT", BOMB))]
    files = {f"{PATHFINDER}/imgs/0/sample_{i}.png": kind for i, kind in enumerate(kinds)}
    write_files(tmp_path, {**pathfinder(), **files})
    assert Pathfinder().prepare(tmp_path).sizes["train"] == 10


@pytest.mark.parametrize("mark", [b"[" * 5000, b'{"source": "\x1b[2J"}'])
def test_marks_of_exports(mark: bytes, tmp_path: Path) -> None:
    files = {**pathfinder(), f"{PATHFINDER}/exported-from": mark}
    dataset = Pathfinder().prepare(write_files(tmp_path / "data", files))
    assert "exported-from beside it is no mark" in dataset.unofficial_because
    with pytest.raises(DataError, match="which an export would overwrite"):
        Pathfinder().export(dataset, tmp_path / "data")


def test_few_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 9 images, expected at least 10"):
        Pathfinder().prepare(write_files(tmp_path, pathfinder(9)))
