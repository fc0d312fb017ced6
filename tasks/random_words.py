"""Random numbers that are the same on any machine and with any NumPy.

NumPy promises that the raw output of its bit generators never changes, but not that of the
methods of `Generator`; so random numbers are made from raw words here.
"""

import math

import numpy as np


class RandomWords:
    """Random words from one of 2**64 independent streams of a seed."""

    def __init__(self, seed: int, stream: int) -> None:
        self._generator = np.random.Philox(key=np.array([seed, stream], dtype=np.uint64))

    def draw(self, count: int) -> np.ndarray:
        """Draw the next words: (count,) uint32."""
        wide = self._generator.random_raw(-(-count // 2)).astype("<u8", copy=False)
        return wide.view("<u4")[:count].astype(np.uint32, copy=False)

    def draw_below(self, bounds: int | np.ndarray, *shape: int) -> np.ndarray:
        """Draw whole numbers from 0 to below a bound, uniform to within 2**-32 each.

        Args:
            bounds: at most 2**32; one for all numbers, or one for each, of that shape.
            shape: of the result.
        Returns: int64.
        """
        words = self.draw(math.prod(shape)).reshape(shape).astype(np.uint64)
        return (words * np.asarray(bounds, dtype=np.uint64) >> np.uint64(32)).astype(np.int64)


def permutation(seed: int, stream: int, count: int) -> np.ndarray:
    """Draw a random order of 0..count-1: (count,) int64."""
    words = RandomWords(seed, stream).draw(2 * count).astype(np.uint64)
    return np.argsort(words[0::2] | words[1::2] << np.uint64(32), kind="stable")
