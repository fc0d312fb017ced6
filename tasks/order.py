"""Which examples a split holds, and the order in which training and evaluation visit them."""

from __future__ import annotations

import numpy as np
import torch

from common.errors import DataError
from tasks.random_words import permutation

POOL_BATCHES = 50
"""Bucketing sorts by length within pools of this many batches."""


def random_split_order(count: int) -> np.ndarray:
    """Order examples as torch's random_split with seed 42 does: (count,) int64."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(42)).numpy()


def choose_rows(
    seed: int, stream: int, available: int, count: int | None, option: str
) -> np.ndarray:
    """Choose `count` of the available examples at random, or all of them: (count,), rising.

    Args:
        stream: number that distinguishes choices of the same seed.
        option: name of the option that holds the count, for the error.
    Raises: DataError if there are too few.
    """
    if count is None:
        return np.arange(available)
    if count > available:
        raise DataError(f"{option} is {count}, but there are {available} examples to choose from")
    return np.sort(permutation(seed, stream, available)[:count])


class BatchOrder:
    """The batches of each epoch, which depend only on (seed, epoch).

    With bucketing, batches hold sequences of similar length: the examples are shuffled, sorted
    by length within pools, cut into batches, and the batches shuffled.

    Args:
        lengths: (examples,) positions.
        batch_size: examples in a batch.
        seed: seed of the random order.
        bucketing: whether batches hold sequences of similar length.
    """

    def __init__(self, lengths: np.ndarray, batch_size: int, *, seed: int, bucketing: bool) -> None:
        self.lengths = lengths
        self.batch_size = batch_size
        self.seed = seed
        self.bucketing = bucketing
        self.batches_per_epoch = -(-len(lengths) // batch_size)
        self._epoch = -1
        self._batches: list[np.ndarray] = []

    def at(self, step: int) -> np.ndarray:
        """Return the example indices, (batch,), of a 0-based training step."""
        epoch, position = divmod(step, self.batches_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self.epoch(epoch)
        return self._batches[position]

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """List the batches of an epoch: every example once; the last batch may be smaller."""
        order = permutation(self.seed, 2 * epoch, len(self.lengths))
        if not self.bucketing:
            return cut(order, self.batch_size)
        pool_size = self.batch_size * POOL_BATCHES
        batches: list[np.ndarray] = []
        for start in range(0, len(order), pool_size):
            pool = order[start : start + pool_size]
            batches += cut(pool[np.argsort(self.lengths[pool], kind="stable")], self.batch_size)
        return [batches[i] for i in permutation(self.seed, 2 * epoch + 1, len(batches))]


def evaluation_batches(lengths: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Cut all examples, once each, into batches of similar length: lists of (batch,) indices."""
    return cut(np.argsort(lengths, kind="stable"), batch_size)


def cut(order: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Cut indices of examples, in order, into batches; the last one may be smaller."""
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
