"""Small official-looking data sets, as folders and archives."""

import bz2
import gzip
import io
import lzma
import os
import pickle
import random
import re
import socket
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from conftest import ROOT

MIB = 2**20
NOISE = random.Random(0).randbytes(10_000)
Files = Mapping[str, bytes]
"""Contents of files by their names."""

SMALLER: dict[str, list[str]] = {
    "listops": ["task.train=40", "task.val=10", "task.test=10"],
    "text": ["task.test=null", "task.holdout=4"],
    "retrieval": ["task.val=5"],
    "image": ["task.train=20", "task.val=5", "task.test=5"],
    "pathfinder": ["task.examples=30"],
    "pathx": ["task.examples=30", "task.size=32"],
    "lm": ["task.sequence_length=16"],
    "periodic": ["task.train=40", "task.val=10", "task.test=20"],
    "recall": ["task.train=40", "task.val=10", "task.test=20"],
    "languages": ["task.train=40", "task.val=10", "task.test=20"],
    "groups": ["task.train=40", "task.val=10", "task.test=20"],
    "flip-flop": [
        "task.distance=4",
        "task.length=24",
        "task.train=40",
        "task.val=10",
        "task.test=20",
    ],
}
"""Settings by which each task has little data."""


def real_data(name: str) -> Path:
    """Find a file of the real data that may lie beside the repository; skip the test if not."""
    for folder in (ROOT.parent / "shared" / "data", ROOT / "shared" / "data"):
        if (folder / name).exists():
            return folder / name
    pytest.skip(f"needs the real data: {name}")


def place_real_data(task: str, data_dir: Path) -> None:
    """Put the real data of a task into a folder; skip the test where there is none."""
    data_dir.mkdir(parents=True)
    if task == "text":
        (data_dir / "aclImdb.tar.xz").symlink_to(real_data("aclImdb.tar.xz"))
    elif task == "image":
        name = "cifar-10-batches-py.tar.xz"
        (data_dir / name).symlink_to(real_data(name))
    elif task == "retrieval":
        script = real_data("aan/make_aan_pairs.py")
        subprocess.run([sys.executable, script, data_dir / "aan"], check=True, capture_output=True)


def place_made_data(task: str, data_dir: Path) -> None:
    """Put small files in the official file structure into a folder, for tasks that only read."""
    if task == "text":
        write_archive(data_dir / "aclImdb_v1.tar.gz", reviews())
    elif task == "image":
        write_archive(data_dir / "cifar-10-python.tar.gz", cifar_python())
    elif task == "retrieval":
        write_files(data_dir / "tsv_data", pairs())
    elif task == "lm":
        write_zip(data_dir / "wikitext-2-v1.zip", wikitext())


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files by their names under a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def write_archive(path: Path, files: Mapping[str, bytes]) -> Path:
    """Write files into a tar or zip archive, compressed as the ending says."""
    if path.suffix == ".zip":
        return write_zip(path, files)
    path.parent.mkdir(parents=True, exist_ok=True)
    opener = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}.get(path.suffix, open)
    with opener(path, "wb") as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_zip(path: Path, files: Mapping[str, bytes]) -> Path:
    """Write files into a zip archive, compressed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def wikitext(lines: int = 40) -> dict[str, bytes]:
    """Make the files of WikiText-2's archive."""
    rng = random.Random(0)
    words = ["the", "fox", "saw", "Zürich", "<unk>", ",", "."]
    return {
        f"wikitext-2/wiki.{split}.tokens": " \n".join(
            f" {' '.join(rng.choices(words, k=6))}" for _ in range(count)
        ).encode()
        for split, count in (("train", 4 * lines), ("valid", lines), ("test", lines))
    }


def reviews(count: int = 8) -> dict[str, bytes]:
    """Make files of the Large Movie Review Dataset, some of which are no reviews."""
    files = {
        "aclImdb/README": b"about",
        "aclImdb/train/urls_pos.txt": b"http://a",
        "aclImdb/train/unsup/0_0.txt": b"unlabelled",
        "aclImdb/train/pos/._0_9.txt": b"what a file browser left",
    }
    words = {"pos": b"a fine, classic film, ", "neg": b"a dull film of cats, "}
    for split in ("train", "test"):
        for label, word in words.items():
            for i in range(count):
                rating = 9 if label == "pos" else 2
                text = word * (i + 1) + f"{split} {i}".encode()
                files[f"aclImdb/{split}/{label}/{i}_{rating}.txt"] = text
    return files


