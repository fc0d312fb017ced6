"""Splits on a device hold the batches of those they were made from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from common.errors import UserError
from tasks.base import NOT_SCORED, Dataset, Split
from tasks.labelled import LabelledTokens
from tasks.next_token import NextToken, windows
from tasks.resident import Resident, ResidentTokens, put_on_device
from tasks.splits import PackedTokens, Pixels, Sequences, scale

CPU = torch.device("cpu")
CUDA = pytest.param(torch.device("cuda"), marks=pytest.mark.gpu)


def tokens_of(kind: type[np.integer], end_token: int | None, towers: int) -> PackedTokens:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 20, size=30)
    tokens = rng.integers(1, 200, size=lengths.sum()).astype(kind)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    which = rng.integers(0, 30, size=(40, towers))
    which[0] = 29  # its end token has no place after it
    labels = np.arange(40, dtype=np.uint8) % 7
    return PackedTokens(Sequences(tokens, offsets, 1, end_token), labels, which)


def pixels_of(channels: int, table: np.ndarray | None, permutation: int | None = None) -> Pixels:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(12, 16, channels)).astype(np.uint8)
    return Pixels(images, np.arange(9) % 2, rng.integers(0, 12, size=9), table, permutation)


def windows_of(kind: type[np.integer]) -> NextToken:
    tokens = np.random.default_rng(0).integers(0, 200, size=101).astype(kind)
    starts, lengths, skipped = windows(101, 16, 7)
    return NextToken(tokens, starts, lengths, skipped=skipped)


def dataset_of(split: Split) -> Dataset:
    return Dataset(
        splits={"train": split, "val": split}, source="made", fingerprint="", baselines={},
        folder=Path(),
    )  # fmt: skip


def labelled_of(kind: type[np.integer]) -> LabelledTokens:
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 20, size=30))])
    tokens = rng.integers(0, 100, size=offsets[-1])
    labels = np.where(rng.random(offsets[-1]) < 0.5, NOT_SCORED, tokens % 7)
    return LabelledTokens(tokens.astype(np.uint8), offsets, labels.astype(kind))


SPLITS = {
    "bytes": tokens_of(np.uint8, None, 1),
    "ended": tokens_of(np.uint8, 250, 1),
    "wide": tokens_of(np.uint16, 250, 2),
    "levels": pixels_of(1, None),
    "colours": pixels_of(3, scale([(100.0, 50.0)] * 3)),
    "permuted": pixels_of(3, scale([(100.0, 50.0)] * 3), 7),
    "windows": windows_of(np.uint8),
    "words": windows_of(np.uint16),
    "labelled": labelled_of(np.int8),
    "labelled with many classes": labelled_of(np.int32),
}


@pytest.mark.parametrize("device", [CPU, CUDA])
@pytest.mark.parametrize("name", SPLITS)
def test_batches_are_the_same(name: str, device: torch.device) -> None:
    split = SPLITS[name]
    moved = put_on_device(dataset_of(split), device, limit=1e9).splits["train"]
    assert isinstance(moved, Resident)
    for indices in (np.array([0]), np.array([5, 0, 5, 8]), np.arange(len(split))):
        got, wanted = moved.batch(indices), split.batch(indices)
        assert got.inputs.device.type == device.type
        assert got.lengths.device == CPU
        for key in ("inputs", "lengths", "labels"):
            a, b = getattr(got, key).cpu(), getattr(wanted, key)
            assert a.dtype == b.dtype
            assert torch.equal(a, b)
    assert np.array_equal(moved.labels, split.labels)
    assert np.array_equal(moved.lengths, split.lengths)


@pytest.mark.parametrize("is_moved", [False, True])
@pytest.mark.parametrize("name", SPLITS)
def test_indices_of_a_batch_are_converted_and_checked(name: str, is_moved: bool) -> None:
    split: Split = SPLITS[name]
    if is_moved:
        split = put_on_device(dataset_of(split), CPU, limit=1e9).splits["train"]
    wanted = split.batch(np.arange(2))
    same: list[Any] = [range(2), [0, 1], (0, 1), torch.arange(2), np.arange(2, dtype=np.uint8)]
    for indices in same:
        batch = split.batch(indices)
        assert torch.equal(batch.inputs, wanted.inputs) and torch.equal(batch.labels, wanted.labels)
    is_first = np.arange(len(split)) == 0
    wrong: list[Any] = [[], (), "ab", [0.5], ["a"], 1, None, [-1], [len(split)], [[0]], is_first]
    for indices in wrong:
        with pytest.raises(UserError, match=r"indices: got .*, expected"):
            split.batch(indices)


def test_what_is_known_of_the_text_and_its_law_stays_known() -> None:
    split = windows_of(np.uint8)
    split.text_bytes, split.ideal_bits = 100, np.ones((len(split), 16))
    moved = put_on_device(dataset_of(split), CPU, limit=1e9).splits["train"]
    assert moved.text_bytes == split.text_bytes
    assert moved.ideal_bits is split.ideal_bits


def test_arrays_of_several_splits_are_placed_once() -> None:
    split = SPLITS["ended"]
    dataset = put_on_device(dataset_of(split), CPU, limit=len(split.sequences.tokens))
    first, second = (dataset.splits[name] for name in ("train", "val"))
    assert isinstance(first, ResidentTokens) and isinstance(second, ResidentTokens)
    assert first.tokens is second.tokens


def test_what_does_not_fit_or_cannot_stays() -> None:
    split = SPLITS["ended"]
    dataset = dataset_of(split)
    assert put_on_device(dataset, CPU, limit=len(split.sequences.tokens) - 1) is dataset

    class Own(Split):
        def assemble(self, indices: np.ndarray) -> object:  # type: ignore[override]
            raise NotImplementedError

    own = Own()
    kept = put_on_device(replace(dataset, splits={"train": own}), CPU, limit=1e9)
    assert kept.splits["train"] is own
