"""Caches that somebody changed, and what stands where a file is expected."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attack import Place
from made_data import (
    LISTOPS,
    NOISE,
    PATHFINDER,
    Files,
    cifar_python,
    npy,
    pairs,
    pathfinder,
    put,
    reviews,
    write_files,
)

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
    def change(cache: Path) -> None:
        (cache / name).write_bytes(content)

    return change


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


BEYOND = "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999,)}"
CACHES: Mapping[str, Callable[[Path], None]] = {
    "empty manifest": raw("manifest.json", b""),
    "manifest list": raw("manifest.json", b"[]"),
    "deep manifest": raw("manifest.json", b"[" * 100_000),
    "manifest noise": raw("manifest.json", NOISE[:999]),
    "manifest no UTF-8": raw("manifest.json", b'{"format": "\xff"}'),
    "manifest piped": piped("manifest.json"),
    "manifest device": linked("manifest.json", "/dev/zero"),
    "manifest removed": removed("manifest.json"),
    "format": manifest_with(format=99),
    "no files": manifest_with(files={}),
    "sizes": manifest_with(sizes={"train": -5}),
    "files out": manifest_with(files={"../../../outside/secret": {"bytes": 11, "sha256": "0"}}),
    "bytes": manifest_with(files={"train_tokens.npy": {"bytes": 10**30, "sha256": "0"}}),
    "request": manifest_with(request={}),
    "baselines": manifest_with(baselines={"x": float("nan")}),
    "extra": manifest_with(more=1),
    "source": manifest_with(source="\x1b[2J"),
    "null": manifest_with(origin=None),
    "origin out": manifest_with(
        origin={"../../outside/secret": {"bytes": 1, "sha256": "", "modified_ns": 1}}
    ),
    "array piped": piped("train_tokens.npy"),
    "array device": linked("train_tokens.npy", "/dev/zero"),
    "array removed": removed("test_labels.npy"),
    "array cut": raw("val_offsets.npy", b"\x93NUMPY"),
    "array of objects": replaced("val_labels.npy", np.array([1.5] * 10)),
    "no offsets": replaced("val_offsets.npy", np.zeros(0, int)),
    "offsets beyond": replaced("train_offsets.npy", np.arange(61) * 10**9),
    "offsets fall": replaced("train_offsets.npy", -np.arange(61)),
    "array in 3-D": replaced("test_tokens.npy", np.zeros((3, 3, 3), np.uint8)),
    "no tokens": replaced("train_tokens.npy", np.zeros(0, np.uint8)),
    "few labels": replaced("test_labels.npy", np.zeros(1, np.uint8)),
    "text": replaced("test_labels.npy", np.array(["x"] * 10)),
    "header beyond": lambda cache: replaced_bytes(cache, "test_labels.npy", npy(BEYOND)),
}


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


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "loop", "nothing", "socket"])
@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("text", "aclImdb_v1.tar.gz"), ("image", "cifar-10-python.tar.gz"),
        ("image", "cifar-10-batches-py/test_batch"), ("listops", "basic_train.tsv"),
        ("retrieval", "tsv_data/new_aan_pairs.test.tsv"),
        ("pathfinder", f"{PATHFINDER}/metadata/0.npy"),
        ("pathfinder", f"{PATHFINDER}/imgs/0/sample_3.png"), ("text", "aclImdb/train/pos/0_9.txt"),
    ],
)  # fmt: skip
def test_what_is_no_file(place: Place, task: str, name: str, kind: str) -> None:
    sets: dict[str, Files] = {
        "text": reviews(),
        "image": cifar_python(),
        "pathfinder": pathfinder(),
        "retrieval": {f"tsv_data/{file}": text for file, text in pairs().items()},
        "listops": {f"basic_{split}.tsv": LISTOPS for split in ("train", "val", "test")},
    }
    path = write_files(place.folder / "data", sets[task]) / name
    path.unlink(missing_ok=True)
    put(path, kind)
    place.attack("lra.prepare", ["--task", task, "--data-dir", "data", "--source", "official"])
