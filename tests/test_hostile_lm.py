"""Texts and archives for lm that are hostile, damaged or none."""

from __future__ import annotations

import functools
import gzip
import io
import lzma
import random
import stat
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from attack import Place
from made_data import MIB, NOISE, mutated, put, wikitext, write_files

FILES = wikitext()
TRAIN = "wikitext-2/wiki.train.tokens"
TEXT = b"".join(FILES.values())
SMALL = ["--task", "lm", "--data-dir", "data", "--set", "task.sequence_length=16"]
WORDS = ["--set", "task.unit=word"]


def zipped(
    files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED, mode: int = 0, level: int = 1
) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method, compresslevel=level) as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name)
            member.compress_type, member.external_attr = method, mode << 16
            archive.writestr(member, content)
    return out.getvalue()


def twice() -> bytes:
    """Make an archive that has a file two times."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in [*FILES.items(), *FILES.items()]:
            archive.writestr(name.replace("2/wiki", f"2/{len(archive.namelist())}/wiki"), content)
    return out.getvalue()


def with_size(size: int) -> bytes:
    """Change in an archive's list how large its first file says to be."""
    content = bytearray(zipped(FILES))
    place = content.index(b"PK\x01\x02")
    content[place + 24 : place + 28] = struct.pack("<I", size)
    return bytes(content)


def with_flag(flag: int) -> bytes:
    """Set flags of an archive's first file, where it is and in the list."""
    content = bytearray(zipped(FILES))
    content[6:8] = struct.pack("<H", flag)
    place = content.index(b"PK\x01\x02")
    content[place + 8 : place + 10] = struct.pack("<H", flag)
    return bytes(content)


ARCHIVES: Mapping[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "no files": lambda: zipped({}),
    "other files": lambda: zipped({"readme": b"hello"}),
    "raw": lambda: zipped({name.replace("tokens", "raw"): text for name, text in FILES.items()}),
    "noise": lambda: b"PK\x03\x04" + NOISE[:5000],
    "no list": lambda: zipped(FILES)[:1000],
    "train of 600 MiB": lambda: zipped({**FILES, TRAIN: bytes(600 * MIB)}),
    "skipped file of 600 MiB": lambda: zipped({"x": bytes(600 * MIB)}),
    "size of 4 GiB": lambda: with_size(2**32 - 2),
    "size too small": lambda: with_size(5),
    "encrypted": lambda: with_flag(1),
    "patched": lambda: with_flag(32),
    "bzip2": lambda: zipped(FILES, zipfile.ZIP_BZIP2),
    "lzma": lambda: zipped(FILES, zipfile.ZIP_LZMA),
    "symbolic links": lambda: zipped(FILES, mode=stat.S_IFLNK),
    "pipes": lambda: zipped(FILES, mode=stat.S_IFIFO),
    "files twice": twice,
    "control characters": lambda: zipped({f"\x1b[2J/{name}": b"x" for name in FILES}),
    "name of 60,000 letters": lambda: zipped({f"{'x' * 60_000}/train.txt": b"x"}),
    "empty splits": lambda: zipped(dict.fromkeys(FILES, b"")),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_zip_archives(place: Place, name: str) -> None:
    write_files(place.folder / "data", {"wikitext-2-v1.zip": ARCHIVES[name]()})
    place.attack("lra.prepare", SMALL)


@pytest.mark.parametrize("lead", ["../../outside/", "/", "C:\\", ""])
def test_names_that_lead_out_are_mere_names(place: Place, lead: str) -> None:
    content = zipped({f"{lead}{name}": text for name, text in FILES.items()})
    write_files(place.folder / "data", {"wikitext-2-v1.zip": content})
    place.attack("lra.prepare", SMALL, {0, 2})


@functools.cache
def good() -> bytes:
    return zipped(FILES)


@pytest.mark.parametrize("seed", range(6))
def test_damaged_archives(place: Place, seed: int) -> None:
    write_files(place.folder / "data", {"wikitext-2-v1.zip": mutated(good(), seed)})
    place.attack("lra.prepare", SMALL, {0, 2})


COMPRESSED: Mapping[str, tuple[str, Callable[[], bytes], set[int]]] = {
    "600 MiB by xz": ("enwik8.xz", lambda: lzma.compress(bytes(600 * MIB), preset=0), {2}),
    "600 MiB by gzip": ("enwik8.gz", lambda: gzip.compress(bytes(600 * MIB), 1), {2}),
    "600 MiB in a zip": ("enwik8.zip", lambda: zipped({"enwik8": bytes(600 * MIB)}), {2}),
    "cut off": ("enwik8.xz", lambda: lzma.compress(NOISE)[:-300], {2}),
    "cut off by gzip": ("enwik8.gz", lambda: gzip.compress(NOISE)[:-300], {2}),
    "wrong checksum": ("enwik8.gz", lambda: gzip.compress(NOISE)[:-8] + bytes(8), {2}),
    "magic alone": ("enwik8.xz", lambda: b"\xfd7zXZ\x00", {2}),
    "no zip": ("enwik8.zip", lambda: b"<html>403 Forbidden</html>" * 100, {0}),
    "empty": ("enwik8", lambda: b"", {2}),
    "tar": ("enwik8.xz", lambda: lzma.compress(bytes(10_240)), {0}),
}


@pytest.mark.parametrize("name", COMPRESSED)
def test_files_that_may_be_compressed(place: Place, name: str) -> None:
    file, content, codes = COMPRESSED[name]
    write_files(place.folder / "data", {file: content()})
    place.attack("lra.prepare", [*SMALL, "--set", "task.corpus=enwik8"], codes)


def many_words() -> bytes:
    rng = random.Random(0)
    return b" ".join(b"%x" % rng.getrandbits(64) for _ in range(30_000))


OWN: Mapping[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "blanks": lambda: b" \n" * 1000,
    "a byte": lambda: b"x",
    "NUL": lambda: bytes(5000),
    "noise": lambda: NOISE,
    "no UTF-8": lambda: TEXT + b"\xff" + TEXT,
    "surrogates": lambda: TEXT + b"\xed\xa0\x80" + TEXT,
    "cut within a character": lambda: TEXT + b"\xf0\x9f",
    "a word of 8 MiB": lambda: b"x" * 8 * MIB + b" " + TEXT,
    "30,000 words": many_words,
    "control characters": lambda: b"\x1b[2J\x07 a\x00b \r" * 1000,
    "its own special words": lambda: b"<unk> <eos> <pad> \n" * 1000,
    "line ends": lambda: b"\n" * 5000,
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("options", [[], WORDS], ids=["bytes", "words"])
def test_own_texts(place: Place, name: str, options: list[str]) -> None:
    write_files(place.folder, {"own.txt": OWN[name]()})
    arguments = [*SMALL, "--verify", "--set", "task.corpus=own.txt", *options]
    place.attack("lra.prepare", arguments, {0, 2})


def test_an_own_text_of_a_terabyte(place: Place) -> None:
    with (place.folder / "own.txt").open("wb") as file:
        file.truncate(2**40)
    place.attack("lra.prepare", [*SMALL, "--set", "task.corpus=own.txt"], says="expected at most")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "loop", "socket"])
