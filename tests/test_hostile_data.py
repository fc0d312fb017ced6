"""Data folders that are damaged or hostile: nothing of them runs, and one line names the fault."""

import gzip
import json
import os
import pickle
import resource
import shutil
import struct
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lra.common.errors import DataError, KnownError
from lra.tasks.base import Task
from lra.tasks.cache import file_facts
from lra.tasks.image.task import Image
from lra.tasks.listops.task import ListOps
from lra.tasks.lm.task import LanguageModelling
from lra.tasks.pathfinder import Pathfinder
from lra.tasks.retrieval import Retrieval
from lra.tasks.text import Text
from made_data import (
    LISTOPS,
    MIB,
    NOISE,
    PATHFINDER,
    Attack,
    cifar_arrays,
    cifar_python,
    cifar_tables,
    mutated,
    npy,
    pairs,
    pathfinder,
    png,
    put,
    reviews,
    wikitext,
    write_archive,
    write_files,
    write_table,
)

TEXT = Text(holdout=2, min_frequency=1)
LM = LanguageModelling(sequence_length=16)
DATA, LABELS = cifar_arrays()[0]


def attempt(task: Task, data: Path) -> str:
    """Prepare and verify a task; return the error, or nothing where all went well."""
    try:
        task.verify(task.prepare(data))
    except (KnownError, OSError) as error:
        assert isinstance(error, KnownError) or error.filename is not None
        assert len(str(error)) < 1000
        return str(error)
    return ""


