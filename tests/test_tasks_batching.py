"""Batches and the order in which training visits them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.base import Batch
from tasks.order import BatchOrder, evaluation_batches
from tasks.random_words import RandomWords, permutation
from tasks.splits import PackedTokens, Sequences


def packed(end_token: int | None) -> tuple[PackedTokens, list[list[int]]]:
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, 9, size=n).tolist() for n in rng.integers(1, 20, size=30)]
    tokens = np.array([token for row in rows for token in row], dtype=np.uint8)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    labels = np.arange(30, dtype=np.uint8) % 7
    full = [row + ([end_token] if end_token else []) for row in rows]
    return PackedTokens(Sequences(tokens, offsets, 0, end_token), labels), full


@pytest.mark.parametrize("end_token", [None, 16])
def test_batches_hold_the_rows_in_order(end_token: int | None) -> None:
    split, rows = packed(end_token)
    indices = np.array([29, 3, 3, 0, 17])
    batch = split.batch(indices)
    assert batch.inputs.tolist() == [token for i in indices for token in rows[i]]
    assert batch.lengths[:, 0].tolist() == [len(rows[i]) for i in indices]
    assert batch.labels.tolist() == [i % 7 for i in indices]
    middle = batch.rows(1, 4)
    assert middle.inputs.tolist() == [token for i in indices[1:4] for token in rows[i]]
    assert middle.labels.tolist() == batch.labels[1:4].tolist()
    assert batch.inputs.dtype == torch.int64


@pytest.mark.parametrize("channels", [None, 3])
@pytest.mark.parametrize("lengths", [[[5], [1], [3]], [[2, 5], [4, 1]], [[4], [4]], [[6]]])
def test_padded_batches_hold_each_sequence_before_zeros(
    lengths: list[list[int]], channels: int | None
) -> None:
    flat = [n for row in lengths for n in row]
    shape = (sum(flat),) if channels is None else (sum(flat), channels)
    packed = torch.arange(1, 1 + sum(shape[:1]) * (channels or 1)).reshape(shape)
    labels = torch.zeros(len(lengths), dtype=torch.int64)
    inputs, mask = Batch(packed, torch.tensor(lengths), labels).padded()
    towers = () if len(lengths[0]) == 1 else (len(lengths[0]),)
    assert mask.shape == (len(lengths), *towers, max(flat))
    assert inputs.shape == (*mask.shape, *shape[1:])
    assert (inputs.dtype, mask.dtype) == (packed.dtype, torch.bool)
    assert torch.equal(inputs[mask], packed)
    rows = inputs.flatten(0, len(towers))
    for row, own, sequence in zip(
        rows, mask.flatten(0, len(towers)), packed.split(flat), strict=True
    ):
        assert own.tolist() == [k < len(sequence) for k in range(max(flat))]
        assert torch.equal(row[: len(sequence)], sequence)
        assert not row[len(sequence) :].any()


@settings(deadline=None, max_examples=50)
@given(
    count=st.integers(1, 400),
    batch_size=st.integers(1, 50),
    seed=st.integers(0, 2**32),
    bucketing=st.booleans(),
)
def test_every_epoch_holds_every_example_once(
    count: int, batch_size: int, seed: int, bucketing: bool
) -> None:
    lengths = np.random.default_rng(seed).integers(1, 100, size=count)
    order = BatchOrder(lengths, batch_size, seed=seed, bucketing=bucketing)
    for epoch in (0, 3):
        batches = order.epoch(epoch)
        assert len(batches) == order.batches_per_epoch
        assert sorted(np.concatenate(batches).tolist()) == list(range(count))
        assert all(len(batch) <= batch_size for batch in batches)


@pytest.mark.parametrize("bucketing", [False, True])
def test_order_depends_on_seed_and_epoch_alone(bucketing: bool) -> None:
    lengths = np.random.default_rng(0).integers(1, 100, size=500)

    def order(seed: int) -> BatchOrder:
        return BatchOrder(lengths, 16, seed=seed, bucketing=bucketing)

    walked, jumped = order(1), order(1)
    steps = [walked.at(step) for step in range(80)]
    assert np.array_equal(jumped.at(75), steps[75])
    assert np.array_equal(jumped.at(2), steps[2])
    assert not np.array_equal(order(2).at(0), steps[0])
    assert not np.array_equal(steps[0], steps[order(1).batches_per_epoch])


def test_bucketing_batches_like_lengths() -> None:
    lengths = np.random.default_rng(0).integers(1, 1000, size=4000)
    batches = BatchOrder(lengths, 20, seed=0, bucketing=True).epoch(0)
    spread = np.median([lengths[b].max() - lengths[b].min() for b in batches])
    assert spread < 50
    means = [lengths[b].mean() for b in batches[:20]]
    assert np.std(means) > 100, "the batches must come in random order"


def test_evaluation_drops_no_tail() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, size=103)
    batches = evaluation_batches(lengths, 10)
    assert sorted(np.concatenate(batches).tolist()) == list(range(103))


def test_random_words_stay_what_they_are() -> None:
    """Data sets and orders are made from these: they must never change."""
    assert RandomWords(0, 0).draw(3).tolist() == WORDS
    assert permutation(7, 1, 8).tolist() == PERMUTATION
    split = RandomWords(3, 5)
    first = np.concatenate([split.draw(4), split.draw(6)])
    assert np.array_equal(first, RandomWords(3, 5).draw(10))


WORDS = [149215387, 49592932, 2628306354]
PERMUTATION = [3, 1, 6, 2, 5, 4, 0, 7]
