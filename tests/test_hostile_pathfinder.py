"""Hostile images and metadata of Pathfinder, and marks of exports."""

from __future__ import annotations

import os
import pickle
import struct
import zlib
from collections.abc import Callable, Mapping

import pytest

from attack import Place
from made_data import (
    MIB,
    NOISE,
    PATHFINDER,
    Attack,
    npy,
    pathfinder,
    png,
    write_files,
)


def chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )


def png_of(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def ihdr(width: int, height: int, depth: int = 8, colour: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))


BOMB = zlib.compress(bytes(80 * MIB), 9)
IMAGES: Mapping[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "noise": lambda: NOISE[:500],
    "colour": lambda: png(mode="RGB"),
    "16 bits": lambda: png(mode="I;16"),
    "no image": lambda: png_of(ihdr(32, 32)),
    "giant size": lambda: png_of(ihdr(2**31 - 1, 2**31 - 1), chunk(b"IDAT", b"x")),
    "bomb": lambda: png_of(ihdr(32, 32), chunk(b"IDAT", BOMB)),
    "text bomb": lambda: png_of(ihdr(32, 32), chunk(b"zTXt", b"a\0\0" + BOMB), chunk(b"IDAT", b"")),
    "chunk beyond": lambda: png()[:33] + b"\xff\xff\xff\x7fIDATx",
    "large": lambda: png() + bytes(17 * MIB),
}


METADATA: Mapping[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "no UTF-8": lambda: b"imgs/0 sample_0.png 0 \xff\n",
    "label 2": lambda: b"imgs/0 sample_0.png 0 2\n" * 12,
    "leads out": lambda: b"../../../outside secret 0 1\n" * 12,
    "control": lambda: b"\x1b[2J\x07 a 0 1\n" * 12,
    "objects": lambda: npy(
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        pickle.dumps(Attack(os.system, "touch ../executed")),
    ),
    "header that calls": lambda: npy("{'descr': __import__('os').system('touch ../executed')}"),
    "deep header": lambda: npy("(" * 9000),
    "wide strings": lambda: npy("{'descr': '<U2000000000', 'fortran_order': False, 'shape': (9,)}"),
    "long line": lambda: b"imgs/0 " + b"x" * MIB + b" 0 1\n",
}


@pytest.mark.parametrize("name", IMAGES)
def test_images(place: Place, name: str) -> None:
    changed = {f"{PATHFINDER}/imgs/0/sample_{i}.png": IMAGES[name]() for i in (3, 4)}
    write_files(place.folder / "data", {**pathfinder(), **changed})
    place.attack("lra.prepare", ["--task", "pathfinder", "--data-dir", "data"], {0, 2})


@pytest.mark.parametrize("name", METADATA)
def test_metadata(place: Place, name: str) -> None:
    files = {**pathfinder(), f"{PATHFINDER}/metadata/0.npy": METADATA[name]()}
    write_files(place.folder / "data", files)
    place.attack("lra.prepare", ["--task", "pathfinder", "--data-dir", "data"])


@pytest.mark.parametrize("count", [1, 9])
def test_few_images(place: Place, count: int) -> None:
    write_files(place.folder / "data", pathfinder(count))
    place.attack("lra.prepare", ["--task", "pathfinder", "--data-dir", "data"])


MARKS = [b"", b"[" * 5000, b'{"source": "\x1b[2J", "content": 1}', NOISE[:99]]


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: repr(mark)[:20])
def test_marks_of_exports(place: Place, mark: bytes) -> None:
    write_files(place.folder / "data", {**pathfinder(), f"{PATHFINDER}/exported-from": mark})
    place.attack("lra.prepare", ["--task", "pathfinder", "--data-dir", "data"], {0, 2})
    out = write_files(
        place.folder / "out", {f"{PATHFINDER}/exported-from": mark, f"{PATHFINDER}/imgs/a": b"x"}
    )
    arguments = ["--task", "pathfinder", "--data-dir", "data", "--export", str(out)]
    place.attack("lra.prepare", arguments, {0, 2})