def write_table(folder: Path, split: str, column: str, contents: Any, labels: Any) -> Path:
    """Write the Parquet file of a split as Hugging Face serves it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{split}-00000-of-00001.parquet"
    if len(contents) and isinstance(contents[0], bytes):
        contents = [{"bytes": content, "path": None} for content in contents]
    table = pyarrow.table({column: contents, "label": labels})
    pyarrow.parquet.write_table(table, path, store_schema=False)
    return path


def review_tables(folder: Path, files: Files, block: int = 128) -> None:
    """Write reviews as Parquet files: a block of a class at a time, its highest number first."""
    pattern = re.compile(r"(train|test)/(neg|pos)/(\d+)_")
    found = [(match, text) for name, text in files.items() if (match := pattern.search(name))]
    for split in ("train", "test"):
        rows = sorted(
            (("neg", "pos").index(match[2]), int(match[3]) // block, -int(match[3]), text.decode())
            for match, text in found
            if match[1] == split
        )
        texts, labels = [text for *_, text in rows], [label for label, *_ in rows]
        write_table(folder, split, "text", texts, labels)


def cifar_tables(folder: Path, order: Sequence[int] = (0, 1, 2, 3, 4)) -> None:
    """Write CIFAR-10 as Parquet files, with its training batches in some order."""
    batches = cifar_arrays()
    for split, rows in (("train", order), ("test", (5,))):
        planes, labels = (
            np.concatenate(kind) for kind in zip(*(batches[i] for i in rows), strict=True)
        )
        images = planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        write_table(folder, split, "img", [as_png(pixels) for pixels in images], labels)


def pair_lines(count: int, seed: int = 0, papers: int = 12) -> list[bytes]:
    """Make lines of a Retrieval file."""
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(count):
        a, b = rng.integers(0, papers, size=2)
        lines.append(b"%d.0\tP%d\tP%d\t%s\t%s" % (i % 2, a, b, paper(a), paper(b)))
    return lines


def paper(number: int) -> bytes:
    """Make the text of a paper."""
    return b'We "quote" paper %d. ' % number * (number + 1)


def pairs() -> dict[str, bytes]:
    """Make the three files of Retrieval."""
    sizes = {"train": 40, "eval": 10, "test": 10}
    return {
        f"new_aan_pairs.{name}.tsv": b"\n".join(pair_lines(count, seed)) + b"\n"
        for seed, (name, count) in enumerate(sizes.items())
    }


def cifar_arrays(per_batch: int = 20) -> list[tuple[np.ndarray, np.ndarray]]:
    """Make five training batches and a test batch: planes (n, 3072), labels (n,)."""
    rng = np.random.default_rng(0)
    return [
        (
            rng.integers(0, 256, size=(per_batch, 3072), dtype=np.uint8),
            np.arange(per_batch) % 10,
        )
        for _ in range(6)
    ]


def cifar_python() -> dict[str, bytes]:
    """Make the Python version of CIFAR-10."""
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    files = {"cifar-10-batches-py/batches.meta": b"meta", "cifar-10-batches-py/readme.html": b"hi"}
    for name, (data, labels) in zip(names, cifar_arrays(), strict=True):
        batch = {b"data": data, b"labels": labels.tolist(), b"batch_label": b"one of 5"}
        files[f"cifar-10-batches-py/{name}"] = pickle.dumps(batch, protocol=2)
    return files


PATHFINDER = "pathfinder32/curv_contour_length_14"


def png(size: tuple[int, int] = (32, 32), mode: str = "L") -> bytes:
    """Make an image, as a PNG file."""
    return as_png(np.asarray(Image.new(mode, size)))


def as_png(pixels: np.ndarray) -> bytes:
    """Write pixels (height, width) or (height, width, 3) as a PNG file."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()


def pathfinder(count: int = 12) -> dict[str, bytes]:
    """Make the files of Pathfinder's release."""
    lines = b"".join(b"imgs/0 sample_%d.png %d %d\n" % (i, i, i % 2) for i in range(count))
    files = {f"imgs/0/sample_{i}.png": png() for i in range(count)} | {"metadata/0.npy": lines}
    return {f"{PATHFINDER}/{name}": text for name, text in files.items()}


def npy(head: str, body: bytes = b"") -> bytes:
    """Make an array file whose header was written by hand."""
    text = head.encode() + b" " * (63 - (10 + len(head)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


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


LISTOPS = b"Source\tTarget\r\n( ( ( [MAX 3 ) 7 ) ] )\t7\r\n"
"""A file of ListOps with one example."""


class Attack:
    """What a pickle turns into a call of a function with arguments."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], tuple(self.call[1:])


def put(path: Path, kind: str) -> None:
    """Put a pipe, folder, device, loop of links, socket or nothing in a file's place."""
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
