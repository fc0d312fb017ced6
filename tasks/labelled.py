"""Splits whose targets are labels of single positions; other positions are not scored."""

from __future__ import annotations

import functools

import numpy as np
import torch

from tasks.base import NOT_SCORED, Batch, Split, TaskInfo
from tasks.splits import Sequences, as_tensor, list_places, send_together


class LabelledTokens(Split):
    """Token sequences stored end to end, some of whose positions have a label.

    Args:
        tokens: (positions,) unsigned integers.
        offsets: (examples + 1,) int64; example i is tokens[offsets[i]:offsets[i + 1]].
        position_labels: (positions,) signed integers: a class, or NOT_SCORED.
        fields: metadata of the examples, see `Split.metadata`.
    """

    stored = ("tokens", "position_labels")

    def __init__(
        self,
        tokens: np.ndarray,
        offsets: np.ndarray,
        position_labels: np.ndarray,
        fields: dict[str, np.ndarray] | None = None,
    ) -> None:
        self.sequences = Sequences(tokens, offsets)
        self.lengths = self.sequences.lengths
        self.given = position_labels
        self.tokens, self.position_labels = as_tensor(tokens), as_tensor(position_labels)
        self._fields = fields or {}

    @functools.cached_property
    def labels(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleVariableOverride]
        """(targets,) classes of the scored positions, example after example."""
        return self.given[self._targets]

    def metadata(self) -> dict[str, np.ndarray]:
        """See `Split.metadata`."""
        return self._fields

    def check(self, info: TaskInfo) -> None:
        """See `Split.check`."""
        self.sequences.check_tokens(info)
        lengths, given = self.lengths, self.given
        if not len(self) or lengths.min() < 1 or lengths.max() > info.max_length:
            raise ValueError(f"sequences are none, or not of 1 to {info.max_length} positions")
        if given.dtype.kind != "i" or given.shape != self.sequences.tokens.shape:
            raise ValueError(
                f"labels are {given.dtype} {given.shape}, expected a signed integer a position"
            )
        is_scored = given != NOT_SCORED
        wrong = given[(given >= info.num_classes) | is_scored & (given < 0)]
        if len(wrong):
            raise ValueError(
                f"a position has label {wrong[0]}, expected a class from 0 to "
                f"{info.num_classes - 1}, or {NOT_SCORED} where nothing is scored"
            )
        scored = np.logical_or.reduceat(is_scored, self.sequences.offsets[:-1])
        if not scored.all():
            raise ValueError(
                f"no position of example {scored.argmin()} is scored; label at least one with a "
                f"class from 0 to {info.num_classes - 1}"
            )

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        offsets, lengths = self.sequences.offsets[indices], self.lengths[indices]
        counts = self._ends[indices + 1] - self._ends[indices]
        targets = self._targets[list_places(self._ends[indices], counts)]
        shifts = np.cumsum(lengths) - lengths - offsets
        places = (list_places(offsets, lengths), targets, targets + np.repeat(shifts, counts))
        where, labelled, scored = send_together(places, self.tokens.device)
        return Batch(
            self.tokens[where].long(),
            torch.from_numpy(lengths[:, None]),
            self.position_labels[labelled].long(),
            scored,
            torch.from_numpy(counts),
        )

    def count_targets(self, indices: np.ndarray) -> int:
        """See `Split.count_targets`."""
        return int((self._ends[indices + 1] - self._ends[indices]).sum())

    @functools.cached_property
    def _targets(self) -> np.ndarray:
        """(targets,) indices of all positions that have a label."""
        return np.flatnonzero(self.given != NOT_SCORED)

    @functools.cached_property
    def _ends(self) -> np.ndarray:
        """(examples + 1,) how many labels there are before each example."""
        return np.searchsorted(self._targets, self.sequences.offsets)