class Canary:
    """Hostile code for a pickle, which leaves a file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "executed"
        self.command = f"touch {self.path}"
        self.call = Attack(os.system, self.command)


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary(tmp_path)


def batch(**changes: Any) -> bytes:
    content = {"data": DATA, "labels": LABELS.tolist(), **changes}
    return pickle.dumps({name.encode(): value for name, value in content.items()}, protocol=2)


def array_state(*state: Any) -> bytes:
    """Pickle an array whose state was written by hand: version, shape, type, order, bytes."""
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    told = pickle.dumps(state, protocol=2)[2:-1]
    return b"\x80\x02}(C\x04data" + array + told + b"bC\x06labels](" + b"K\x01" * 20 + b"eu."


U1 = np.dtype("u1")
BATCHES: Mapping[str, Callable[[Canary], bytes]] = {
    "command": lambda canary: batch(labels=canary.call),
    "memmap": lambda canary: batch(labels=Attack(np.memmap, canary.path)),
    "objects": lambda canary: batch(data=np.array([[canary.call] * 3072] * 20)),
    "raw objects": lambda _: array_state(1, (20, 3072), np.dtype("O"), False, b"A" * 8 * 61440),
    "state of a function": lambda _: b"\x80\x02c_codecs\nencode\n}b.",
    "labels beyond": lambda _: batch(labels=[10] * 20),
    "empty": lambda _: b"",
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_pickle_runs_nothing(tmp_path: Path, name: str, canary: Canary) -> None:
    files = {**cifar_python(), "cifar-10-batches-py/data_batch_3": BATCHES[name](canary)}
    said = attempt(Image(), write_files(tmp_path / "data", files))
    assert "data_batch_3" in said and not canary.path.exists()
    if name in ("command", "memmap", "objects"):
        assert "refused" in said


def header(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = size, kind, link
    return member.tobuf(tarfile.GNU_FORMAT)


REVIEW, END = "aclImdb/train/pos/0_9.txt", bytes(1024)
HELLO = b"hello" + bytes(507)
ARCHIVES: Mapping[str, tuple[bytes, str]] = {
    "symbolic link": (header(REVIEW, 0, tarfile.SYMTYPE, "/etc/passwd"), "not a regular file"),
    "size beyond the end": (header(REVIEW, 8**11 - 1) + bytes(512), "more than expected"),
    "names that lead out": (header(f"../../{REVIEW}", 5) + HELLO, "lacks reviews"),
    "control characters": (header("\x1b[2J/train/pos/0_1.txt", 0, tarfile.SYMTYPE, "x"), ""),
    "noise": (NOISE[:4096], "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", ARCHIVES)
def test_hostile_archives(tmp_path: Path, name: str) -> None:
    content, words = ARCHIVES[name]
    data = write_files(tmp_path / "data", {"aclImdb_v1.tar.gz": gzip.compress(content + END)})
    said = attempt(TEXT, data)
    assert "aclImdb_v1.tar.gz" in said and words in said
    outside = {path.name for path in tmp_path.rglob("*.txt")}
    assert not outside, "an archive is never unpacked"


def test_compressed_files_that_are_damaged(tmp_path: Path) -> None:
    data = write_files(tmp_path / "data", {"enwik8.gz": gzip.compress(NOISE)[:-8] + bytes(8)})
    for corpus in ("enwik8", str(data / "enwik8.gz")):
        assert "damaged" in attempt(LanguageModelling(corpus=corpus, sequence_length=16), data)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", [".tar", ".tar.gz", ".zip", "batch", "table"])
def test_damage_anywhere_is_an_error_or_no_harm(tmp_path: Path, kind: str, seed: int) -> None:
    data, task = tmp_path / "data", TEXT
    if kind.startswith(".tar"):
        path = write_archive(data / f"aclImdb{kind}", reviews())
    elif kind == ".zip":
        path, task = write_archive(data / "wikitext-2.zip", wikitext()), LM
    elif kind == "batch":
        path, task = write_files(data, cifar_python()) / "cifar-10-batches-py/data_batch_2", Image()
    else:
        cifar_tables(data)
        path, task = data / "train-00000-of-00001.parquet", Image()
    path.write_bytes(mutated(path.read_bytes(), seed))
    attempt(task, data)


@pytest.mark.parametrize(
    ("count", "labels", "words"),
    [(2, [1, None], "has label"), (0, [], "there are 0 images to train on")],
)
def test_hostile_tables(tmp_path: Path, count: int, labels: list[Any], words: str) -> None:
    cifar_tables(tmp_path)
    write_table(tmp_path, "train", "img", [png((32, 32), "RGB")] * count, labels)
    assert words in attempt(Image(), tmp_path)


FILES = {f"basic_{split}.tsv": LISTOPS for split in ("train", "val", "test")}
PLACES: Mapping[str, tuple[Task, Mapping[str, bytes]]] = {
    "basic_val.tsv": (ListOps(), FILES),
    "aclImdb/train/pos/0_9.txt": (TEXT, reviews()),
    "new_aan_pairs.test.tsv": (Retrieval(), pairs()),
    "cifar-10-batches-py/data_batch_2": (Image(), cifar_python()),
    "wikitext-2/wiki.test.tokens": (LM, wikitext()),
}


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", PLACES)
def test_what_is_no_file_is_named(tmp_path: Path, name: str, kind: str) -> None:
    task, files = PLACES[name]
    write_files(tmp_path, files)
    (tmp_path / name).unlink()
    put(tmp_path / name, kind)
    assert attempt(task, tmp_path)


def change_manifest(**changes: Any) -> Callable[[Path], None]:
    def change(cache: Path) -> None:
        path = cache / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda cache: (cache / name).write_bytes(content)


def replace(name: str, content: np.ndarray | bytes) -> Callable[[Path], None]:
    """Put another array in place of one, and make the manifest fit it."""

    def change(cache: Path) -> None:
        if isinstance(content, bytes):
            (cache / name).write_bytes(content)
        else:
            np.save(cache / name, content, allow_pickle=True)
        files = json.loads((cache / "manifest.json").read_text())["files"]
        change_manifest(files={**files, name: file_facts(cache / name).model_dump()})(cache)

    return change


def link(name: str, target: str) -> Callable[[Path], None]:
    def change(cache: Path) -> None:
        (cache / name).unlink()
        (cache / name).symlink_to(target)

    return change


BEYOND = "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999,)}"
CACHES: Mapping[str, Callable[[Path], object]] = {
    "empty manifest": write("manifest.json", b""),
    "manifest device": link("manifest.json", "/dev/zero"),
    "format": change_manifest(format=99),
    "files out": change_manifest(files={"../../../secret": {"bytes": 11, "sha256": "0"}}),
    "array device": link("train_tokens.npy", "/dev/zero"),
    "array changed": replace("test_labels.npy", np.zeros(10, np.uint8) + 11),
    "header beyond": replace("test_labels.npy", npy(BEYOND)),
}


@pytest.fixture(scope="module")
def made_cache(tmp_path_factory: pytest.TempPathFactory) -> tuple[Task, Path]:
    """Prepare a small cache of ListOps."""
    folder = tmp_path_factory.mktemp("cache")
    task = ListOps(train=60, val=10, test=10, max_length=64, min_length=20)
    task.prepare(folder)
    return task, folder


@pytest.mark.parametrize("name", CACHES)
def test_caches_that_somebody_changed(
    tmp_path: Path, made_cache: tuple[Task, Path], name: str
) -> None:
    task, folder = made_cache
    shutil.copytree(folder, tmp_path / "data")
    (cache,) = (p for p in (tmp_path / "data" / "listops").glob("generated-*") if p.is_dir())
    CACHES[name](cache)
    assert str(cache) in attempt(task, tmp_path / "data")


def test_objects_in_a_cache_run_nothing(
    tmp_path: Path, made_cache: tuple[Task, Path], canary: Canary
) -> None:
    task, folder = made_cache
    shutil.copytree(folder, tmp_path / "data")
    (cache,) = (p for p in (tmp_path / "data" / "listops").glob("generated-*") if p.is_dir())
    replace("test_labels.npy", np.array([canary.call] * 10, dtype=object))(cache)
    assert "Python objects in dtype" in attempt(task, tmp_path / "data")
    assert not canary.path.exists()


def chunk(kind: bytes, content: bytes) -> bytes:
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def image(side: int, *chunks: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks)


BOMB = zlib.compress(bytes(80 * MIB), 9)
IMAGES = {
    "noise": NOISE[:500],
    "giant size": image(2**31 - 1, chunk(b"IDAT", b"x")),
    "text bomb": image(32, chunk(b"zTXt", b"a\0\0" + BOMB), chunk(b"IDAT", b"")),
    "large": png() + bytes(17 * MIB),
}
METADATA = {
    "empty": b"",
    "no UTF-8": b"imgs/0 sample_0.png 0 \xff\n",
    "label 2": b"imgs/0 sample_0.png 0 2\n" * 12,
    "leads out": b"../../../outside secret 0 1\n" * 12,
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