@pytest.mark.parametrize("where", ["own", "folder/train.txt", "data/enwik8", "data/wikitext-2"])
def test_what_stands_where_a_text_is_expected(place: Place, where: str, kind: str) -> None:
    path = place.folder / where
    path.parent.mkdir(exist_ok=True)
    write_files(place.folder / "folder", {"valid.txt": TEXT, "test.txt": TEXT})
    put(path, kind)
    corpus = Path(where).name if where.startswith("data") else where.partition("/")[0]
    place.attack("lra.prepare", [*SMALL, "--set", f"task.corpus={corpus}"])


@pytest.mark.parametrize(
    "corpus", ["x" * 5000, "\x1b[2J", "a\nb", "''", "~", ".", "/", "..", "null", "1", "[]", "\\0"]
)
def test_names_of_nothing(place: Place, corpus: str) -> None:
    place.attack("lra.prepare", [*SMALL, "--set", f"task.corpus={corpus}"])


@pytest.mark.parametrize("name", ["train_tokens", "test_text", "vocabulary", "manifest"])
def test_caches_that_somebody_changed(place: Place, name: str) -> None:
    write_files(place.folder / "data", {"wikitext-2-v1.zip": good()})
    place.attack("lra.prepare", [*SMALL, *WORDS], {0})
    (cache,) = (place.folder / "data" / "lm").glob("wikitext-2-word-????????????")
    (cache / f"{name}.{'json' if name == 'manifest' else 'npy'}").write_bytes(NOISE[:900])
    place.attack("lra.prepare", [*SMALL, *WORDS, "--verify"], says="delete that folder")


def test_baselines_that_somebody_changed(place: Place) -> None:
    write_files(place.folder / "data", {"wikitext-2-v1.zip": good()})
    place.attack("lra.prepare", SMALL, {0})
    (path,) = (place.folder / "data" / "lm").glob("*-baselines-????????????/manifest.json")
    path.write_text(path.read_text().replace('"majority class"', '"other"'))
    place.attack("lra.prepare", SMALL, says="delete that folder")
