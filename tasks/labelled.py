"""Splits whose targets are labels of single positions; other positions are not scored."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch

from tasks.base import NOT_SCORED, Batch, Split, TaskInfo
from tasks.next_token import list_places
from tasks.splits import Sequences


@dataclass(frozen=True)
class Places:
    """Where a batch of examples and of their labels is."""

    positions: np.ndarray
    """(positions,) its inputs among all tokens."""
    lengths: np.ndarray
    """(batch,) positions of each example."""
    targets: np.ndarray
    """(targets,) its labelled positions among all tokens."""
    scored: np.ndarray
    """(targets,) the same among the positions of the batch."""
    counts: np.ndarray
    """(batch,) labelled positions of each example."""


class LabelledTokens(Split):
    """Token sequences stored end to end, some of whose positions have a label.

    Args:
        tokens: (positions,) unsigned integers.
        offsets: (examples + 1,) int64; example i is tokens[offsets[i]:offsets[i + 1]].
        position_labels: (positions,) signed integers: a class, or NOT_SCORED.
        fields: metadata of the examples, see `Split.metadata`.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        offsets: np.ndarray,
        position_labels: np.ndarray,
        fields: dict[str, np.ndarray] | None = None,
    ) -> None:
        self.sequences = Sequences(tokens, offsets)
        self.lengths = self.sequences.lengths
        self.position_labels = position_labels
        self._fields = fields or {}

    @functools.cached_property
    def labels(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleVariableOverride]
        """(targets,) classes of the scored positions, example after example."""
        return self.position_labels[self._targets]

    def metadata(self) -> dict[str, np.ndarray]:
        """See `Split.metadata`."""
        return self._fields

    def check(self, info: TaskInfo) -> None:
        """See `Split.check`."""
        self.sequences.check(info)
        if not len(self) or self.lengths.min() < 1 or self.lengths.max() > info.max_length:
            found = (
                f" of {self.lengths.min()} to {self.lengths.max()} positions" if len(self) else ""
            )
            raise ValueError(
                f"{len(self)} sequences{found}, expected at least one, and each of 1 to "
                f"{info.max_length} positions"
            )
        given, positions = self.position_labels, self.sequences.tokens.shape
        if given.dtype.kind != "i" or given.shape != positions:
            raise ValueError(
                f"labels are {given.dtype} {given.shape}, expected signed integers {positions}"
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
        places = self.find(indices)
        return Batch(
            torch.from_numpy(self.sequences.tokens[places.positions].astype(np.int64)),
            torch.from_numpy(places.lengths[:, None]),
            torch.from_numpy(self.position_labels[places.targets].astype(np.int64)),
            torch.from_numpy(places.scored),
            torch.from_numpy(places.counts),
        )

    def count_targets(self, indices: np.ndarray) -> int:
        """See `Split.count_targets`."""
        return int((self._ends[indices + 1] - self._ends[indices]).sum())

    @functools.cached_property
    def _targets(self) -> np.ndarray:
        """(targets,) indices of all positions that have a label."""
        return np.flatnonzero(self.position_labels != NOT_SCORED)

    @functools.cached_property
    def _ends(self) -> np.ndarray:
        """(examples + 1,) how many labels there are before each example."""
        return np.searchsorted(self._targets, self.sequences.offsets)

    def find(self, indices: np.ndarray) -> Places:
        """Say where the inputs and labels of a batch are stored.

        Args:
            indices: (batch,) examples.
        """
        offsets, lengths = self.sequences.offsets[indices], self.lengths[indices]
        counts = self._ends[indices + 1] - self._ends[indices]
        targets = self._targets[list_places(self._ends[indices], counts)]
        shifts = np.cumsum(lengths) - lengths - offsets
        return Places(
            positions=list_places(offsets, lengths),
            lengths=lengths,
            targets=targets,
            scored=targets + np.repeat(shifts, counts),
            counts=counts,
        )
