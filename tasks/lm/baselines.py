"""What a text costs without a model of sequences: by frequencies alone, and by a compressor."""

import functools
import logging
import lzma
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from lra.tasks.cache import Cache
from lra.tasks.preparation import Build, Preparation

logger = logging.getLogger(__name__)

MAJORITY = "majority class"

CHUNK = 2**22
XZ_PIECE = 2**18
"""Bytes that are compressed before the next look at whether to stop."""
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
    cache: Cache, views: Mapping[str, View], vocab_size: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Look up what trivial baselines score on the tokens in use, or compute it once.

    Args:
        cache: the whole text, of which `views` are used.
        views: the first tokens of train and test.
        vocab_size: most different tokens.
    Returns: by name, test accuracies in percent, and bits per byte of the test text.
    """
    train, test = views["train"], views["test"]
    sizes = {"train": len(train.tokens), "test": len(test.tokens)}

    def build(made: Build) -> None:
        logger.info("compressing by xz -9, for a baseline")
        known, asked = (count_tokens(view.tokens[1:], vocab_size) for view in (train, test))
        made.sizes = sizes
        made.baselines = {
            MAJORITY: 100.0 * int(asked[known.argmax()]) / int(asked.sum()),
            "order-0": order_0(known, asked) / test.text_bytes,
            "xz": xz(train.text, test.text) / len(test.text),
        }

    plan = Preparation(
        data_dir=cache.folder.parents[1],
        task=cache.manifest.task,
        name=f"{cache.folder.name.rpartition('-')[0]}-baselines",
        source=cache.manifest.source,
        request={"baselines": cache.manifest.fingerprint, **sizes},
        build=build,
    )
    bits = dict(plan.open_or_build().manifest.baselines)
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
    known = train[-XZ_SEES:].tobytes()
    with ThreadPoolExecutor(2) as pool:  # compression lets other threads work
        stop = threading.Event()
        compress = functools.partial(_compressed_size, stop=stop)
        try:
            both, first = pool.map(compress, (known + test.tobytes(), known))
        finally:
            stop.set()  # the pool waits for its threads, also after Ctrl-C
    return 8.0 * (both - first)


def _compressed_size(text: bytes, stop: threading.Event) -> int:
    # A smaller dictionary than usual takes less memory, and is as good where it holds the text.
    size = min(XZ_SEES, max(XZ_LEAST, len(text)))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": XZ_LEVEL, "dict_size": size}]
    compressor, size = lzma.LZMACompressor(filters=filters), 0
    for start in range(0, len(text), XZ_PIECE):
        if stop.is_set():
            break
        size += len(compressor.compress(text[start : start + XZ_PIECE]))
    return size + len(compressor.flush())
