"""Batches of packed sequences, and the order in which training visits them."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch

from tasks.base import Batch, DataError, Split
from tasks.random_words import permutation

POOL_BATCHES = 50
"""Bucketing sorts by length within pools of this many batches."""


@dataclass(frozen=True)
class Sequences:
    """Token sequences stored end to end."""

    tokens: np.ndarray
    """(total,) unsigned integers, no padding in between."""
    offsets: np.ndarray
    """(sequences + 1,) int64; sequence i is tokens[offsets[i]:offsets[i + 1]]."""
    first_id: int = 0
    """Added to what is stored: bytes become ids from 1 on, 0 being the padding."""
    end_token: int | None = None
    """Id appended to every sequence, if any."""

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """(sequences,) int64, positions of each, end token included."""
        return np.diff(self.offsets) + (self.end_token is not None)

    def gather(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lay sequences end to end.

        Args:
            which: (count,) their indices, in the order wanted.
        Returns: ids (positions,) int64, and lengths (count,).
        """
        lengths = self.lengths[which]
        ends = np.cumsum(lengths)
        # Where each position of the batch lies among the stored tokens.
        shift = self.offsets[which] - (ends - lengths)
        where = np.arange(ends[-1]) + np.repeat(shift, lengths)
        if self.end_token is None:
            return self.tokens[where].astype(np.int64) + self.first_id, lengths
        ids = self.tokens[np.minimum(where, len(self.tokens) - 1)].astype(np.int64) + self.first_id
        ids[ends - 1] = self.end_token
        return ids, lengths


class PackedTokens(Split):
    """Examples of one token sequence each, or of several.

    Args:
        sequences: of this split, or of all.
        labels: (examples,) unsigned integers.
        which: (examples, towers) indices of each example's sequences; None where example i
            is sequence i.
    """

    def __init__(
        self, sequences: Sequences, labels: np.ndarray, which: np.ndarray | None = None
    ) -> None:
        self.sequences = sequences
        self.labels = labels
        self.which = np.arange(len(labels))[:, None] if which is None else which
        self.lengths = sequences.lengths[self.which].max(axis=1)

    def batch(self, indices: np.ndarray) -> Batch:
        """See `Split.batch`."""
        which = self.which[indices]
        inputs, lengths = self.sequences.gather(which.ravel())
        return Batch(
            torch.from_numpy(inputs),
            torch.from_numpy(lengths.reshape(which.shape)),
            torch.from_numpy(self.labels[indices].astype(np.int64)),
        )


class Pixels(Split):
    """Images of one size, read in raster order.

    Args:
        images: (images, positions, channels) uint8, of this split or of all.
        labels: (examples,) unsigned integers.
        which: (examples,) index of each example's image.
        scale: (256, channels) float32, the real value of each level; None to take the levels
            as tokens.
    """

    def __init__(
        self, images: np.ndarray, labels: np.ndarray, which: np.ndarray, scale: np.ndarray | None
    ) -> None:
        self.images = images
        self.labels = labels
        self.which = which
        self.scale = scale
        self.lengths = np.full(len(labels), images.shape[1], dtype=np.int64)

    def batch(self, indices: np.ndarray) -> Batch:
        """See `Split.batch`."""
        levels = self.images[self.which[indices]].reshape(-1, self.images.shape[2])
        if self.scale is None:
            inputs = levels[:, 0].astype(np.int64)
        else:
            inputs = np.take_along_axis(self.scale, levels, axis=0)
        return Batch(
            torch.from_numpy(inputs),
            torch.from_numpy(self.lengths[indices][:, None]),
            torch.from_numpy(self.labels[indices].astype(np.int64)),
        )


def scale(moments: list[tuple[float, float]]) -> np.ndarray:
    """Tabulate the real value of each level: a mean and a deviation a channel, of levels 0 to 255.

    Returns: (256, channels) float32.
    """
    mean, deviation = np.array(moments).T
    return ((np.arange(256)[:, None] - mean) / deviation).astype(np.float32)


def random_split_order(count: int) -> np.ndarray:
    """Order examples as torch's random_split with seed 42 does: (count,) int64."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(42)).numpy()


def choose_rows(seed: int, stream: int, there: int, wanted: int | None, option: str) -> np.ndarray:
    """Choose examples at random, or all of them.

    Args:
        there: number of examples to choose from.
        wanted: number to choose; None for all.
        option: its name, for the error.
    Returns: their indices in rising order, (wanted,).
    Raises: DataError if there are too few.
    """
    if wanted is None:
        return np.arange(there)
    if wanted > there:
        raise DataError(f"{option} is {wanted}, but there are {there} examples to choose from")
    return np.sort(permutation(seed, stream, there)[:wanted])


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
