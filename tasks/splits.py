"""The examples of a split: sequences stored end to end, or images of one size.

What lies in `Split.stored` is gathered where it is: on the CPU, or on a GPU once
`tasks.resident.put_on_device` has put it there. Of a batch, only indices are copied.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from common.tensors import send
from tasks.base import Batch, Split, TaskInfo
from tasks.random_words import permutation

MOST_CHECKED = 2**27
"""Most tokens that are compared with the vocabulary when a data set is opened."""
PIXEL_STREAM = 2**63
"""Stream of random words that orders pixels; other streams of a seed choose and order examples."""


def as_tensor(array: np.ndarray) -> Tensor:
    """Share the memory of an array, which may be read-only: a split never writes to its inputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def send_together(arrays: Sequence[np.ndarray], device: torch.device) -> Sequence[Tensor]:
    """Copy arrays (count,) of whole numbers to a device, as int64, in one asynchronous copy."""
    joined = np.concatenate([array.astype(np.int64, copy=False) for array in arrays])
    return send(torch.from_numpy(joined), device).split([len(array) for array in arrays])


def list_places(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """List `counts` places from each of `starts` on, (windows,) both: (places,) int64."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - counts), counts)


@dataclass(frozen=True)
class Sequences:
    """Sequences stored end to end."""

    tokens: np.ndarray
    """(total,) unsigned integers; for `PackedReals`, (total, channels) float32."""
    offsets: np.ndarray
    """(sequences + 1,) int64; sequence i is tokens[offsets[i]:offsets[i + 1]]."""
    first_id: int = 0
    """Number added to stored tokens to get ids: bytes become ids from 1 on, 0 is the padding."""
    end_token: int | None = None
    """Id appended to every sequence, if any."""

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Positions of each sequence, (sequences,) int64, end token included."""
        return np.diff(self.offsets) + (self.end_token is not None)

    def check_offsets(self) -> None:
        """Raise a ValueError unless sequences lie one after another in what is stored."""
        offsets = self.offsets
        if offsets.ndim != 1 or offsets.dtype.kind not in "iu":
            raise ValueError(f"offsets are {offsets.dtype} {offsets.shape}")
        is_whole = len(offsets) and not offsets[0] and offsets[-1] == len(self.tokens)
        if not is_whole or (np.diff(offsets) < 0).any():
            raise ValueError("a sequence ends outside what is stored")

    @functools.cached_property
    def highest_id(self) -> int:
        """The highest id; of many tokens only the first ones are looked at.

        Raises: ValueError for sequences that do not lie within the tokens.
        """
        tokens = self.tokens
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            raise ValueError(f"tokens are {tokens.dtype} {tokens.shape}")
        self.check_offsets()
        return int(tokens[:MOST_CHECKED].max(initial=0)) + self.first_id

    def check_tokens(self, info: TaskInfo) -> None:
        """Raise a ValueError unless all sequences are whole, and all tokens in the vocabulary."""
        if info.vocab_size is not None and self.highest_id >= info.vocab_size:
            raise ValueError(
                f"token {self.highest_id} is outside the vocabulary of {info.vocab_size}"
            )


class PackedTokens(Split):
    """Examples of one sequence of tokens each, or of several.

    Args:
        sequences: the sequences of this split, or of all splits.
        labels: (examples,) unsigned integers.
        which: (examples, towers) indices of each example's sequences; None where example i
            is sequence i.
    """

    stored = ("tokens",)

    def __init__(
        self, sequences: Sequences, labels: np.ndarray, which: np.ndarray | None = None
    ) -> None:
        self.sequences = sequences
        self.tokens = as_tensor(sequences.tokens)
        self.labels = labels
        self.which = np.arange(len(labels))[:, None] if which is None else which
        self.lengths = sequences.lengths[self.which].max(axis=1)

    def check(self, info: TaskInfo) -> None:
        """See `Split.check`."""
        super().check(info)
        self.sequences.check_tokens(info)

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        which, sequences = self.which[indices], self.sequences
        lengths = sequences.lengths[which.ravel()]
        ends = np.cumsum(lengths)
        shifts = sequences.offsets[which.ravel()] - (ends - lengths)
        shift, counts, stops, labels = send_together(
            (shifts, lengths, ends, self.labels[indices]), self.tokens.device
        )
        total = int(ends[-1])
        where = torch.arange(total, device=shift.device)
        where += shift.repeat_interleave(counts, output_size=total)
        inputs = self._read(where, stops)
        return Batch(inputs, torch.from_numpy(lengths.reshape(which.shape)), labels)

    def _read(self, where: Tensor, stops: Tensor) -> Tensor:
        """Read the inputs (positions,) of sequences that end before `stops` in the batch."""
        # End tokens are not stored, so the place of the last one may be past the end.
        stored = self.tokens[where.clamp_(max=len(self.tokens) - 1)]
        ids = stored.long() + self.sequences.first_id
        if self.sequences.end_token is not None:
            ids[stops - 1] = self.sequences.end_token
        return ids


class PackedReals(PackedTokens):
    """Examples of one sequence of real numbers each, or of several."""

    def check(self, info: TaskInfo) -> None:
        """See `Split.check`."""
        Split.check(self, info)
        values = self.sequences.tokens
        if values.dtype != np.float32 or values.shape[1:] != (info.channels,):
            raise ValueError(f"values are {values.dtype} {values.shape}")
        self.sequences.check_offsets()

    def _read(self, where: Tensor, stops: Tensor) -> Tensor:
        """Read the inputs (positions, channels)."""
        return self.tokens[where]


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

    stored = ("images", "scale", "order")
    order: Tensor | None = None
    """(positions,) int64, the pixel that each position reads; None for raster order."""

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        which: np.ndarray,
        scale: np.ndarray | None,
        permutation_seed: int | None = None,
    ) -> None:
        self.images = as_tensor(images)
        self.labels = labels
        self.which = which
        self.scale = None if scale is None else as_tensor(scale)
        self.lengths = np.full(len(labels), images.shape[1], dtype=np.int64)
        if permutation_seed is not None:
            order = permutation(permutation_seed, PIXEL_STREAM, images.shape[1])
            self.order = as_tensor(order.astype(np.int64))

    def check(self, info: TaskInfo) -> None:
        """See `Split.check`."""
        super().check(info)
        images = self.images
        shape = (info.max_length, 1 if info.channels is None else info.channels)
        if images.dtype != torch.uint8 or images.shape[1:] != shape:
            raise ValueError(f"images are {images.dtype} {tuple(images.shape)}")
        if self.which.min() < 0 or self.which.max() >= len(images):
            raise ValueError("an image is listed that is not there")

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        which, labels = send_together((self.which[indices], self.labels[indices]),
                                      self.images.device)  # fmt: skip
        levels = self.images[which]
        if self.order is not None:
            levels = levels[:, self.order]
        levels = levels.flatten(0, 1).long()
        if self.scale is None:
            inputs = levels[:, 0]
        else:
            inputs = torch.take_along_dim(self.scale, levels, dim=0)
        return Batch(inputs, torch.from_numpy(self.lengths[indices][:, None]), labels)


def scale(moments: list[tuple[float, float]]) -> np.ndarray:
    """Tabulate what each level from 0 to 255 becomes when it is standardised.

    Args:
        moments: mean and standard deviation of the levels of each channel.
    Returns: (256, channels) float32.
    """
    mean, deviation = np.array(moments).T
    return ((np.arange(256)[:, None] - mean) / deviation).astype(np.float32)
