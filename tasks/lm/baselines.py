"""What a text costs without a model of sequences: by frequencies alone, and by a compressor."""

from __future__ import annotations

import lzma
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from common.progress import progress
from tasks.cache import Build, Cache, cache_folder, open_or_build

MAJORITY = "majority class"

CHUNK = 2**22
XZ_CHUNK = 2**16
"""Bytes given to xz at once, for a second at most; the result does not depend on it."""
XZ_LEVEL = 9
XZ_LEAST = 4096
XZ_SEES = 64 * 2**20
"""Least bytes of xz's dictionary, and most at that level: it looks no further back, and so it is
given no more of the training text."""


@dataclass(frozen=True)
class View:
    """The first tokens of a split."""

    tokens: np.ndarray
    """(tokens,) unsigned integers."""
    text: np.ndarray
    """(bytes,) uint8, what they stand for."""
    text_bytes: int
    """Bytes that all tokens but the first stand for."""


def open_baselines(
    data_dir: Path, cache: Cache, views: Mapping[str, View], vocab_size: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Look up what trivial baselines score on the tokens in use, or compute it once.

    Args:
        data_dir: where caches are.
        cache: the whole text, of which `views` are used.
        views: the first tokens of train and test.
        vocab_size: most different tokens.
    Returns: by name, test accuracies in percent, and bits per byte of the test text.
    """
    train, test = views["train"], views["test"]
    sizes = {"train": len(train.tokens), "test": len(test.tokens)}
    request = {"baselines": cache.fingerprint, **sizes}

    def build(made: Build) -> None:
        known, asked = (count_tokens(view.tokens[1:], vocab_size) for view in (train, test))
        made.sizes = sizes
        made.baselines = {
            MAJORITY: 100.0 * int(asked[known.argmax()]) / int(asked.sum()),
            "order-0": order_0(known, asked) / test.text_bytes,
            "xz": xz(train.text, test.text) / len(test.text),
        }

    task, name = cache.manifest.task, f"{cache.folder.name.rpartition('-')[0]}-baselines"
    found = open_or_build(
        cache_folder(data_dir, task, name, request),
        task=task,
        source=cache.manifest.source,
        request=request,
        build=build,
    )
    with found.explain_errors():
        bits = dict(found.manifest.baselines)
        return {MAJORITY: bits.pop(MAJORITY)}, bits


def count_tokens(tokens: np.ndarray, vocab_size: int) -> np.ndarray:
    """Count how often each token occurs: (vocab_size,) int64."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for start in range(0, len(tokens), CHUNK):
        counts += np.bincount(tokens[start : start + CHUNK], minlength=vocab_size)
    return counts


def order_0(train: np.ndarray, test: np.ndarray) -> float:
    """Bits of the counted test tokens, each by its count in training plus 1: (vocab_size,) both."""
    chances = (train + 1) / (train.sum() + len(train))
    return float(-(test * np.log2(chances)).sum())


def xz(train: np.ndarray, test: np.ndarray) -> float:
    """Bits of a test text after a training text, (bytes,) uint8 both, as `xz -9` writes them."""
    known = train[-XZ_SEES:]
    total = 2 * len(known) + len(test)
    with (
        progress("compressing by xz -9, for a baseline", total=total, unit="B") as bar,
        ThreadPoolExecutor() as pool,  # compression lets other threads work
    ):
        is_over = threading.Event()
        try:
            both, first = pool.map(
                lambda parts: _compressed(parts, bar, is_over), ([known, test], [known])
            )
        finally:
            is_over.set()  # an interrupt waits for the threads, which end after their chunk
        return 8.0 * (both - first)


def _compressed(parts: Sequence[np.ndarray], bar: tqdm[Any], is_over: threading.Event) -> int:
    """Count the bytes of a text, given in parts, once xz has compressed it, until `is_over`."""
    # A smaller dictionary than usual takes less memory, and is as good where it holds the text.
    size = min(XZ_SEES, max(XZ_LEAST, sum(map(len, parts))))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": XZ_LEVEL, "dict_size": size}]
    compressor = lzma.LZMACompressor(filters=filters)
    written = 0
    for part in parts:
        for start in range(0, len(part), XZ_CHUNK):
            if is_over.is_set():
                return written
            chunk = part[start : start + XZ_CHUNK].tobytes()
            written += len(compressor.compress(chunk))
            bar.update(len(chunk))
    return written + len(compressor.flush())
