"""Batches of examples, and the indices that they are asked for by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from common.errors import UserError, format_value
from common.tensors import send

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Examples packed end to end, without padding."""

    inputs: Tensor
    """(positions,) int64 tokens or (positions, channels) float32, sequence after sequence."""
    lengths: Tensor
    """(batch, towers) int64, positions of each sequence; always on the CPU."""
    labels: Tensor
    """(batch,) int64, one for each example; or (positions,), with NOT_SCORED where a position has
    no label; or (targets,), of the positions in `scored`."""
    scored: Tensor | None = None
    """(targets,) int64 indices of the positions that have a label, in order; None: see `labels`."""
    counts: Tensor | None = None
    """(batch,) int64, how many positions of each example `scored` has; always on the CPU."""

    def to(self, device: torch.device) -> Batch:
        """Copy inputs and labels to a device; copies to a GPU are asynchronous."""
        scored = None if self.scored is None else send(self.scored, device)
        inputs, labels = send(self.inputs, device), send(self.labels, device)
        return Batch(inputs, self.lengths, labels, scored, self.counts)

    @property
    def model_inputs(self) -> tuple[Tensor, ...]:
        """What a model takes: inputs, lengths and, if there are any, the scored positions."""
        found = self.inputs, self.lengths
        return found if self.scored is None else (*found, self.scored)

    @property
    def label_counts(self) -> Tensor:
        """(batch,) int64, how many of `labels` each example has; on the CPU."""
        if self.counts is not None:
            return self.counts
        # Where there are as many labels as positions and examples, each example has one of both.
        is_position = len(self.labels) == len(self.inputs)
        return self.lengths.sum(dim=1) if is_position else self.lengths.new_ones(len(self.lengths))

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
            None if self.scored is None else self.scored[labels] - first,
            None if self.counts is None else counts,
        )


def check_indices(given: Sequence[int] | np.ndarray, count: int) -> np.ndarray:
    """Check indices of examples, (examples,) in any form that NumPy reads: (examples,) int64.

    Raises: UserError for anything but whole numbers from 0 to count - 1.
    """
    try:
        indices = np.asarray(given)
    except Exception:  # NumPy cannot read it
        indices = np.empty(())
    if indices.shape == (0,):
        return np.empty(0, dtype=np.int64)
    is_whole = indices.ndim == 1 and indices.dtype.kind in "iu"
    if is_whole and indices.min() >= 0 and indices.max() < count:
        return indices.astype(np.int64, copy=False)
    raise UserError(
        f"indices: got {' '.join(format_value(given).split())}, expected whole numbers from 0 to "
        f"{count - 1}, in a list, range or array"
    )
