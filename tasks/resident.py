"""Splits whose inputs are kept on a device, so that a batch is gathered where it is used.

All tasks fit into the memory of a GPU. Of a batch, only the indices are copied to it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common.tensors import send
from tasks.base import NOT_SCORED, Batch, Dataset, Split
from tasks.labelled import LabelledTokens
from tasks.next_token import NextToken
from tasks.splits import PackedTokens, Pixels
from tasks.unlabelled import Unlabelled

CopyArray = Callable[[np.ndarray], Tensor]
"""A function that copies an array to the device, the same array only once."""


def put_on_device(dataset: Dataset, device: torch.device, limit: float) -> Dataset:
    """Put the inputs of a data set on a device.

    Splits of a kind that is not known here stay where they are.

    Args:
        dataset: the data set; returned unchanged if it is larger than the limit.
        device: where the inputs are put.
        limit: most bytes to put there.
    """
    copies: dict[int, Tensor] = {}

    def copy_array(array: np.ndarray) -> Tensor:
        if id(array) not in copies:
            whole = array.astype(np.int32) if array.dtype.itemsize > 1 else np.array(array)
            copies[id(array)] = torch.from_numpy(whole).to(device)
        return copies[id(array)]

    arrays = {id(a): a.size * max(1, 4 * (a.dtype.itemsize > 1)) for a in _arrays(dataset)}
    if sum(arrays.values()) > limit:
        return dataset
    splits = {name: copy_split(split, copy_array) for name, split in dataset.splits.items()}
    return dataclasses.replace(dataset, splits=splits)


def _arrays(dataset: Dataset) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    for split in dataset.splits.values():
        copy_split(split, lambda array: found.append(array) or torch.empty(0))
    return found


@functools.singledispatch
def copy_split(split: Split, copy_array: CopyArray) -> Split:
    """Return a split of the same examples with inputs where `copy_array` puts them."""
    return split


class Resident(Split):
    """The examples of another split, whose inputs are kept on a device."""

    def __init__(self, split: Any) -> None:
        self.split = split
        self.lengths = split.lengths
        self.text_bytes = split.text_bytes
        self.ideal_bits = split.ideal_bits

    @functools.cached_property
    def labels(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleVariableOverride]
        """See `Split.labels`."""
        return self.split.labels

    def metadata(self) -> dict[str, np.ndarray]:
        """See `Split.metadata`."""
        return self.split.metadata()

    def count_targets(self, indices: np.ndarray) -> int | None:
        """See `Split.count_targets`."""
        return self.split.count_targets(indices)


class ResidentTokens(Resident):
    """Token sequences on a device."""

    split: PackedTokens

    def __init__(self, split: PackedTokens, copy_array: CopyArray) -> None:
        super().__init__(split)
        self.tokens = copy_array(split.sequences.tokens)

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        sequences, device = self.split.sequences, self.tokens.device
        which = self.split.which[indices]
        lengths = sequences.lengths[which.ravel()]
        ends = np.cumsum(lengths)
        shifts = sequences.offsets[which.ravel()] - (ends - lengths)
        shift, counts, stops, labels = _copy_together(
            (shifts, lengths, ends, self.labels[indices]), device
        )
        total = int(ends[-1])
        shift = shift.repeat_interleave(counts, output_size=total)
        # End tokens are not stored, so the place of the last one may be past the end.
        where = (torch.arange(total, device=device) + shift).clamp_(max=len(self.tokens) - 1)
        ids = self.tokens[where].long() + sequences.first_id
        if sequences.end_token is not None:
            ids[stops - 1] = sequences.end_token
        return Batch(ids, torch.from_numpy(lengths.reshape(which.shape)), labels)


class ResidentPixels(Resident):
    """Images on a device."""

    split: Pixels

    def __init__(self, split: Pixels, copy_array: CopyArray) -> None:
        super().__init__(split)
        self.images = copy_array(split.images)
        self.scale = None
        if split.scale is not None:
            self.scale = torch.from_numpy(split.scale).to(self.images.device)
        self.order = None
        if split.order is not None:
            self.order = torch.from_numpy(split.order).to(self.images.device)

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        which, labels = _copy_together(
            (self.split.which[indices], self.labels[indices]), self.images.device
        )
        levels = self.images[which]
        if self.order is not None:
            levels = levels[:, self.order]
        levels = levels.flatten(0, 1).long()
        if self.scale is None:
            inputs = levels[:, 0]
        else:
            inputs = torch.take_along_dim(self.scale, levels, dim=0)
        return Batch(inputs, torch.from_numpy(self.lengths[indices][:, None]), labels)


class ResidentNextToken(Resident):
    """Windows of a long sequence of tokens on a device."""

    split: NextToken

    def __init__(self, split: NextToken, copy_array: CopyArray) -> None:
        super().__init__(split)
        self.tokens = copy_array(split.tokens)

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        where, lengths, unscored = self.split.input_positions(indices)
        inside, outside = _copy_together((where, unscored), self.tokens.device)
        labels = self.tokens[inside + 1].long()
        labels[outside] = NOT_SCORED
        return Batch(self.tokens[inside].long(), torch.from_numpy(lengths[:, None]), labels)


class ResidentLabelledTokens(Resident):
    """Token sequences on a device, with the labels of their positions."""

    split: LabelledTokens

    def __init__(self, split: LabelledTokens, copy_array: CopyArray) -> None:
        super().__init__(split)
        self.tokens = copy_array(split.sequences.tokens)
        self.position_labels = copy_array(split.position_labels)

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        found = self.split.find(indices)
        positions, targets, scored = _copy_together(
            (found.positions, found.targets, found.scored), self.tokens.device
        )
        return Batch(
            self.tokens[positions].long(),
            torch.from_numpy(found.lengths[:, None]),
            self.position_labels[targets].long(),
            scored,
            torch.from_numpy(found.counts),
        )


def _copy_together(arrays: Sequence[np.ndarray], device: torch.device) -> Sequence[Tensor]:
    """Copy arrays (count,) of whole numbers to a device, as int64, in one asynchronous copy."""
    joined = np.concatenate([array.astype(np.int64, copy=False) for array in arrays])
    return send(torch.from_numpy(joined), device).split([len(array) for array in arrays])


@copy_split.register
def _(split: PackedTokens, copy_array: CopyArray) -> Split:
    return ResidentTokens(split, copy_array)


@copy_split.register
def _(split: NextToken, copy_array: CopyArray) -> Split:
    return ResidentNextToken(split, copy_array)


@copy_split.register
def _(split: LabelledTokens, copy_array: CopyArray) -> Split:
    return ResidentLabelledTokens(split, copy_array)


@copy_split.register
def _(split: Unlabelled, copy_array: CopyArray) -> Split:
    return split.over(copy_split(split.split, copy_array))


@copy_split.register
def _(split: Pixels, copy_array: CopyArray) -> Split:
    return ResidentPixels(split, copy_array)
