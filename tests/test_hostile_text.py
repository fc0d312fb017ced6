"""Hostile archives, and files of ListOps, Text and Retrieval that are none."""

from __future__ import annotations

import functools
import gzip
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow
import pytest

from attack import Place
from made_data import (
    LISTOPS,
    MIB,
    NOISE,
    Files,
    mutated,
    pairs,
    review_tables,
    reviews,
    write_archive,
    write_files,
    write_table,
)

BROKEN: Mapping[str, bytes] = {
    "empty": b"",
    "header alone": b"Source\tTarget\r\n",
    "quotes": LISTOPS.replace(b"Source", b'"So""urce"'),
    "open quote": b'"' + LISTOPS,
    "half of two bytes": LISTOPS.decode().encode("utf-16")[:-1],
    "no header": LISTOPS.partition(b"\n")[2],
    "lone digit": b"Source\tTarget\r\n3\t3\r\n",
    "lone digit in parentheses": LISTOPS + b"( 3 )\t3\r\n",
    "lone close": LISTOPS + b"]\t3\r\n",
    "lone operator": LISTOPS + b"[MAX\t3\r\n",
    "operator without arguments": LISTOPS + b"[MAX ]\t3\r\n",
    "two roots": LISTOPS + b"[MAX 1 ] [MIN 2 ]\t1\r\n",
    "wrong answer": LISTOPS + b"( ( ( [MAX 3 ) 7 ) ] )\t8\r\n",
    "target 12": LISTOPS + b"[MAX 3 ]\t12\r\n",
    "no target": LISTOPS + b"[MAX 3 ]\r\n",
    "three fields": LISTOPS + b"[MAX 3 ]\t3\t3\r\n",
    "unknown token": LISTOPS + b"[MEAN 3 ]\t3\r\n",
    "control characters": LISTOPS + b"\x1b[2J \x07\t3\r\n",
    "no UTF-8": LISTOPS + b"\xff\xfe\t3\r\n",
    "NUL": LISTOPS + b"\0\t3\r\n",
    "binary": NOISE[:5000],
    "a long line": LISTOPS + b"[MAX " + b"1 " * 200_000 + b"]\t1\r\n",
    "deep": LISTOPS + b"[MAX " * 3000 + b"1 " + b"] " * 3000 + b"\t1\r\n",
    "unbalanced": LISTOPS + b"( ( [MAX 3 ] )\t3\r\n",
    "long token": LISTOPS + b"[" + b"M" * 100_000 + b" 3 ]\t3\r\n",
    "closed twice": LISTOPS + b"[MAX 1 ] ]\t1\r\n",
    "many arguments": LISTOPS + b"[SM " + b"9 " * 1000 + b"]\t0\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_listops(place: Place, name: str) -> None:
    files = {f"basic_{split}.tsv": LISTOPS for split in ("train", "val", "test")}
    write_files(place.folder / "data", {**files, "basic_train.tsv": BROKEN[name]})
    count = BROKEN[name].count(b"\n") - 1
    sizes = [f"task.train={max(1, count)}", "task.val=1", "task.test=1"]
    arguments = ["--task", "listops", "--data-dir", "data"]
    arguments += [part for size in sizes for part in ("--set", size)]
    place.attack("lra.prepare", arguments, {0, 2})


@pytest.mark.parametrize("seed", range(4))
def test_damaged_archives_of_listops(place: Place, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = {f"x/basic_{split}.tsv": LISTOPS for split in ("train", "val", "test")}
        content = write_archive(Path(folder, "x.tar"), files).read_bytes()
    write_files(place.folder / "data", {"lra_release.gz": mutated(content, seed)})
    place.attack("lra.prepare", ["--task", "listops", "--data-dir", "data"], {0, 2})


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
    "long name of 400 MiB": lambda: (
        header("x", 400 * MIB, tarfile.GNUTYPE_LONGNAME) + zeros(400 * MIB)
    ),
    "long link of 200 MiB": lambda: (
        header("x", 200 * MIB, tarfile.GNUTYPE_LONGLINK) + zeros(200 * MIB)
    ),
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
    "1,000 notes on all files": lambda: (
        b"".join(
            header("x", 20, tarfile.XGLTYPE) + padded(b"%d" % 16 + b" key%06d=xy\n" % i)
            for i in range(1000)
        )
        + END
    ),
    "pax size that is no number": lambda: (
        header("x", 14, tarfile.XHDTYPE) + padded(b"14 size=many!\n") + header(REVIEW) + END
    ),
    "pax size of zero": lambda: (
        header("x", 9, tarfile.XHDTYPE) + padded(b"0 size=1\n") + header(REVIEW)
    ),
    "holes by pax": lambda: (
        header("x", 25, tarfile.XHDTYPE)
        + padded(b"25 GNU.sparse.map=0,9999\n")
        + header(REVIEW, 512)
        + zeros(512)
        + END
    ),
    "name that is no UTF-8": lambda: header("x").replace(b"x", b"\xff\xfe", 1) + END,
    "control characters": lambda: (
        header("train/pos/\x1b[2J/0_1.txt", 0, tarfile.SYMTYPE, "x") + END
    ),
    "empty": lambda: b"",
    "end alone": lambda: END,
    "noise": lambda: NOISE[:4096],
    "no reviews": lambda: header("readme", 5) + padded(b"hello") + END,
}


@functools.cache
def packed(name: str) -> bytes:
    return gzip.compress(ARCHIVES[name](), compresslevel=1)


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives(place: Place, name: str) -> None:
    write_files(place.folder / "data", {"aclImdb_v1.tar.gz": packed(name)})
    place.attack("lra.prepare", ["--task", "text", "--data-dir", "data", "--source", "official"])


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


REVIEWS: Mapping[str, Files] = {
    "none": {"aclImdb/train/README": b""},
    "no class": {name: text for name, text in reviews().items() if "/neg/" not in name},
    "no test": {name: text for name, text in reviews().items() if "/test/" not in name},
    "empty texts": dict.fromkeys(reviews(), b""),
    "no UTF-8": dict.fromkeys(reviews(), b"\xff\xfe\x80 caf\xe9"),
    "NUL and control": dict.fromkeys(reviews(), b"\x00\x1b[2J\x07"),
    "large": {**reviews(), "aclImdb/train/pos/77_9.txt": b"x" * (MIB + 1)},
    "number beyond int64": {**reviews(), f"aclImdb/train/pos/{'9' * 30}_9.txt": b"x"},
    "number of 200 digits": {**reviews(), f"aclImdb/train/pos/{'9' * 200}_9.txt": b"x"},
    "code points": {name: "\U0010ffff\ud7ff".encode() for name in reviews()},
}


@pytest.mark.parametrize("name", REVIEWS)
def test_reviews(place: Place, name: str) -> None:
    write_files(place.folder / "data", REVIEWS[name])
    place.attack("lra.prepare", ["--task", "text", "--data-dir", "data"], {0, 2})


TABLES: Mapping[str, tuple[list[object], list[object], str]] = {
    "label 7": (["fine", "dull"], [1, 7], "row 1 has label 7, expected 0 to 1"),
    "no label": (["fine"], [None], "row 0 has label None"),
    "unlabelled": (["fine"], [-1], "row 0 has label -1"),
    "no text": ([None], [1], "row 0 has no text"),
    "a long text": (["x" * (MIB + 1)], [1], "row 0 has no text of at most 1,048,576 bytes"),
    "one class": (["fine"], [1], "lacks reviews of a class in train"),
    "none": ([], [], "lacks reviews of a class in train"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(place: Place, name: str) -> None:
    texts, labels, says = TABLES[name]
    review_tables(place.folder / "data", reviews())
    write_table(place.folder / "data", "train", "text", texts, labels)
    place.attack("lra.prepare", ["--task", "text", "--data-dir", "data"], says=says)


def test_a_table_that_repeats_a_long_text(place: Place) -> None:
    review_tables(place.folder / "data", reviews())
    often = pyarrow.array(np.zeros(10_000, dtype=np.int32))
    texts = pyarrow.DictionaryArray.from_arrays(often, pyarrow.array(["x" * 40 * MIB]))
    write_table(place.folder / "data", "train", "text", texts, np.ones(10_000, dtype=int))
    says = "row 0 has no text of at most"
    place.attack("lra.prepare", ["--task", "text", "--data-dir", "data"], says=says)


TAB, LINE = b"\t", b"1.0\ta\tb\tsome text\tother text\n"
PAIRS: Mapping[str, bytes] = {
    "empty": b"",
    "one field": b"x\n" * 9,
    "labels": b"2\ta\tb\tc\td\n",
    "no UTF-8": b"1.0\t\t\t\xff\t\xfe\n",
    "NUL": b"\0" * 5000,
    "noise": NOISE[:9999],
    "no line ends": LINE.strip() * 2000,
    "many tabs": TAB * 100_000 + b"\n",
    "empty texts": b"1.0\ta\tb\t\t\n",
    "half": LINE * 5 + LINE[:9],
    "nan": b"nan\ta\tb\tc\td\n",
    "long label": b"1" * 100_000 + b"\ta\tb\tc\td\n",
    "control": b"\x1b[2J\ta\tb\tc\td\n",
    "quotes alone": b'"\t"\t"\t"\t"\n' * 9,
    "quotes": b'1.0\t"a"\t"b"\t"some ""text"""\t"other\n' * 9,
    "half of two bytes": LINE.decode().encode("utf-16")[:-1],
    "carriage returns": LINE.replace(b"\n", b"\r") * 9,
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(place: Place, name: str) -> None:
    files = {**pairs(), "new_aan_pairs.train.tsv": PAIRS[name]}
    write_files(place.folder / "data" / "tsv_data", files)
    place.attack("lra.prepare", ["--task", "retrieval", "--data-dir", "data"], {0, 2})
