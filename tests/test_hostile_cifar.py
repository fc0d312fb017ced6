"""Hostile batches of CIFAR-10: pickles that want more than arrays, images that are too few."""

from __future__ import annotations

import os
import pickle
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from attack import Place
from made_data import (
    NOISE,
    Attack,
    Files,
    cifar_arrays,
    cifar_binary,
    cifar_python,
    cifar_tables,
    mutated,
    png,
    write_files,
    write_table,
)

DATA, LABELS = cifar_arrays()[0]


def batch(**changes: Any) -> bytes:
    content = {"data": DATA, "labels": LABELS.tolist(), **changes}
    return pickle.dumps({name.encode(): value for name, value in content.items()}, protocol=2)


def array_state(*state: Any) -> bytes:
    """Pickle an array whose state was written by hand: version, shape, type, order, bytes."""
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    told = pickle.dumps(state, protocol=2)[2:-1]
    labels = b"C\x06labels](" + b"K\x01" * 20 + b"e"
    return b"\x80\x02}(C\x04data" + array + told + b"b" + labels + b"u."


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
    "labels of 1.5": lambda: batch(labels=[1.5] * 20),
    "labels of NaN": lambda: batch(labels=[float("nan")] * 20),
    "labels in 2-D": lambda: batch(labels=[[1]] * 20),
    "a label": lambda: batch(labels=1),
    "labels of text": lambda: batch(labels=["1"] * 20),
    "labels as text": lambda: batch(labels="1" * 20),
    "labels of True": lambda: batch(labels=[True] * 20),
    "labels of None": lambda: batch(labels=[None] * 20),
    "labels beyond": lambda: batch(labels=[10] * 20),
    "labels below": lambda: batch(labels=[-1] * 20),
    "labels too large": lambda: batch(labels=[2**70] * 20),
    "labels as bytes": lambda: batch(labels=bytes(20)),
    "labels as a tuple": lambda: batch(labels=(1,) * 20),
    "a label less": lambda: batch(labels=[1] * 19),
    "labels as an array of numbers": lambda: batch(labels=np.full(20, 1.5)),
    "labels as an array in 2-D": lambda: batch(labels=np.ones((20, 1), int)),
    "labels as an array of none": lambda: batch(labels=np.array(3)),
    "recursive labels": lambda: b"\x80\x02](h\x00e.".replace(b"](", b"]q\x00("),
    "no dict": lambda: pickle.dumps([1, 2], protocol=2),
    "no data": lambda: pickle.dumps({}, protocol=2),
    "data of text": lambda: batch(data="x"),
    "data of objects": lambda: batch(data=OBJECTS),
    "data of numbers": lambda: batch(data=DATA.astype(float)),
    "data too wide": lambda: batch(data=DATA[:, :3000]),
    "data in 3-D": lambda: batch(data=DATA.reshape(20, 3, 1024)),
    "data as columns": lambda: batch(data=DATA.copy(order="F")),
    "data of records": lambda: batch(data=np.zeros((20, 3072), dtype=[("a", "u1")])),
    "data of dates": lambda: batch(data=np.zeros((20, 3072), dtype="M8[s]")),
    "shape beyond": lambda: array_state(1, (2**40, 3072), U1, False, b"x" * 100),
    "negative shape": lambda: array_state(1, (-1, 3072), U1, False, b"x" * 3072),
    "shape of floats": lambda: array_state(1, (20.0, 3072), U1, False, b"x" * 100),
    "endless shape": lambda: array_state(1, (1,) * 5000, U1, False, b"x"),
    "raw objects": lambda: array_state(1, (20, 3072), np.dtype("O"), False, b"\x41" * 8 * 61440),
    "no state": array_state,
    "state of text": lambda: array_state("x"),
    "type that is none": lambda: array_state(1, (20, 3072), "u1", False, b"x" * 61440),
    "bytes that are a list": lambda: array_state(1, (20, 3072), U1, False, [b"x"] * 61440),
    "long beyond the end": lambda: b"\x80\x02B\xff\xff\xff\x7fabc.",
    "bytes8": lambda: b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f.",
    "frame beyond": lambda: b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.",
    "memory cell": lambda: b"\x80\x02Nr\xff\xff\xff\x7f.",
    "long number": lambda: b"\x80\x02\x8b\xff\xff\xff\x7f\x01.",
    "digits": lambda: b"I" + b"9" * 100_000 + b"\n.",
    "nested": lambda: b"\x80\x02" + b"(" * 300_000 + b"t" * 300_000 + b".",
    "many instructions": lambda: b"N0" * 2_000_000 + b"N.",
    "extension": lambda: b"\x80\x02\x82\x01.",
    "persistent": lambda: b"Pid\n.",
    "stop": lambda: b".",
    "empty": lambda: b"",
    "doubled": lambda: b"\x80\x02]q\x00" + b"(h\x00h\x00e" * 1000 + b".",
    "text": lambda: b"<html>404</html>",
    "build on a class": lambda: b"\x80\x02cnumpy\nndarray\n}b.",
    "state of a function": lambda: b"\x80\x02c_codecs\nencode\n}b.",
}


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


