"""The examples of a split: sequences stored end to end.

What lies in `Split.stored` is gathered where it is: on the CPU, or on a GPU once `put_on_device`
has put it there. Of a batch, only indices are copied.
"""

import copy
import dataclasses
import functools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lra.common.tensors import send
from lra.tasks.base import Dataset, Split, TaskInfo
from lra.tasks.batch import Batch
from lra.tasks.goals import NOT_SCORED, ExampleClass, ExampleNumbers, Goal, PositionLabels

MOST_CHECKED = 2**27
"""Most tokens that are compared with the vocabulary when a data set is opened."""
CONVERTED = {torch.uint16: torch.int32, torch.uint32: torch.int32}
"""Types that a GPU hardly supports, and those that they become there."""
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32}
"""Types that older versions of torch cannot index on a CPU, and signed types of the same size."""


def as_tensor(array: np.ndarray) -> Tensor:
    """Share the memory of an array, which may be read-only: a split never writes to its inputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def take(stored: Tensor, where: Tensor) -> Tensor:
    """Take stored inputs by their indices, (positions,).

    Returns: (positions,) int64 tokens, or (positions, channels) float32.
    """
    indexable = stored.view(SIGNED.get(stored.dtype, stored.dtype))
    taken = indexable[where].view(stored.dtype)
    return taken if taken.is_floating_point() else taken.long()


def send_together(device: torch.device, *arrays: np.ndarray) -> tuple[Tensor, ...]:
    """Copy arrays (count,) of whole numbers to a device, as int64, in one asynchronous copy."""
    joined = np.concatenate([array.astype(np.int64, copy=False) for array in arrays])
    return send(torch.from_numpy(joined), device).split([len(array) for array in arrays])


def list_places(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """List `counts` places from each of `starts` on, (windows,) both: (places,) int64."""
    before = np.cumsum(counts) - counts
    return np.arange(counts.sum()) + np.repeat(starts - before, counts)


def check_tokens(tokens: np.ndarray, info: TaskInfo, first_id: int = 0) -> None:
    """Raise a ValueError for tokens outside the vocabulary; of many, only the first are compared.

    Args:
        first_id: number added to stored tokens to get ids.
    """
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise ValueError(f"tokens are {tokens.dtype} {tokens.shape}")
    highest = int(tokens[:MOST_CHECKED].max(initial=0)) + first_id
    if info.vocab_size is not None and highest >= info.vocab_size:
        raise ValueError(f"token {highest} is outside the vocabulary of {info.vocab_size}")


@dataclass(frozen=True)
class Sequences:
    """Sequences stored end to end."""

    tokens: np.ndarray
    """(total,) unsigned integers, or (total, channels) float32."""
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

    def check(self, info: TaskInfo) -> None:
        """Raise a ValueError unless all sequences are whole, and their inputs as expected."""
        tokens, offsets = self.tokens, self.offsets
        if offsets.ndim != 1 or offsets.dtype.kind not in "iu":
            raise ValueError(f"offsets are {offsets.dtype} {offsets.shape}")
        is_whole = len(offsets) and not offsets[0] and offsets[-1] == len(tokens)
        if not is_whole or (np.diff(offsets) < 0).any():
            raise ValueError("a sequence ends outside what is stored")
        if info.channels is None:
            check_tokens(tokens, info, self.first_id)
        elif tokens.dtype != np.float32 or tokens.shape[1:] != (info.channels,):
            raise ValueError(f"values are {tokens.dtype} {tokens.shape}")


class PackedSequences(Split):
    """Examples of one sequence each, or of several.

    Args:
        sequences: the sequences of this split, or of all splits.
        labels: (examples,) whole numbers, or what else the goal takes.
        which: (examples, towers) indices of each example's sequences; None where example i
            is sequence i.
        fields: see `Split.metadata`.
        goal: what the labels are for.
    """

    stored = ("tokens",)

    def __init__(
        self,
        sequences: Sequences,
        labels: np.ndarray,
        which: np.ndarray | None = None,
        fields: Mapping[str, np.ndarray] | None = None,
        *,
        goal: type[Goal] = ExampleClass,
    ) -> None:
        self.sequences = sequences
        self.goal = goal
        self.tokens = as_tensor(sequences.tokens)
        self.labels = labels
        self.which = np.arange(len(sequences.offsets) - 1)[:, None] if which is None else which
        self.lengths = sequences.lengths[self.which].max(axis=1)
        self.fields = fields or {}

    def check(self, info: TaskInfo) -> None:
        """See `Split.check`."""
        super().check(info)
        self.sequences.check(info)

    def list_keys(self) -> list[bytes]:
        """Return bytes for every example that are equal where the sequences are."""
        tokens, offsets = self.sequences.tokens, self.sequences.offsets
        return [
            np.diff(offsets[first : last + 2]).tobytes()
            + tokens[offsets[first] : offsets[last + 1]].tobytes()
            for first, last in self.which[:, [0, -1]].tolist()
        ]

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        chosen = self.labels[indices]
        if issubclass(self.goal, ExampleNumbers):
            inputs, lengths = self._gather(indices)
            return Batch.of_examples(inputs, lengths, send(as_tensor(chosen), inputs.device))
        inputs, lengths, labels = self._gather(indices, chosen)
        return Batch.of_examples(inputs, lengths, labels)

    def _gather(self, indices: np.ndarray, *arrays: np.ndarray) -> tuple[Tensor, ...]:
        """Gather inputs and lengths of examples, and send arrays to where the inputs are."""
        which, sequences = self.which[indices], self.sequences
        lengths = sequences.lengths[which.ravel()]
        ends = np.cumsum(lengths)
        shifts = sequences.offsets[which.ravel()] - (ends - lengths)
        shift, counts, stops, *sent = send_together(
            self.tokens.device, shifts, lengths, ends, *arrays
        )
        total = int(ends[-1])
        where = torch.arange(total, device=shift.device)
        where += shift.repeat_interleave(counts, output_size=total)
        # End tokens are not stored, so the place of the last one may be past the end.
        inputs = take(self.tokens, where.clamp_(max=len(self.tokens) - 1))
        if inputs.ndim == 1:
            inputs += sequences.first_id
        if sequences.end_token is not None:
            inputs[stops - 1] = sequences.end_token
        return inputs, torch.from_numpy(lengths.reshape(which.shape)), *sent


class LabelledTokens(PackedSequences):
    """Token sequences, some of whose positions have a label; the others are not scored.

    Args:
        sequences: the sequences of this split.
        position_labels: (positions,) signed integers: a class, or NOT_SCORED.
        fields: see `Split.metadata`.
        distances: see `Split.distances`.
    """

    def __init__(
        self,
        sequences: Sequences,
        position_labels: np.ndarray,
        fields: Mapping[str, np.ndarray] | None = None,
        distances: np.ndarray | None = None,
    ) -> None:
        self.distances = distances
        self.position_labels = position_labels
        self._targets = np.flatnonzero(position_labels != NOT_SCORED)
        self._ends = np.searchsorted(self._targets, sequences.offsets)
        labels = position_labels[self._targets]
        super().__init__(sequences, labels, fields=fields, goal=PositionLabels)

    def check(self, info: TaskInfo) -> None:
        """See `Split.check`."""
        labels = self.position_labels
        if labels.dtype.kind != "i" or labels.shape != self.sequences.tokens.shape:
            raise ValueError(
                f"labels are {labels.dtype} {labels.shape}, expected a signed integer a position"
            )
        super().check(info)
        counts = np.diff(self._ends)
        if not counts.all():
            raise ValueError(f"no position of example {counts.argmin()} is scored")

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        first, lengths = self._ends[indices], self.lengths[indices]
        counts = self._ends[indices + 1] - first
        which = list_places(first, counts)
        shifts = np.cumsum(lengths) - lengths - self.sequences.offsets[indices]
        scored = self._targets[which] + np.repeat(shifts, counts)
        inputs, sizes, labels, scored = self._gather(indices, self.labels[which], scored)
        each = torch.from_numpy(counts)
        return Batch(inputs, sizes, labels, each, each, scored)


def put_on_device(dataset: Dataset, device: torch.device, limit: float) -> Dataset:
    """Put the stored inputs of all splits on a device, each array only once.

    Args:
        dataset: the data set; returned unchanged if it is larger than the limit.
        device: where the inputs are put.
        limit: most bytes to put there.
    """
    stored: dict[Any, Tensor] = {}
    for split in dataset.splits.values():
        _move(split, None, stored)
    kinds = [(x.numel(), CONVERTED.get(x.dtype, x.dtype)) for x in stored.values()]
    if sum(count * kind.itemsize for count, kind in kinds) > limit:
        return dataset
    copies: dict[Any, Tensor] = {}
    splits = {name: _move(split, device, copies) for name, split in dataset.splits.items()}
    return dataclasses.replace(dataset, splits=splits)


def _move(value: Any, device: torch.device | None, copies: dict[Any, Tensor]) -> Any:
    """Copy a tensor, or a split with its stored inputs, and list the copies; None: do not copy.

    Tensors that share an array share a copy.
    """
    if isinstance(value, Split):
        moved = copy.copy(value)
        for name in value.stored:
            setattr(moved, name, _move(getattr(value, name), device, copies))
        return moved
    if value is None:
        return None
    key = value.data_ptr(), value.shape
    if key not in copies:
        there = CONVERTED.get(value.dtype, value.dtype)
        copies[key] = value if device is None else value.to(there).to(device)
    return copies[key]
