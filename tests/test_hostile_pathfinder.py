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
    "another size": lambda: png((31, 32)),
    "colour": lambda: png(mode="RGB"),
    "16 bits": lambda: png(mode="I;16"),
    "one bit": lambda: png(mode="1"),
    "palette": lambda: png(mode="P"),
    "cut": lambda: png()[:-20],
    "no image": lambda: png_of(ihdr(32, 32)),
    "giant size": lambda: png_of(ihdr(2**31 - 1, 2**31 - 1), chunk(b"IDAT", b"x")),
    "no size": lambda: png_of(ihdr(0, 0)),
    "bomb": lambda: png_of(ihdr(32, 32), chunk(b"IDAT", BOMB)),
    "text bomb": lambda: png_of(ihdr(32, 32), chunk(b"zTXt", b"a\0\0" + BOMB), chunk(b"IDAT", b"")),
    "profile bomb": lambda: png_of(
        ihdr(32, 32), chunk(b"iCCP", b"a\0\0" + BOMB), chunk(b"IDAT", b"")
    ),
    "size 50,000": lambda: png_of(ihdr(50_000, 50_000), chunk(b"IDAT", BOMB)),
    "gif": lambda: b"GIF89a" + bytes(50),
    "chunk beyond": lambda: png()[:33] + b"\xff\xff\xff\x7fIDATx",
    "depth 3": lambda: png_of(ihdr(32, 32, 3)),
    "large": lambda: png() + bytes(17 * MIB),
    "wrong sum": lambda: png()[:-5] + b"xxxxx",
    "svg": lambda: b"<svg/>",
}


METADATA: Mapping[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "noise": lambda: NOISE[:500],
    "no UTF-8": lambda: b"imgs/0 sample_0.png 0 \xff\n",
    "one field": lambda: b"x\n" * 12,
    "label 2": lambda: b"imgs/0 sample_0.png 0 2\n" * 12,
    "leads out": lambda: b"../../../outside secret 0 1\n" * 12,
    "twice": lambda: b"imgs/0 sample_0.png 0 1\n" * 12,
    "not there": lambda: b"".join(b"imgs/7 sample_%d.png 0 1\n" % i for i in range(12)),
    "control": lambda: b"\x1b[2J\x07 a 0 1\n" * 12,
    "objects": lambda: npy(
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        pickle.dumps(Attack(os.system, "touch ../executed")),
    ),
    "shape beyond": lambda: npy(
        "{'descr': '<U9', 'fortran_order': False, 'shape': (999999999999,)}"
    ),
    "negative shape": lambda: npy("{'descr': '<U9', 'fortran_order': False, 'shape': (-5,)}"),
    "header that calls": lambda: npy("{'descr': __import__('os').system('touch ../executed')}"),
    "deep header": lambda: npy("(" * 9000),
    "version 9": lambda: b"\x93NUMPY\x09\x00\x00\x00",
    "wide strings": lambda: npy("{'descr': '<U2000000000', 'fortran_order': False, 'shape': (9,)}"),
    "no dimensions": lambda: npy("{'descr': '<f8', 'fortran_order': False, 'shape': ()}", bytes(8)),
    "five dimensions": lambda: npy(
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1)}", b"x"
    ),
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


@pytest.mark.parametrize("count", [1, 3, 9])
def test_few_images(place: Place, count: int) -> None:
    write_files(place.folder / "data", pathfinder(count))
    place.attack("lra.prepare", ["--task", "pathfinder", "--data-dir", "data"])


MARKS = [b"", b"\xff\xfe", b"{}", b"[" * 5000, b"null", b'{"source": "official", "content": ""}',
         b'{"source": "\x1b[2J", "content": 1}', NOISE[:99]]  # fmt: skip


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: repr(mark)[:20])
def test_marks_of_exports(place: Place, mark: bytes) -> None:
    write_files(place.folder / "data", {**pathfinder(), f"{PATHFINDER}/exported-from": mark})
    place.attack("lra.prepare", ["--task", "pathfinder", "--data-dir", "data"], {0, 2})
    out = write_files(
        place.folder / "out", {f"{PATHFINDER}/exported-from": mark, f"{PATHFINDER}/imgs/a": b"x"}
    )
    arguments = ["--task", "pathfinder", "--data-dir", "data", "--export", str(out)]
    place.attack("lra.prepare", arguments, {0, 2})
