"""The cache of ListOps data, which is either generated or read from the official files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from common.untrusted import map_array, read_regular
from tasks.base import accuracy_percent
from tasks.cache import Build, Cache, cache_folder, open_or_build
from tasks.listops.format import FILES, read_official
from tasks.listops.generate import generate
from tasks.listops.law import VOCAB_SIZE, Expressions, Law
from tasks.sources.copies import note_copies
from tasks.sources.exports import MARK, determine_source

ARRAYS = ("tokens", "offsets", "labels")
"""The arrays of each split in a cache."""


def request_generated(law: Law, seed: int, counts: Mapping[str, int]) -> dict[str, Any]:
    """Describe generated expressions: all that determines them.

    Args:
        law: law of the expressions.
        seed: seed of the generator.
        counts: examples by split.
    """
    return {
        "source": "generated",
        "law": {**vars(law), "operator_probability": 0.25, "version": 1},
        "seed": seed,
        "counts": dict(counts),
    }


def generated_folder(data_dir: Path, request: dict[str, Any]) -> Path:
    """Return the folder of the cache of generated expressions."""
    return cache_folder(data_dir, "listops", "generated", request)


def open_generated(data_dir: Path, law: Law, seed: int, counts: Mapping[str, int]) -> Cache:
    """Open the cache of generated expressions; where there is none, generate them.

    Args:
        data_dir: folder of the cache.
        law: law of the expressions.
        seed: seed of the generator.
        counts: examples by split.
    Raises: DataError if the law has too few distinct expressions.
    """
    request = request_generated(law, seed, counts)
    return open_or_build(
        generated_folder(data_dir, request),
        task="listops",
        source=request["source"],
        request=request,
        build=lambda made: _save(made, generate(law, seed, counts)),
    )


def read_files(made: Build, path: Path) -> None:
    """Read the files of a folder or an archive in the official format into a cache.

    Raises: DataError if a file is missing or malformed, or holds a wrong answer.
    """
    from tasks.listops.interpreter import check_answers, compute_statistics
    from tasks.listops.official import (
        describe_excess,
        describe_other_counts,
        describe_shortfall,
        find_own_seed,
    )

    folder, splits, others = read_official(path)
    statistics = {name: compute_statistics(split) for name, split in splits.items()}
    for name, split in splits.items():
        file = path / folder / FILES[name]
        # The header is line 1, and no line is left out.
        check_answers(split, statistics[name], lambda i, file=file: f"{file}:{i + 2}")
    _save(made, splits)
    beyond = describe_excess(splits, statistics)
    doubt = describe_other_counts(splits) or beyond or describe_shortfall(splits, statistics)
    mark = path / MARK
    determine_source(
        made,
        read_regular(mark) if mark.is_file() else None,
        content_of(made.folder),
        doubt or find_own_seed(splits),
    )
    note_copies(made, path / folder, [path / other for other in others])
    if beyond and made.source != "unofficial":  # an export of ours, but of another law
        made.mark_unofficial(beyond)


def content_of(folder: Path) -> Iterator[np.ndarray]:
    """Open the arrays of a cache that its examples are in, one after another."""
    for split in FILES:
        for kind in ARRAYS:
            yield map_array(folder / f"{split}_{kind}.npy")


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
