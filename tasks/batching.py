"""Batches of packed sequences, and the order in which training visits them."""

from __future__ import annotations

import numpy as np
import torch

from tasks.base import Batch, Split
from tasks.random_words import permutation

POOL_BATCHES = 50
"""Bucketing sorts by length within pools of this many batches."""


class PackedTokens(Split):
    """Token sequences stored end to end.

    Args:
        tokens: (total,) uint8, no padding in between.
        offsets: (examples + 1,) int64; example i is tokens[offsets[i]:offsets[i + 1]].
        labels: (examples,) uint8.
        end_token: appended to every sequence, if any.
    """

    def __init__(
        self, tokens: np.ndarray, offsets: np.ndarray, labels: np.ndarray, end_token: int | None
    ) -> None:
        self.tokens = tokens
        self.offsets = np.asarray(offsets)
        self.labels = np.asarray(labels)
        self.end_token = end_token
        self.lengths = np.diff(self.offsets) + (end_token is not None)

    def batch(self, indices: np.ndarray) -> Batch:
        """See `Split.batch`."""
        lengths = self.lengths[indices]
        ends = np.cumsum(lengths)
        # Where each position of the batch lies among the stored tokens.
        shift = self.offsets[indices] - (ends - lengths)
        where = np.arange(ends[-1]) + np.repeat(shift, lengths)
        if self.end_token is None:
            values = self.tokens[where].astype(np.int64)
        else:
            values = self.tokens[np.minimum(where, len(self.tokens) - 1)].astype(np.int64)
            values[ends - 1] = self.end_token
        return Batch(
            torch.from_numpy(values),
            torch.from_numpy(lengths)[:, None],
            torch.from_numpy(self.labels[indices].astype(np.int64)),
        )


class BatchOrder:
    """The batches of each epoch, a function of (seed, epoch) alone.

    With bucketing, batches hold sequences of like length: the examples are shuffled, sorted
    by length within pools, cut into batches, and the batches shuffled.

    Args:
        lengths: (examples,) positions.
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
        """List the batches of an epoch, every example once, the last batch maybe smaller."""
        order = permutation(self.seed, 2 * epoch, len(self.lengths))
        if not self.bucketing:
            return self._cut(order)
        pool_size = self.batch_size * POOL_BATCHES
        batches: list[np.ndarray] = []
        for start in range(0, len(order), pool_size):
            pool = order[start : start + pool_size]
            batches += self._cut(pool[np.argsort(self.lengths[pool], kind="stable")])
        return [batches[i] for i in permutation(self.seed, 2 * epoch + 1, len(batches))]

    def _cut(self, order: np.ndarray) -> list[np.ndarray]:
        return [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]


def evaluation_batches(lengths: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Cut all examples, once each, into batches of like length: lists of (batch,) indices."""
    order = np.argsort(lengths, kind="stable")
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
