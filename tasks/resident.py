"""Data sets whose inputs are kept on a device, so that a batch is gathered where it is used."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from tasks.base import Dataset, Split

CONVERTED = {torch.uint16: torch.int32, torch.uint32: torch.int32}
"""Types that a GPU hardly supports, and those that they become there."""


def put_on_device(dataset: Dataset, device: torch.device, limit: float) -> Dataset:
    """Put the stored inputs of all splits on a device, each array only once.

    Args:
        dataset: the data set; returned unchanged if it is larger than the limit.
        device: where the inputs are put.
        limit: most bytes to put there.
    """
    stored = {_key(tensor): tensor for split in dataset.splits.values() for tensor in _all(split)}
    types = {key: CONVERTED.get(tensor.dtype, tensor.dtype) for key, tensor in stored.items()}
    if sum(tensor.numel() * types[key].itemsize for key, tensor in stored.items()) > limit:
        return dataset
    copies = {key: tensor.to(types[key]).to(device) for key, tensor in stored.items()}

    def move(split: Split) -> Split:
        moved = copy.copy(split)
        for name in split.stored:
            value = getattr(split, name)
            if value is not None:
                new = move(value) if isinstance(value, Split) else copies[_key(value)]
                setattr(moved, name, new)
        return moved

    splits = {name: move(split) for name, split in dataset.splits.items()}
    return dataclasses.replace(dataset, splits=splits)


def _all(split: Split) -> Iterator[Tensor]:
    """List the stored inputs of a split."""
    for value in (getattr(split, name) for name in split.stored):
        if isinstance(value, Split):
            yield from _all(value)
        elif value is not None:
            yield value


def _key(tensor: Tensor) -> tuple[int, torch.Size]:
    """Return what tensors have in common that share an array."""
    return tensor.data_ptr(), tensor.shape
