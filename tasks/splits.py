"""The examples of a split: token sequences stored end to end, or images of one size."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch

from tasks.base import Batch, Split, TaskInfo
from tasks.random_words import permutation

MOST_CHECKED = 2**27
"""Most tokens that are compared with the vocabulary when a data set is opened."""
PIXEL_STREAM = 2**63
"""Stream of random words that orders pixels; other streams of a seed choose and order examples."""


@dataclass(frozen=True)
class Sequences:
    """Token sequences stored end to end."""

    tokens: np.ndarray
    """(total,) unsigned integers, no padding in between."""
    offsets: np.ndarray
    """(sequences + 1,) int64; sequence i is tokens[offsets[i]:offsets[i + 1]]."""
    first_id: int = 0
    """Number added to stored tokens to get ids: bytes become ids from 1 on, 0 is the padding."""
    end_token: int | None = None
    """Id appended to every sequence, if any."""

    @functools.cached_property
    def highest_id(self) -> int:
        """The highest id; of many tokens only the first ones are looked at.

        Raises: ValueError for sequences that do not lie within the tokens.
        """
        tokens = self.tokens
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            raise ValueError(f"tokens are {tokens.dtype} {tokens.shape}")
        _check_offsets(self.offsets, len(tokens))
        return int(tokens[:MOST_CHECKED].max(initial=0)) + self.first_id

    def check(self, info: TaskInfo) -> None:
        """Make sure that all sequences lie within the tokens, and all tokens in the vocabulary.

        Raises: ValueError saying what is wrong.
        """
        highest = self.highest_id
        if info.vocab_size is not None and highest >= info.vocab_size:
            raise ValueError(f"token {highest} is outside the vocabulary of {info.vocab_size}")

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Positions of each sequence, (sequences,) int64, end token included."""
        return np.diff(self.offsets) + (self.end_token is not None)

    def gather(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Concatenate some of the sequences.

        Args:
            which: (count,) indices of sequences, in the order wanted.
        Returns: ids (positions,) int64, and lengths (count,).
        """
        lengths = self.lengths[which]
        ends = np.cumsum(lengths)
        # For each position of the batch, the index of its token among the stored ones.
        shift = self.offsets[which] - (ends - lengths)
        where = np.arange(ends[-1]) + np.repeat(shift, lengths)
        if self.end_token is None:
            return self.tokens[where].astype(np.int64) + self.first_id, lengths
        ids = self.tokens[np.minimum(where, len(self.tokens) - 1)].astype(np.int64) + self.first_id
        ids[ends - 1] = self.end_token
        return ids, lengths


@dataclass(frozen=True)
class RealSequences:
    """Sequences of real numbers stored end to end."""

    values: np.ndarray
    """(total, channels) float32."""
    offsets: np.ndarray
    """(sequences + 1,) int64; sequence i is values[offsets[i]:offsets[i + 1]]."""

    def check(self, info: TaskInfo) -> None:
        """Make sure that all sequences lie within the values, with the channels of a task.

        Raises: ValueError saying what is wrong.
        """
        values, offsets = self.values, self.offsets
        if values.dtype != np.float32 or values.shape[1:] != (info.channels,):
            raise ValueError(f"values are {values.dtype} {values.shape}")
        _check_offsets(offsets, len(values))

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Positions of each sequence, (sequences,) int64."""
        return np.diff(self.offsets)

    def gather(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Concatenate some of the sequences.

        Args:
            which: (count,) indices of sequences, in the order wanted.
        Returns: values (positions, channels) float32, and lengths (count,).
        """
        lengths = self.lengths[which]
        ends = np.cumsum(lengths)
        where = np.arange(ends[-1]) + np.repeat(self.offsets[which] - (ends - lengths), lengths)
        return self.values[where], lengths


def _check_offsets(offsets: np.ndarray, total: int) -> None:
    """Raise a ValueError unless sequences with these offsets lie one after another in `total`."""
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu":
        raise ValueError(f"offsets are {offsets.dtype} {offsets.shape}")
    if not len(offsets) or offsets[0] or offsets[-1] != total or (np.diff(offsets) < 0).any():
        raise ValueError("a sequence ends outside what is stored")


class Packed(Split):
    """Examples of one sequence each, or of several.

    Args:
        sequences: the sequences of this split, or of all splits.
        labels: (examples,) unsigned integers.
        which: (examples, towers) indices of each example's sequences; None where example i
            is sequence i.
    """

    def __init__(
        self,
        sequences: Sequences | RealSequences,
        labels: np.ndarray,
        which: np.ndarray | None = None,
    ) -> None:
        self.sequences = sequences
        self.labels = labels
        self.which = np.arange(len(labels))[:, None] if which is None else which
        self.lengths = sequences.lengths[self.which].max(axis=1)

    def check(self, info: TaskInfo) -> None:
        """See `Split.check`."""
        super().check(info)
        self.sequences.check(info)

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        which = self.which[indices]
        inputs, lengths = self.sequences.gather(which.ravel())
        return Batch(
            torch.from_numpy(inputs),
            torch.from_numpy(lengths.reshape(which.shape)),
            torch.from_numpy(self.labels[indices].astype(np.int64)),
        )


class PackedTokens(Packed):
    """Examples of token sequences."""

    sequences: Sequences


class PackedReals(Packed):
    """Examples of sequences of real numbers."""

    sequences: RealSequences


class Pixels(Split):
    """Images of one size, read in raster order or in one random order.

    Args:
        images: (images, positions, channels) uint8, the images of this split, or of all splits.
        labels: (examples,) unsigned integers.
        which: (examples,) index of each example's image.
        scale: (256, channels) float32, the real number that each level becomes; None to take the
            levels as tokens.
        permutation_seed: seed of the random order of pixels, the same for every image; None for
            raster order.
    """

    order: np.ndarray | None = None
    """(positions,) int64, the pixel that each position reads; None for raster order."""

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        which: np.ndarray,
        scale: np.ndarray | None,
        permutation_seed: int | None = None,
    ) -> None:
        self.images = images
        self.labels = labels
        self.which = which
        self.scale = scale
        self.lengths = np.full(len(labels), images.shape[1], dtype=np.int64)
        if permutation_seed is not None:
            self.order = permutation(permutation_seed, PIXEL_STREAM, images.shape[1])

    def check(self, info: TaskInfo) -> None:
        """See `Split.check`."""
        super().check(info)
        images = self.images
        channels = 1 if info.channels is None else info.channels
        if images.dtype != np.uint8 or images.shape[1:] != (info.max_length, channels):
            raise ValueError(f"images are {images.dtype} {images.shape}")
        if self.which.min() < 0 or self.which.max() >= len(images):
            raise ValueError("an image is listed that is not there")

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        levels = self.images[self.which[indices]]
        if self.order is not None:
            levels = levels[:, self.order]
        levels = levels.reshape(-1, self.images.shape[2])
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
    """Tabulate what each level from 0 to 255 becomes when it is standardised.

    Args:
        moments: mean and standard deviation of the levels of each channel.
    Returns: (256, channels) float32.
    """
    mean, deviation = np.array(moments).T
    return ((np.arange(256)[:, None] - mean) / deviation).astype(np.float32)
