"""Hostile data: archives, folders, pickles, arrays, images and caches that are not what they say."""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import pickle
import random
import shutil
import struct
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attack import Place
from made_data import (
    cifar_arrays,
    cifar_binary,
    cifar_python,
    pairs,
    reviews,
    write_archive,
    write_files,
)

MIB = 2**20
NOISE = random.Random(0).randbytes(10_000)
Files = Mapping[str, bytes]


def prepare(place: Place, task: str, codes: set[int] = {2}, *more: str, **limits: Any) -> None:
    """Attack the preparation of a task's official files in the folder `data`."""
    arguments = ["--task", task, "--data-dir", "data", "--source", "official", *more]
    place.attack("lra.prepare", arguments, codes, **limits)


def mutated(content: bytes, seed: int) -> bytes:
    """Change some bytes, cut some out or repeat some."""
    rng = random.Random(seed)
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 3, 20])):
        at = rng.randrange(len(changed))
        size = rng.choice([1, 4, 100])
        kind = rng.randrange(4)
        if kind == 0:
            changed[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            changed[at : at + size] = rng.choice([b"", b"\xff" * size, b"\0" * size])
        elif kind == 2:
            changed[at:at] = changed[:size]
        else:
            del changed[max(1, at) :]
    return bytes(changed)


# ListOps

GOOD = b"Source\tTarget\r\n( ( ( [MAX 3 ) 7 ) ] )\t7\r\n"
LISTOPS: Mapping[str, bytes] = {
    "empty": b"", "header alone": b"Source\tTarget\r\n", "no header": GOOD.partition(b"\n")[2],
    "lone digit": b"Source\tTarget\r\n3\t3\r\n", "lone digit in parentheses": GOOD + b"( 3 )\t3\r\n",
    "lone close": GOOD + b"]\t3\r\n", "lone operator": GOOD + b"[MAX\t3\r\n",
    "operator without arguments": GOOD + b"[MAX ]\t3\r\n", "two roots": GOOD + b"[MAX 1 ] [MIN 2 ]\t1\r\n",
    "wrong answer": GOOD + b"( ( ( [MAX 3 ) 7 ) ] )\t8\r\n", "target 12": GOOD + b"[MAX 3 ]\t12\r\n",
    "no target": GOOD + b"[MAX 3 ]\r\n", "three fields": GOOD + b"[MAX 3 ]\t3\t3\r\n",
    "unknown token": GOOD + b"[MEAN 3 ]\t3\r\n", "control characters": GOOD + b"\x1b[2J \x07\t3\r\n",
    "no UTF-8": GOOD + b"\xff\xfe\t3\r\n", "NUL": GOOD + b"\0\t3\r\n", "binary": NOISE[:5000],
    "a long line": GOOD + b"[MAX " + b"1 " * 200_000 + b"]\t1\r\n", "deep": GOOD + b"[MAX " * 3000
    + b"1 " + b"] " * 3000 + b"\t1\r\n", "unbalanced": GOOD + b"( ( [MAX 3 ] )\t3\r\n",
    "long token": GOOD + b"[" + b"M" * 100_000 + b" 3 ]\t3\r\n", "closed twice": GOOD + b"[MAX 1 ] ]\t1\r\n",
    "many arguments": GOOD + b"[SM " + b"9 " * 1000 + b"]\t0\r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", LISTOPS)
def test_listops(place: Place, name: str) -> None:
    files = {f"basic_{split}.tsv": GOOD for split in ("train", "val", "test")}
    write_files(place.folder / "data", {**files, "basic_train.tsv": LISTOPS[name]})
    count = LISTOPS[name].count(b"\n") - 1
    sizes = [f"task.train={max(1, count)}", "task.val=1", "task.test=1"]
    arguments = ["--task", "listops", "--data-dir", "data"]
    arguments += [part for size in sizes for part in ("--set", size)]
    place.attack("lra.prepare", arguments, {0, 2})


# Archives


def header(name: str = "a", size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = size, kind, link
    return member.tobuf(tarfile.GNU_FORMAT)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


END = bytes(1024)
REVIEW = "aclImdb/train/pos/0_9.txt"


def zeros(size: int) -> bytes:
    return bytes(size)


ARCHIVES: Mapping[str, Callable[[], bytes]] = {
    "pax header of 400 MiB": lambda: header("x", 400 * MIB, tarfile.XHDTYPE) + zeros(400 * MIB),
    "global header of 400 MiB": lambda: header("x", 400 * MIB, tarfile.XGLTYPE) + zeros(400 * MIB),
    "long name of 400 MiB": lambda: header("x", 400 * MIB, tarfile.GNUTYPE_LONGNAME) + zeros(400 * MIB),
    "long link of 200 MiB": lambda: header("x", 200 * MIB, tarfile.GNUTYPE_LONGLINK) + zeros(200 * MIB),
    "skipped member of 600 MiB": lambda: header("readme", 600 * MIB) + zeros(600 * MIB) + END,
    "wanted member of 600 MiB": lambda: header(REVIEW, 600 * MIB) + zeros(600 * MIB) + END,
    "review of 2 MiB": lambda: header(REVIEW, 2 * MIB) + zeros(2 * MIB) + END,
    "size beyond the end": lambda: header(REVIEW, 8**11 - 1) + zeros(512),
    "negative size": lambda: header(REVIEW)[:124] + b"\xff" * 12 + header(REVIEW)[136:] + END,
    "symbolic link": lambda: header(REVIEW, 0, tarfile.SYMTYPE, "/etc/passwd") + END,
    "hard link": lambda: header(REVIEW, 0, tarfile.LNKTYPE, "../../secret") + END,
    "device": lambda: header(REVIEW, 0, tarfile.CHRTYPE) + END,
    "pipe": lambda: header(REVIEW, 0, tarfile.FIFOTYPE) + END,
    "sparse": lambda: header(REVIEW, 0, tarfile.GNUTYPE_SPARSE) + END,
    "absolute name": lambda: header("/" + REVIEW, 5) + padded(b"hello") + END,
    "name that leads out": lambda: header("../../" + REVIEW, 5) + padded(b"hello") + END,
    "number beyond int64": lambda: header("train/pos/99999999999999999999_9.txt") + END,
    "number of 80 digits": lambda: header(f"train/pos/{'9' * 80}_9.txt") + END,
    "5,000 pax headers in a row": lambda: 5000 * (header("x", 0, tarfile.XHDTYPE)) + END,
    "1,000 notes on all files": lambda: b"".join(
        header("x", 20, tarfile.XGLTYPE) + padded(b"%d" % 16 + b" key%06d=xy\n" % i)
        for i in range(1000)) + END,
    "pax size that is no number": lambda: header("x", 14, tarfile.XHDTYPE) + padded(b"14 size=many!\n")
    + header(REVIEW) + END,
    "pax size of zero": lambda: header("x", 9, tarfile.XHDTYPE) + padded(b"0 size=1\n") + header(REVIEW),
    "holes by pax": lambda: header("x", 25, tarfile.XHDTYPE) + padded(b"25 GNU.sparse.map=0,9999\n")
    + header(REVIEW, 512) + zeros(512) + END,
    "name that is no UTF-8": lambda: header("x").replace(b"x", b"\xff\xfe", 1) + END,
    "control characters": lambda: header("train/pos/\x1b[2J/0_1.txt", 0, tarfile.SYMTYPE, "x") + END,
    "empty": lambda: b"", "end alone": lambda: END, "noise": lambda: NOISE[:4096],
    "no reviews": lambda: header("readme", 5) + padded(b"hello") + END,
}  # fmt: skip


@functools.cache
def packed(name: str) -> bytes:
    return gzip.compress(ARCHIVES[name](), compresslevel=1)


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives(place: Place, name: str) -> None:
    write_files(place.folder / "data", {"aclImdb_v1.tar.gz": packed(name)})
    prepare(place, "text")


@functools.cache
def good_archive(suffix: str) -> bytes:

    with tempfile.TemporaryDirectory() as folder:
        return write_archive(Path(folder, f"x{suffix}"), reviews()).read_bytes()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.xz", ".tar.bz2"])
def test_damaged_archives(place: Place, suffix: str, seed: int) -> None:
    content = mutated(good_archive(suffix), seed)
    write_files(place.folder / "data", {f"aclImdb{suffix}": content})
    arguments = ["--task", "text", "--data-dir", "data", "--set", "task.min_frequency=1"]
    arguments += ["--set", "task.holdout=2"]
    place.attack("lra.prepare", arguments, {0, 2})


# Text and Retrieval as folders


REVIEWS: Mapping[str, Files] = {
    "none": {"aclImdb/train/README": b""},
    "no class": {name: text for name, text in reviews().items() if "/neg/" not in name},
    "no test": {name: text for name, text in reviews().items() if "/test/" not in name},
    "empty texts": dict.fromkeys(reviews(), b""),
    "no UTF-8": {name: b"\xff\xfe\x80 caf\xe9" for name in reviews()},
    "NUL and control": {name: b"\0\x1b[2J\x07" for name in reviews()},
    "large": {**reviews(), "aclImdb/train/pos/77_9.txt": b"x" * (MIB + 1)},
    "number beyond int64": {**reviews(), f"aclImdb/train/pos/{'9' * 30}_9.txt": b"x"},
    "number of 200 digits": {**reviews(), f"aclImdb/train/pos/{'9' * 200}_9.txt": b"x"},
    "code points": {name: "\U0010ffff\ud7ff".encode() for name in reviews()},
}


@pytest.mark.parametrize("name", REVIEWS)
def test_reviews(place: Place, name: str) -> None:
    write_files(place.folder / "data", REVIEWS[name])
    place.attack("lra.prepare", ["--task", "text", "--data-dir", "data"], {0, 2})


TAB, LINE = b"\t", b"1.0\ta\tb\tsome text\tother text\n"
PAIRS: Mapping[str, bytes] = {
    "empty": b"", "one field": b"x\n" * 9, "labels": b"2\ta\tb\tc\td\n", "no UTF-8": b"1.0\t\t\t\xff\t\xfe\n",
    "NUL": b"\0" * 5000, "noise": NOISE[:9999], "no line ends": LINE.strip() * 2000,
    "many tabs": TAB * 100_000 + b"\n", "empty texts": b"1.0\ta\tb\t\t\n", "half": LINE * 5 + LINE[:9],
    "nan": b"nan\ta\tb\tc\td\n", "long label": b"1" * 100_000 + b"\ta\tb\tc\td\n",
    "control": b"\x1b[2J\ta\tb\tc\td\n", "carriage returns": LINE.replace(b"\n", b"\r") * 9,
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(place: Place, name: str) -> None:
    files = {**pairs(), "new_aan_pairs.train.tsv": PAIRS[name]}
    write_files(place.folder / "data" / "tsv_data", files)
    place.attack("lra.prepare", ["--task", "retrieval", "--data-dir", "data"], {0, 2})


# CIFAR-10


class Attack:
    """What a pickle turns into a call."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], tuple(self.call[1:])


DATA, LABELS = cifar_arrays()[0]


def batch(**changes: Any) -> bytes:
    content = {"data": DATA, "labels": LABELS.tolist(), **changes}
    return pickle.dumps({name.encode(): value for name, value in content.items()}, protocol=2)


def array_state(*state: Any) -> bytes:
    """Pickle an array whose state was written by hand: version, shape, type, order, bytes."""
    out = io.BytesIO()
    pickler = pickle._Pickler(out, protocol=2)  # pyright: ignore
    out.write(
        b"\x80\x02}(C\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    )
    pickler.framer = pickle._Framer(out.write)  # pyright: ignore
    pickler.write = pickler.framer.write
    pickler.save(state)
    out.write(b"bC\x06labels](" + b"K\x01" * 20 + b"eu.")
    return out.getvalue()


OBJECTS = np.array([[None] * 3072] * 20)
U1 = np.dtype("u1")
BATCHES: Mapping[str, Callable[[], bytes]] = {
    "command": lambda: batch(labels=Attack(os.system, "touch ../executed")),
    "builtins": lambda: batch(labels=Attack(eval, "open('../executed', 'w')")),
    "a file": lambda: batch(labels=Attack(open, "../executed", "w")),
    "getattr": lambda: batch(labels=Attack(getattr, "x", "upper")),
    "fromfile": lambda: batch(labels=Attack(np.fromfile, "/etc/passwd")),
    "memmap": lambda: batch(labels=Attack(np.memmap, "../executed")),
    "codec": lambda: b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.",
    "bomb by codec": lambda: b"\x80\x02c_codecs\nencode\nC\x01aX\x03\x00\x00\x00zip\x86R.",
    "labels of 1.5": lambda: batch(labels=[1.5] * 20), "labels of NaN": lambda: batch(labels=[float("nan")] * 20),
    "labels in 2-D": lambda: batch(labels=[[1]] * 20), "a label": lambda: batch(labels=1),
    "labels of text": lambda: batch(labels=["1"] * 20), "labels as text": lambda: batch(labels="1" * 20),
    "labels of True": lambda: batch(labels=[True] * 20), "labels of None": lambda: batch(labels=[None] * 20),
    "labels beyond": lambda: batch(labels=[10] * 20), "labels below": lambda: batch(labels=[-1] * 20),
    "labels too large": lambda: batch(labels=[2**70] * 20), "labels as bytes": lambda: batch(labels=bytes(20)),
    "labels as a tuple": lambda: batch(labels=(1,) * 20), "a label less": lambda: batch(labels=[1] * 19),
    "labels as an array of numbers": lambda: batch(labels=np.full(20, 1.5)),
    "labels as an array in 2-D": lambda: batch(labels=np.ones((20, 1), int)),
    "labels as an array of none": lambda: batch(labels=np.array(3)),
    "recursive labels": lambda: b"\x80\x02](h\x00e.".replace(b"](", b"]q\x00("),
    "no dict": lambda: pickle.dumps([1, 2], protocol=2), "no data": lambda: pickle.dumps({}, protocol=2),
    "data of text": lambda: batch(data="x"), "data of objects": lambda: batch(data=OBJECTS),
    "data of numbers": lambda: batch(data=DATA.astype(float)), "data too wide": lambda: batch(data=DATA[:, :3000]),
    "data in 3-D": lambda: batch(data=DATA.reshape(20, 3, 1024)), "data as columns": lambda: batch(data=DATA.copy(order="F")),
    "data of records": lambda: batch(data=np.zeros((20, 3072), dtype=[("a", "u1")])),
    "data of dates": lambda: batch(data=np.zeros((20, 3072), dtype="M8[s]")),
    "shape beyond": lambda: array_state(1, (2**40, 3072), U1, False, b"x" * 100),
    "negative shape": lambda: array_state(1, (-1, 3072), U1, False, b"x" * 3072),
    "shape of floats": lambda: array_state(1, (20.0, 3072), U1, False, b"x" * 100),
    "endless shape": lambda: array_state(1, (1,) * 5000, U1, False, b"x"),
    "raw objects": lambda: array_state(1, (20, 3072), np.dtype("O"), False, b"\x41" * 8 * 61440),
    "no state": lambda: array_state(), "state of text": lambda: array_state("x"),
    "type that is none": lambda: array_state(1, (20, 3072), "u1", False, b"x" * 61440),
    "bytes that are a list": lambda: array_state(1, (20, 3072), U1, False, [b"x"] * 61440),
    "long beyond the end": lambda: b"\x80\x02B\xff\xff\xff\x7fabc.", "bytes8": lambda: b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f.",
    "frame beyond": lambda: b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.", "memory cell": lambda: b"\x80\x02Nr\xff\xff\xff\x7f.",
    "long number": lambda: b"\x80\x02\x8b\xff\xff\xff\x7f\x01.", "digits": lambda: b"I" + b"9" * 100_000 + b"\n.",
    "nested": lambda: b"\x80\x02" + b"(" * 300_000 + b"t" * 300_000 + b".", "many instructions": lambda: b"N0" * 2_000_000 + b"N.",
    "extension": lambda: b"\x80\x02\x82\x01.", "persistent": lambda: b"Pid\n.", "stop": lambda: b".", "empty": lambda: b"",
    "doubled": lambda: b"\x80\x02]q\x00" + b"(h\x00h\x00e" * 1000 + b".", "text": lambda: b"<html>404</html>",
    "build on a class": lambda: b"\x80\x02cnumpy\nndarray\n}b.", "state of a function": lambda: b"\x80\x02c_codecs\nencode\n}b.",
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHES)
def test_pickled_batches(place: Place, name: str) -> None:
    files = {**cifar_python(), "cifar-10-batches-py/data_batch_3": BATCHES[name]()}
    write_files(place.folder / "data", files)
    arguments = ["--task", "image", "--data-dir", "data"]
    place.attack("lra.prepare", arguments, says="data_batch_3")


@pytest.mark.parametrize("seed", range(12))
def test_damaged_batches(place: Place, seed: int) -> None:
    name = "cifar-10-batches-py/data_batch_2"
    files = {**cifar_python(), name: mutated(cifar_python()[name], seed)}
    write_files(place.folder / "data", files)
    place.attack("lra.prepare", ["--task", "image", "--data-dir", "data"], {0, 2})


def first_images(count: int) -> Files:
    """Keep so many images of the first batch, and none of the other four."""
    size = 1 + 3072
    files = {name: text for name, text in cifar_binary().items() if name.endswith(".bin")}
    return {
        name: text if "test" in name else text[: size * (count if "batch_1" in name else 0)]
        for name, text in files.items()
    }


@pytest.mark.parametrize("count", [0, 1, 3, 9])
def test_few_images(place: Place, count: int) -> None:
    write_files(place.folder / "data", first_images(count))
    place.attack("lra.prepare", ["--task", "image", "--data-dir", "data"])


@pytest.mark.parametrize("cut", [1, 3072, 3074, 5])
def test_cut_binary_batches(place: Place, cut: int) -> None:
    name = "cifar-10-batches-bin/test_batch.bin"
    write_files(place.folder / "data", {**cifar_binary(), name: cifar_binary()[name][:-cut]})
    place.attack("lra.prepare", ["--task", "image", "--data-dir", "data"])


# Pathfinder


def png(size: tuple[int, int] = (32, 32), mode: str = "L") -> bytes:
    out = io.BytesIO()
    Image.new(mode, size).save(out, "png")
    return out.getvalue()


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


BOMB = zlib.compress(zeros(80 * MIB), 9)
IMAGES: Mapping[str, Callable[[], bytes]] = {
    "empty": lambda: b"", "noise": lambda: NOISE[:500], "another size": lambda: png((31, 32)),
    "colour": lambda: png(mode="RGB"), "16 bits": lambda: png(mode="I;16"), "one bit": lambda: png(mode="1"),
    "palette": lambda: png(mode="P"), "cut": lambda: png()[:-20], "no image": lambda: png_of(ihdr(32, 32)),
    "giant size": lambda: png_of(ihdr(2**31 - 1, 2**31 - 1), chunk(b"IDAT", b"x")),
    "no size": lambda: png_of(ihdr(0, 0)), "bomb": lambda: png_of(ihdr(32, 32), chunk(b"IDAT", BOMB)),
    "text bomb": lambda: png_of(ihdr(32, 32), chunk(b"zTXt", b"a\0\0" + BOMB), chunk(b"IDAT", b"")),
    "profile bomb": lambda: png_of(ihdr(32, 32), chunk(b"iCCP", b"a\0\0" + BOMB), chunk(b"IDAT", b"")),
    "size 50,000": lambda: png_of(ihdr(50_000, 50_000), chunk(b"IDAT", BOMB)), "gif": lambda: b"GIF89a" + bytes(50),
    "chunk beyond": lambda: png()[:33] + b"\xff\xff\xff\x7fIDATx", "depth 3": lambda: png_of(ihdr(32, 32, 3)),
    "large": lambda: png() + zeros(17 * MIB), "wrong sum": lambda: png()[:-5] + b"xxxxx", "svg": lambda: b"<svg/>",
}  # fmt: skip


def npy(head: str, body: bytes = b"") -> bytes:
    text = head.encode() + b" " * (63 - (10 + len(head)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


METADATA: Mapping[str, Callable[[], bytes]] = {
    "empty": lambda: b"", "noise": lambda: NOISE[:500], "no UTF-8": lambda: b"imgs/0 sample_0.png 0 \xff\n",
    "one field": lambda: b"x\n" * 12, "label 2": lambda: b"imgs/0 sample_0.png 0 2\n" * 12,
    "leads out": lambda: b"../../../outside secret 0 1\n" * 12, "twice": lambda: b"imgs/0 sample_0.png 0 1\n" * 12,
    "not there": lambda: b"".join(b"imgs/7 sample_%d.png 0 1\n" % i for i in range(12)),
    "control": lambda: b"\x1b[2J\x07 a 0 1\n" * 12, "objects": lambda: npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", pickle.dumps(Attack(os.system, "touch ../executed"))),
    "shape beyond": lambda: npy("{'descr': '<U9', 'fortran_order': False, 'shape': (999999999999,)}"),
    "negative shape": lambda: npy("{'descr': '<U9', 'fortran_order': False, 'shape': (-5,)}"),
    "header that calls": lambda: npy("{'descr': __import__('os').system('touch ../executed')}"),
    "deep header": lambda: npy("(" * 9000), "version 9": lambda: b"\x93NUMPY\x09\x00\x00\x00",
    "wide strings": lambda: npy("{'descr': '<U2000000000', 'fortran_order': False, 'shape': (9,)}"),
    "no dimensions": lambda: npy("{'descr': '<f8', 'fortran_order': False, 'shape': ()}", bytes(8)),
    "five dimensions": lambda: npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1)}", b"x"),
    "long line": lambda: b"imgs/0 " + b"x" * MIB + b" 0 1\n",
}  # fmt: skip


def release(count: int = 12) -> dict[str, bytes]:
    """Make the files of Pathfinder's release."""
    lines = b"".join(b"imgs/0 sample_%d.png %d %d\n" % (i, i, i % 2) for i in range(count))
    files = {f"imgs/0/sample_{i}.png": png() for i in range(count)} | {"metadata/0.npy": lines}
    return {f"pathfinder32/curv_contour_length_14/{name}": text for name, text in files.items()}


FOLDER = "pathfinder32/curv_contour_length_14"


@pytest.mark.parametrize("name", IMAGES)
def test_images(place: Place, name: str) -> None:
    changed = {f"{FOLDER}/imgs/0/sample_{i}.png": IMAGES[name]() for i in (3, 4)}
    write_files(place.folder / "data", {**release(), **changed})
    place.attack("lra.prepare", ["--task", "pathfinder", "--data-dir", "data"], {0, 2})


@pytest.mark.parametrize("name", METADATA)
def test_metadata(place: Place, name: str) -> None:
    files = {**release(), f"{FOLDER}/metadata/0.npy": METADATA[name]()}
    write_files(place.folder / "data", files)
    place.attack("lra.prepare", ["--task", "pathfinder", "--data-dir", "data"])


@pytest.mark.parametrize("count", [1, 3, 9])
def test_few_pictures(place: Place, count: int) -> None:
    write_files(place.folder / "data", release(count))
    place.attack("lra.prepare", ["--task", "pathfinder", "--data-dir", "data"])


MARKS = [b"", b"\xff\xfe", b"{}", b"[" * 5000, b"null", b'{"source": "official", "content": ""}',
         b'{"source": "\x1b[2J", "content": 1}', NOISE[:99]]  # fmt: skip


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: repr(mark)[:20])
def test_marks_of_exports(place: Place, mark: bytes) -> None:
    write_files(place.folder / "data", {**release(), f"{FOLDER}/exported-from": mark})
    place.attack("lra.prepare", ["--task", "pathfinder", "--data-dir", "data"], {0, 2})
    out = write_files(
        place.folder / "out", {f"{FOLDER}/exported-from": mark, f"{FOLDER}/imgs/a": b"x"}
    )
    arguments = ["--task", "pathfinder", "--data-dir", "data", "--export", str(out)]
    place.attack("lra.prepare", arguments, {0, 2})


# Caches

LISTOPS_RUN = [
    "--task", "listops", "--data-dir", "data", "--set", "task.train=60", "--set", "task.val=10",
    "--set", "task.test=10", "--set", "task.max_length=64", "--set", "task.min_length=20",
]  # fmt: skip


@pytest.fixture(scope="session")
def made_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare a small cache of ListOps."""
    import lra.prepare

    folder = tmp_path_factory.mktemp("cache")
    arguments = [str(folder) if text == "data" else text for text in LISTOPS_RUN]
    assert lra.prepare.main(arguments) == 0
    return folder


def manifest_with(**changes: Any) -> Callable[[Path], None]:
    def change(cache: Path) -> None:
        path = cache / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def raw(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda cache: (cache / name).write_bytes(content) and None


def replaced(name: str, array: np.ndarray) -> Callable[[Path], None]:
    """Put another array in place of one, and make the manifest fit it."""

    def change(cache: Path) -> None:
        from tasks.manifest import file_facts

        np.save(cache / name, array)
        path = cache / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["files"][name] = file_facts(cache / name).model_dump()
        path.write_text(json.dumps(manifest))

    return change


def linked(name: str, target: str) -> Callable[[Path], None]:
    def change(cache: Path) -> None:
        (cache / name).unlink()
        (cache / name).symlink_to(target)

    return change


def piped(name: str) -> Callable[[Path], None]:
    def change(cache: Path) -> None:
        (cache / name).unlink()
        os.mkfifo(cache / name)

    return change


def removed(name: str) -> Callable[[Path], None]:
    return lambda cache: (cache / name).unlink()


CACHES: Mapping[str, Callable[[Path], None]] = {
    "empty manifest": raw("manifest.json", b""), "manifest list": raw("manifest.json", b"[]"),
    "deep manifest": raw("manifest.json", b"[" * 100_000), "manifest noise": raw("manifest.json", NOISE[:999]),
    "manifest no UTF-8": raw("manifest.json", b'{"format": "\xff"}'), "manifest piped": piped("manifest.json"),
    "manifest device": linked("manifest.json", "/dev/zero"), "manifest removed": removed("manifest.json"),
    "format": manifest_with(format=99), "no files": manifest_with(files={}), "sizes": manifest_with(sizes={"train": -5}),
    "files out": manifest_with(files={"../../../outside/secret": {"bytes": 11, "sha256": "0"}}),
    "bytes": manifest_with(files={"train_tokens.npy": {"bytes": 10**30, "sha256": "0"}}),
    "request": manifest_with(request={}), "baselines": manifest_with(baselines={"x": float("nan")}),
    "extra": manifest_with(more=1), "source": manifest_with(source="\x1b[2J"), "null": manifest_with(origin=None),
    "origin out": manifest_with(origin={"../../outside/secret": {"bytes": 1, "sha256": "", "modified_ns": 1}}),
    "array piped": piped("train_tokens.npy"), "array device": linked("train_tokens.npy", "/dev/zero"),
    "array removed": removed("test_labels.npy"), "array cut": raw("val_offsets.npy", b"\x93NUMPY"),
    "array of objects": replaced("val_labels.npy", np.array([1.5] * 10)), "no offsets": replaced("val_offsets.npy", np.zeros(0, int)),
    "offsets beyond": replaced("train_offsets.npy", np.arange(61) * 10**9), "offsets fall": replaced("train_offsets.npy", -np.arange(61)),
    "array in 3-D": replaced("test_tokens.npy", np.zeros((3, 3, 3), np.uint8)), "no tokens": replaced("train_tokens.npy", np.zeros(0, np.uint8)),
    "few labels": replaced("test_labels.npy", np.zeros(1, np.uint8)), "text": replaced("test_labels.npy", np.array(["x"] * 10)),
    "header beyond": lambda cache: replaced_bytes(cache, "test_labels.npy", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999,)}")),
}  # fmt: skip


def replaced_bytes(cache: Path, name: str, content: bytes) -> None:
    replaced(name, np.zeros(1))(cache)
    (cache / name).write_bytes(content)
    from tasks.manifest import file_facts

    path = cache / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = file_facts(cache / name).model_dump()
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", CACHES)
def test_caches(place: Place, made_cache: Path, name: str) -> None:
    shutil.copytree(made_cache, place.folder / "data")
    (cache,) = (p for p in (place.folder / "data" / "listops").glob("generated-*") if p.is_dir())
    CACHES[name](cache)
    place.attack("lra.prepare", [*LISTOPS_RUN, "--verify"], {0, 2})
    run = ["--mixer", "mean", "--device", "cpu", "--set", "train.steps=2", "--preset", "quick"]
    place.attack("run_task", [*LISTOPS_RUN, *run, "--max-steps", "1"], {2, 3})


@pytest.mark.parametrize("mark", [b"", b"\xff", b"{}", NOISE[:50]], ids=repr)
def test_unfinished_caches(place: Place, made_cache: Path, mark: bytes) -> None:
    (cache,) = (p for p in (made_cache / "listops").glob("generated-*") if p.is_dir())
    partial = place.folder / "data" / "listops" / f"{cache.name}.partial"
    write_files(partial, {"request.json": mark, "train_tokens.npy": b"\x93NUMPY"})
    place.attack("lra.prepare", [*LISTOPS_RUN, "--verify"], {0})


# Things that are no files


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "loop", "nothing", "socket"])
@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("text", "aclImdb_v1.tar.gz"), ("image", "cifar-10-python.tar.gz"),
        ("image", "cifar-10-batches-py/test_batch"), ("listops", "basic_train.tsv"),
        ("retrieval", "tsv_data/new_aan_pairs.test.tsv"), ("pathfinder", f"{FOLDER}/metadata/0.npy"),
        ("pathfinder", f"{FOLDER}/imgs/0/sample_3.png"), ("text", "aclImdb/train/pos/0_9.txt"),
    ],
)  # fmt: skip
def test_what_is_no_file(place: Place, task: str, name: str, kind: str) -> None:
    sets: dict[str, Files] = {
        "text": reviews(), "image": cifar_python(), "pathfinder": release(),
        "retrieval": {f"tsv_data/{file}": text for file, text in pairs().items()},
        "listops": {f"basic_{split}.tsv": GOOD for split in ("train", "val", "test")},
    }  # fmt: skip
    path = write_files(place.folder / "data", sets[task]) / name
    path.unlink(missing_ok=True)
    put(path, kind)
    place.attack("lra.prepare", ["--task", task, "--data-dir", "data", "--source", "official"])


def put(path: Path, kind: str) -> None:
    """Put something in a file's place that is none."""
    import socket

    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "socket":
        here = Path.cwd()
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
        os.chdir(here)