def bomb() -> bytes:
    """Make a PNG file of a few bytes that states 60,000 x 60,000 pixels."""
    small = png((32, 32), "RGB")
    header = b"IHDR" + struct.pack(">II", 60_000, 60_000) + small[24:29]
    return small[:12] + header + struct.pack(">I", zlib.crc32(header)) + small[33:]


TABLES: Mapping[str, tuple[list[Any], list[Any], str]] = {
    "64 x 64": ([png((64, 64), "RGB")], [1], "is (64, 64), expected (32, 32) pixels"),
    "bomb": ([bomb()], [1], "image 0 of train"),
    "no PNG": ([b"GIF89a"], [1], "image 0 of train is damaged"),
    "half a PNG": ([png((32, 32), "RGB")[:-30]], [1], "image 0 of train is damaged"),
    "large": ([bytes(2**20 + 1)], [1], "row 0 has no img of at most 1,048,576 bytes"),
    "no images": ([None], [1], "row 0 has no img"),
    "numbers": ([1.5], [1], "row 0 has no img"),
    "lists": ([[b"x"]], [1], "row 0 has no img"),
    "no label": ([png((32, 32), "RGB")] * 2, [1, None], "row 1 has label None"),
    "label 10": ([png((32, 32), "RGB")], [10], "row 0 has label 10, expected 0 to 9"),
    "label of text": ([png((32, 32), "RGB")], ["cat"], "row 0 has label cat"),
    "label 1.5": ([png((32, 32), "RGB")], [1.5], "row 0 has label 1.5"),
    "empty": ([], [], "there are 0 images to train on"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(place: Place, name: str) -> None:
    images, labels, says = TABLES[name]
    folder = place.folder / "data" / "plain_text"
    cifar_tables(folder)
    write_table(folder, "train", "img", images, labels)
    place.attack("lra.prepare", ["--task", "image", "--data-dir", "data"], says=says)


@pytest.mark.parametrize("change", ["cut", "noise", "no test", "another test"])
def test_damaged_tables(place: Place, change: str) -> None:
    folder = place.folder / "data" / "plain_text"
    cifar_tables(folder)
    train, test = sorted(folder.iterdir(), reverse=True)
    if change == "no test":
        test.unlink()
    elif change == "another test":
        write_table(folder, "test", "text", ["a review"], [1])
    else:
        content = train.read_bytes()
        train.write_bytes(content[:-50] if change == "cut" else NOISE)
    says = "lacks test*.parquet" if change == "no test" else "plain_text/t"
    place.attack("lra.prepare", ["--task", "image", "--data-dir", "data"], says=says)


@pytest.mark.parametrize("seed", range(8))
def test_changed_tables(place: Place, seed: int) -> None:
    cifar_tables(place.folder / "data")
    path = place.folder / "data" / "train-00000-of-00001.parquet"
    path.write_bytes(mutated(path.read_bytes(), seed))
    place.attack("lra.prepare", ["--task", "image", "--data-dir", "data"], {0, 2})
