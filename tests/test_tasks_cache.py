"""The data cache: complete or not there, and never what it is not."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from common.errors import DataError
from tasks.cache import Build, open_cache, open_or_build

REQUEST = {"source": "test", "seed": 1}


def build(made: Build) -> None:
    made.save("numbers", np.arange(1000))
    made.sizes["train"] = 1000


def make(folder: Path) -> Path:
    open_or_build(folder, task="t", source="test", request=REQUEST, build=build)
    return folder


def damage_size(folder: Path) -> None:
    (folder / "numbers.npy").write_bytes(b"short")


def damage_byte(folder: Path) -> None:
    content = bytearray((folder / "numbers.npy").read_bytes())
    content[500] ^= 1
    (folder / "numbers.npy").write_bytes(bytes(content))


def damage_missing(folder: Path) -> None:
    (folder / "numbers.npy").unlink()


def damage_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"format": 1')


def damage_no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize(
    "damage", [damage_size, damage_byte, damage_missing, damage_manifest, damage_no_manifest]
)
def test_damaged_caches_are_refused_with_the_way_out(tmp_path: Path, damage) -> None:
    folder = make(tmp_path / "cache")
    assert open_cache(folder, REQUEST).array("numbers")[999] == 999
    damage(folder)
    with pytest.raises(DataError, match=r"does not match its manifest: .*delete that folder"):
        make(folder)


def test_a_cache_of_another_version_is_refused_with_the_way_out(tmp_path: Path) -> None:
    cache = open_cache(make(tmp_path / "cache"), REQUEST)
    with pytest.raises(DataError, match=r"has no letters\.npy, .*; delete that folder and run"):
        cache.array("letters")


def test_a_cache_for_other_settings_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "cache")
    with pytest.raises(DataError, match="other settings"):
        open_cache(folder, {**REQUEST, "seed": 2})


def test_arrays_are_mapped_not_read(tmp_path: Path) -> None:
    cache = open_cache(make(tmp_path / "cache"), REQUEST)
    assert isinstance(cache.array("numbers"), np.memmap)


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail(made: Build) -> None:
        build(made)
        raise RuntimeError("no more disk")

    with pytest.raises(RuntimeError, match="no more disk"):
        open_or_build(tmp_path / "c", task="t", source="s", request=REQUEST, build=fail)
    assert [path.name for path in tmp_path.iterdir()] == ["c.lock"]


def test_two_processes_build_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def slow(made: Build) -> None:
        calls.append(1)
        time.sleep(0.3)
        build(made)

    def run(_: int) -> np.ndarray:
        cache = open_or_build(tmp_path / "c", task="t", source="s", request=REQUEST, build=slow)
        return cache.array("numbers")

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, range(4)))
    assert len(calls) == 1
    assert all(np.array_equal(result, np.arange(1000)) for result in results)


def test_a_complete_cache_needs_no_lock(tmp_path: Path) -> None:
    """So that a data folder may be read-only."""
    folder = make(tmp_path / "cache")
    (tmp_path / "cache.lock").unlink()
    with FileLock(tmp_path / "cache.lock"):
        make(folder)


def test_what_baselines_predict_is_no_part_of_the_fingerprint(tmp_path: Path) -> None:
    """A logistic regression rounds differently on another processor, and the data is the same."""
    prints = []
    for number, (label, prediction) in enumerate([(1, 1), (1, 0), (0, 0)]):

        def build(made: Build, label: int = label, prediction: int = prediction) -> None:
            made.save("labels", np.array([label]))
            made.save("test_predictions", np.array([prediction]))

        folder = tmp_path / f"cache-{number}"
        cache = open_or_build(folder, task="toy", source="official", request={}, build=build)
        prints.append(cache.fingerprint)
    assert prints[0] == prints[1] != prints[2]
