"""The data cache: complete or not there, and never what it is not."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from lra.common.errors import DataError
from lra.tasks.cache import open_cache
from lra.tasks.preparation import Build, Preparation

REQUEST = {"source": "test", "seed": 1}


def build(made: Build) -> None:
    made.save("numbers", np.arange(1000))
    made.sizes["train"] = 1000


def plan(data_dir: Path, build: Callable[[Build], None] = build, **request: Any) -> Preparation:
    return Preparation(
        data_dir=data_dir, task="t", name="c", source="test", request={**REQUEST, **request},
        build=build,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("numbers.npy", b"short"), ("numbers.npy", None), ("numbers.npy", "changed"),
        ("manifest.json", b'{"format": 1'), ("manifest.json", None),
    ],
)  # fmt: skip
def test_damaged_caches_are_refused_with_the_way_out(
    tmp_path: Path, name: str, content: bytes | str | None
) -> None:
    cache = plan(tmp_path).open_or_build()
    folder = cache.folder
    assert isinstance(cache.array("numbers"), np.memmap) and cache.array("numbers")[999] == 999
    with pytest.raises(DataError, match=r"has no letters\.npy; delete that folder"):
        cache.array("letters")
    path = folder / name
    whole = path.read_bytes()
    path.unlink()
    if content is not None:
        half = len(whole) // 2
        other = whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1 :]
        path.write_bytes(content if isinstance(content, bytes) else other)
    with pytest.raises(DataError, match=rf"the data cache {folder} .*; delete that folder"):
        plan(tmp_path).open_or_build()


def test_each_request_has_a_cache_of_its_own(tmp_path: Path) -> None:
    folders = {
        made.folder for made in (plan(tmp_path), plan(tmp_path, seed=2), plan(tmp_path, a=0))
    }
    assert len(folders) == 3
    same = plan(tmp_path)
    same.request = dict(reversed(REQUEST.items()))
    assert same.folder in folders
    with pytest.raises(DataError, match="other settings"):
        open_cache(same.open_or_build().folder, {**REQUEST, "seed": 2})


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail(made: Build) -> None:
        build(made)
        raise RuntimeError("no more disk")

    with pytest.raises(RuntimeError, match="no more disk"):
        plan(tmp_path, fail).open_or_build()
    (left,) = (tmp_path / "t").iterdir()
    assert left.suffix == ".lock"


def test_two_processes_build_once_and_a_complete_cache_needs_no_lock(tmp_path: Path) -> None:
    calls: list[int] = []

    def slow(made: Build) -> None:
        calls.append(1)
        time.sleep(0.2)
        build(made)

    def run(_: int) -> np.ndarray:
        return plan(tmp_path, slow).open_or_build().array("numbers")

    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(x, np.arange(1000)) for x in pool.map(run, range(4)))
    assert len(calls) == 1
    with FileLock(f"{plan(tmp_path).folder}.lock"):  # so the data folder may be read-only
        run(0)


def test_a_fingerprint_is_of_the_data_and_not_of_what_baselines_predict(tmp_path: Path) -> None:
    """A logistic regression rounds differently on another processor, and the data is the same."""
    prints = []
    for number, (label, prediction) in enumerate([(1, 1), (1, 0), (0, 0)]):

        def build(made: Build, label: int = label, prediction: int = prediction) -> None:
            made.save("labels", np.array([label]))
            made.save("test_predictions", np.array([prediction]))

        made = Preparation(
            data_dir=tmp_path / str(number), task="toy", name="c", source="official", request={},
            build=build,
        )  # fmt: skip
        prints.append(made.open_or_build().manifest.fingerprint)
    assert prints[0] == prints[1] != prints[2]
    assert prints[0].startswith("0ba774a2"), "the same on any machine and in any version"
