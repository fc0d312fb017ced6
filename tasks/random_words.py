"""Random numbers that are the same on any machine and with any NumPy.

NumPy promises that the raw output of its bit generators never changes, but not that of the
methods of `Generator`; so random numbers are made from raw words here.
"""

from __future__ import annotations

import numpy as np


class RandomWords:
    """Random words from one of 2**64 independent streams of a seed."""

    def __init__(self, seed: int, stream: int) -> None:
        self._generator = np.random.Philox(key=np.array([seed, stream], dtype=np.uint64))

    def draw(self, count: int) -> np.ndarray:
        """Draw the next words: (count,) uint32."""
        wide = self._generator.random_raw(-(-count // 2)).astype("<u8", copy=False)
        return wide.view("<u4")[:count].astype(np.uint32, copy=False)


def permutation(seed: int, stream: int, count: int) -> np.ndarray:
    """Draw a random order of 0..count-1: (count,) int64."""
    words = RandomWords(seed, stream).draw(2 * count).astype(np.uint64)
    return np.argsort(words[0::2] | words[1::2] << np.uint64(32), kind="stable")
