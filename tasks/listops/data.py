"""The cache of ListOps data, which is either generated or read from the official files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tasks.base import DataError, accuracy_percent
from tasks.cache import Build, Cache, cache_folder, open_or_build
from tasks.listops.format import read_official
from tasks.listops.generate import generate
from tasks.listops.law import VOCAB_SIZE, Expressions, Law
from tasks.manifest import origin_facts
from tasks.sources.exports import origin_of

ARRAYS = ("tokens", "offsets", "labels")
"""The arrays of each split in a cache."""


def open_generated(data_dir: Path, law: Law, seed: int, counts: Mapping[str, int]) -> Cache:
    """Open the cache of generated expressions; where there is none, generate them.

    Args:
        data_dir: where the cache is.
        law: law of the expressions.
        seed: seed of the generator.
        counts: examples by split.
    Raises: DataError if the law has too few distinct expressions.
    """
    request = {
        "source": "generated",
        "law": {**vars(law), "operator_probability": 0.25, "version": 1},
        "seed": seed,
        "counts": dict(counts),
    }

    def build(made: Build) -> None:
        _save(made, generate(law, seed, counts))

    return _open(data_dir, request, build)


def open_official(data_dir: Path, files: Mapping[str, Path], counts: Mapping[str, int]) -> Cache:
    """Open the cache of the official files; where there is none, read the files.

    Args:
        data_dir: where the files and the cache are.
        files: paths by split.
        counts: examples that each split must have.
    Raises: DataError if a file is malformed, has changed, or has another number of examples.
    """
    sizes = {path.name: path.stat().st_size for path in files.values()}
    request = {
        "source": origin_of(files["train"].parent),
        "files": sizes,
        "counts": dict(counts),
    }

    def build(made: Build) -> None:
        made.origin = {
            str(path.relative_to(data_dir)): origin_facts(path) for path in files.values()
        }
        splits = {name: read_official(path) for name, path in files.items()}
        for name, split in splits.items():
            count = len(split.labels)
            if count != counts[name]:
                raise DataError(
                    f"{files[name]} has {count} examples, expected {counts[name]}: is it complete? "
                    f"If it is meant to be so, use task.{name}={count} and task.source=official"
                )
        _save(made, splits)

    cache = _open(data_dir, request, build)
    cache.check_origin(data_dir)
    return cache


def _open(data_dir: Path, request: dict[str, Any], build: Callable[[Build], None]) -> Cache:
    source = request["source"]
    folder = cache_folder(data_dir, "listops", source, request)
    return open_or_build(folder, task="listops", source=source, request=request, build=build)


def split_arrays(cache: Cache, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Open a split: tokens (total,), offsets (examples + 1,) and labels (examples,)."""
    tokens, offsets, labels = (cache.array(f"{split}_{name}") for name in ARRAYS)
    return tokens, np.asarray(offsets), np.asarray(labels)


def _save(made: Build, splits: Mapping[str, Expressions]) -> None:
    """Write the arrays of all splits and the accuracies of the trivial baselines."""
    roots = {}
    for name, split in splits.items():
        offsets = np.concatenate([[0], np.cumsum(split.lengths)])
        roots[name] = split.tokens[offsets[:-1]]
        for kind, array in zip(ARRAYS, (split.tokens, offsets, split.labels), strict=True):
            made.save(f"{name}_{kind}", array)
        made.sizes[name] = len(split.labels)
    train, test = splits["train"].labels, splits["test"].labels
    commonest = np.bincount(train, minlength=10).argmax()
    prediction_by_root = np.full(VOCAB_SIZE, commonest)
    for root in np.unique(roots["train"]):
        prediction_by_root[root] = np.bincount(train[roots["train"] == root]).argmax()
    made.baselines = {
        "majority class": accuracy_percent(np.full(len(test), commonest), test),
        "root operator": accuracy_percent(prediction_by_root[roots["test"]], test),
    }
