"""Batches of examples, and the order in which training and evaluation visit the examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lra.common.errors import UserError, format_value
from lra.common.tensors import send
from lra.tasks.random_words import permutation

if TYPE_CHECKING:
    import torch
    from torch import Tensor

POOL_BATCHES = 50
"""Bucketing sorts by length within pools of this many batches."""


@dataclass(frozen=True)
class Batch:
    """Examples packed end to end, without padding."""

    inputs: Tensor
    """(positions,) int64 tokens or (positions, channels) float32, sequence after sequence."""
    lengths: Tensor
    """(batch, towers) int64, positions of each sequence; always on the CPU."""
    labels: Tensor
    """(labels, ...) of examples, of positions, or of the positions in `scored`; see the task's goal
    (tasks/goals.py)."""
    label_counts: Tensor
    """(batch,) int64, how many of `labels` each example has; always on the CPU, as the next."""
    target_counts: Tensor
    """(batch,) int64, how many of those are targets."""
    scored: Tensor | None = None
    """(labels,) int64 indices of the positions that labels are of, in order. None: labels are of
    all positions, or of examples."""

    @classmethod
    def of_examples(cls, inputs: Tensor, lengths: Tensor, labels: Tensor) -> Batch:
        """Make a batch whose examples have a label each."""
        ones = lengths.new_ones(len(lengths))
        return cls(inputs, lengths, labels, ones, ones)

    def __len__(self) -> int:
        return len(self.lengths)

    def to(self, device: torch.device) -> Batch:
        """Copy inputs and labels to a device; copies to a GPU are asynchronous."""
        scored = None if self.scored is None else send(self.scored, device)
        inputs, labels = send(self.inputs, device), send(self.labels, device)
        return replace(self, inputs=inputs, labels=labels, scored=scored)

    @property
    def model_inputs(self) -> tuple[Tensor, ...]:
        """What a model takes: inputs, lengths and, if there are any, the scored positions."""
        inputs = self.inputs, self.lengths
        return inputs if self.scored is None else (*inputs, self.scored)

    def padded(self) -> tuple[Tensor, Tensor]:
        """Pad the sequences with zeros to the longest one of the batch.

        `inputs[mask]` is the packed form again, and `logits[mask]` that of the logits of positions;
        with `scored`, `logits[mask][scored]` are those of the labels.

        Returns: inputs, (batch, length) int64 tokens or (batch, length, channels) float32, and a
            mask, (batch, length) bool, True where a position is real; (batch, 2, length) for pairs.
        """
        import torch

        lengths = self.lengths.squeeze(1) if self.lengths.shape[1] == 1 else self.lengths
        longest = int(lengths.max()) if len(lengths) else 0
        mask = (torch.arange(longest) < lengths[..., None]).to(self.inputs.device)
        inputs = self.inputs.new_zeros(*mask.shape, *self.inputs.shape[1:])
        inputs[mask] = self.inputs
        return inputs, mask

    def rows(self, start: int, stop: int) -> Batch:
        """Take a range of examples."""
        first = int(self.lengths[:start].sum())
        count = int(self.lengths[start:stop].sum())
        first_label = int(self.label_counts[:start].sum())
        counts = self.label_counts[start:stop]
        labels = slice(first_label, first_label + int(counts.sum()))
        return Batch(
            self.inputs[first : first + count],
            self.lengths[start:stop],
            self.labels[labels],
            counts,
            self.target_counts[start:stop],
            None if self.scored is None else self.scored[labels] - first,
        )


def check_indices(indices: Sequence[int] | np.ndarray, count: int) -> np.ndarray:
    """Check indices of examples, (examples,) in any form that NumPy reads: (examples,) int64.

    Raises: UserError for anything but whole numbers from 0 to count - 1.
    """
    try:
        array = np.asarray(indices)
    except Exception:  # NumPy cannot read it
        array = np.empty(())
    if array.shape == (0,):
        return np.empty(0, dtype=np.int64)
    is_whole = array.ndim == 1 and array.dtype.kind in "iu"
    if is_whole and array.min() >= 0 and array.max() < count:
        return array.astype(np.int64, copy=False)
    raise UserError(
        f"indices: got {' '.join(format_value(indices).split())}, expected whole numbers from 0 to "
        f"{count - 1}, in a list, range or array"
    )


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
        self.full_batch = min(batch_size, len(lengths))
        """Examples of every batch but the last one of an epoch."""
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
