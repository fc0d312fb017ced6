"""Batches of every kind of split, on a device or not, and the order in which training visits them.

What a batch must hold is written out example by example here.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lra.common.errors import UserError
from lra.tasks.base import Dataset, Split, TaskInfo
from lra.tasks.batch import Batch, BatchOrder, evaluation_batches
from lra.tasks.goals import NOT_SCORED, ExampleClass, PositionLabels
from lra.tasks.next_token import TokenWindows, windows
from lra.tasks.pixels import Pixels, scale
from lra.tasks.random_words import RandomWords, permutation
from lra.tasks.splits import (
    LabelledTokens,
    PackedSequences,
    Sequences,
    put_on_device,
)

CPU = torch.device("cpu")
DEVICES = [None, CPU, pytest.param(torch.device("cuda"), marks=pytest.mark.gpu)]
RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(1, 20, size=30)
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)])
TOKENS = RNG.integers(0, 200, size=OFFSETS[-1])
REALS = RNG.random((OFFSETS[-1], 3), dtype=np.float32)
LABELS = np.where(RNG.random(OFFSETS[-1]) < 0.5, NOT_SCORED, TOKENS % 7)
LABELS[OFFSETS[:-1]] = 3
WHICH = RNG.integers(0, 30, size=(40, 2))
WHICH[0] = 29  # its end token has no place after it
IMAGES = RNG.integers(0, 256, size=(12, 16, 3)).astype(np.uint8)
MOMENTS = scale([(100.0, 50.0)] * 3)
INFO = TaskInfo(name="made", goal=ExampleClass(200), vocab_size=200, max_length=20)

Example = tuple[list[Any], list[int], list[int]]
"""The inputs of an example, the positions of each of its sequences, and its labels."""


def sequence(i: int) -> list[int]:
    return TOKENS[OFFSETS[i] : OFFSETS[i + 1]].tolist()


def packed(kind: str, end_token: int | None, first_id: int, towers: int) -> tuple[Split, Any]:
    which = WHICH[:, :towers]
    sequences = Sequences(TOKENS.astype(kind), OFFSETS, first_id, end_token)
    end = [] if end_token is None else [end_token]

    def example(i: int) -> Example:
        found = [[token + first_id for token in sequence(k)] + end for k in which[i]]
        return [token for one in found for token in one], [len(one) for one in found], [i % 7]

    return PackedSequences(sequences, np.arange(40, dtype=np.uint8) % 7, which), example


def reals() -> tuple[Split, Any]:
    def example(i: int) -> Example:
        return REALS[OFFSETS[i] : OFFSETS[i + 1]].tolist(), [LENGTHS[i]], [i % 7]

    return PackedSequences(Sequences(REALS, OFFSETS), np.arange(30) % 7), example


def pixels(channels: int, table: np.ndarray | None, seed: int | None) -> tuple[Split, Any]:
    which = np.arange(9) * 5 % 12
    order = list(range(16)) if seed is None else permutation(seed, 2**63, 16).tolist()

    def example(i: int) -> Example:
        levels = IMAGES[which[i]][order, :channels]
        if table is None:
            return levels[:, 0].tolist(), [16], [i % 2]
        return [[table[x, c] for c, x in enumerate(row)] for row in levels], [16], [i % 2]

    return Pixels(IMAGES[:, :, :channels].copy(), np.arange(9) % 2, which, table, seed), example


def next_tokens(kind: str) -> tuple[Split, Any]:
    tokens = TOKENS[:101].astype(kind)
    starts, lengths, skipped = windows(101, 16, 7)

    def example(i: int) -> Example:
        a, b = starts[i], starts[i] + lengths[i]
        labels = [NOT_SCORED] * skipped[i] + tokens[a + 1 + skipped[i] : b + 1].tolist()
        return tokens[a:b].tolist(), [b - a], labels

    return TokenWindows(tokens, starts, lengths, skipped=skipped), example


def labelled(kind: str) -> tuple[Split, Any]:
    def example(i: int) -> Example:
        labels = LABELS[OFFSETS[i] : OFFSETS[i + 1]]
        return sequence(i), [LENGTHS[i]], labels[labels != NOT_SCORED].tolist()

    sequences = Sequences(TOKENS.astype(np.uint8), OFFSETS)
    return LabelledTokens(sequences, LABELS.astype(kind)), example


SPLITS: dict[str, tuple[Split, Callable[[int], Example]]] = {
    "bytes": packed("u1", None, 1, 1),
    "end tokens": packed("u1", 250, 0, 1),
    "pairs": packed("u2", 250, 1, 2),
    "real numbers": reals(),
    "levels": pixels(1, None, None),
    "colours, permuted": pixels(3, MOMENTS, 7),
    "windows": next_tokens("u1"),
    "windows of many words": next_tokens("u4"),
    "labelled": labelled("i1"),
    "labelled, many classes": labelled("i4"),
}


def dataset_of(split: Split) -> Dataset:
    splits = {"train": split, "val": split}
    return Dataset(splits=splits, source="own", fingerprint="", baselines={}, folder=Path())


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("name", SPLITS)
def test_batches_hold_their_examples(name: str, device: torch.device | None) -> None:
    split, example = SPLITS[name]
    if device is not None:
        moved = put_on_device(dataset_of(split), device, limit=1e9)
        split, other = moved.splits["train"], moved.splits["val"]
        assert all(getattr(split, key) is getattr(other, key) for key in split.stored)
    for indices in ([0], [5, 0, 5, 8], range(len(split))):
        batch = split.batch(indices)
        examples = [example(i) for i in indices]
        inputs, labels = ([x for one in examples for x in one[k]] for k in (0, 2))
        assert batch.inputs.cpu().numpy().tolist() == np.array(inputs, batch_type(batch)).tolist()
        assert batch.lengths.tolist() == [one[1] for one in examples]
        assert batch.labels.tolist() == labels
        assert batch.lengths.device == CPU and batch.labels.dtype == torch.int64
        if batch.scored is not None:
            given = [p for i in indices for p in LABELS[OFFSETS[i] : OFFSETS[i + 1]]]
            assert batch.scored.tolist() == np.flatnonzero(np.array(given) >= 0).tolist()
        scored = sum(label != NOT_SCORED for label in labels)
        assert int(batch.target_counts.sum()) == scored
        if len(examples) == 4:
            middle = batch.rows(1, 3)
            assert middle.labels.tolist() == [x for one in examples[1:3] for x in one[2]]
            assert len(middle.inputs) == sum(len(one[0]) for one in examples[1:3])


def batch_type(batch: Batch) -> type:
    return np.float32 if batch.inputs.is_floating_point() else np.int64


def test_indices_of_a_batch_are_converted_and_checked() -> None:
    split, _ = SPLITS["bytes"]
    wanted = split.batch(np.arange(2))
    same: list[Any] = [range(2), [0, 1], (0, 1), torch.arange(2), np.arange(2, dtype=np.uint8)]
    for indices in same:
        assert torch.equal(split.batch(indices).inputs, wanted.inputs)
    wrong: list[Any] = [[], "ab", [0.5], 1, None, [-1], [40], [[0]], np.arange(40) == 0]
    for indices in wrong:
        with pytest.raises(UserError, match=r"indices: got .*, expected"):
            split.batch(indices)


def test_what_does_not_fit_a_device_stays() -> None:
    split, _ = SPLITS["bytes"]
    dataset = dataset_of(split)
    assert put_on_device(dataset, CPU, limit=len(TOKENS) - 1) is dataset
    assert put_on_device(dataset, CPU, limit=len(TOKENS)) is not dataset


@pytest.mark.parametrize("channels", [None, 3])
@pytest.mark.parametrize("lengths", [[[5], [1], [3]], [[2, 5], [4, 1]]])
def test_padded_batches_hold_each_sequence_before_zeros(
    lengths: list[list[int]], channels: int | None
) -> None:
    flat = [n for row in lengths for n in row]
    shape = (sum(flat),) if channels is None else (sum(flat), channels)
    packed = torch.arange(1, 1 + sum(shape[:1]) * (channels or 1)).reshape(shape)
    labels = torch.zeros(len(lengths), dtype=torch.int64)
    inputs, mask = Batch.of_examples(packed, torch.tensor(lengths), labels).padded()
    towers = () if len(lengths[0]) == 1 else (len(lengths[0]),)
    assert mask.shape == (len(lengths), *towers, max(flat))
    assert torch.equal(inputs[mask], packed) and not inputs[~mask].any()
    for row, own, one in zip(
        inputs.flatten(0, len(towers)), mask.flatten(0, len(towers)), packed.split(flat),
        strict=True,
    ):  # fmt: skip
        assert own.tolist() == [k < len(one) for k in range(max(flat))]
        assert torch.equal(row[: len(one)], one)


@pytest.mark.parametrize("stride", [None, 1, 3])
@pytest.mark.parametrize("total", [2, 9, 61])
def test_each_token_but_the_first_is_scored_once(total: int, stride: int | None) -> None:
    starts, lengths, skipped = windows(total, 8, stride)
    split = TokenWindows(TOKENS[:total].astype(np.uint8), starts, lengths, skipped=skipped)
    split.check(INFO)
    assert np.array_equal(split.labels, TOKENS[1:total])


def with_label(position: int, label: int) -> np.ndarray:
    labels = LABELS.copy()
    labels[position] = label
    return labels


def of_window(**changes: Any) -> TokenWindows:
    arrays = {"starts": np.array([0]), "lengths": np.array([8]), "skipped": np.array([0])}
    return TokenWindows(**{"tokens": TOKENS[:61].astype(np.uint8), **arrays, **changes})


def of_labels(labels: np.ndarray, offsets: np.ndarray = OFFSETS) -> LabelledTokens:
    return LabelledTokens(Sequences(TOKENS.astype(np.uint8), offsets), labels)


WRONG: list[tuple[Split, str]] = [
    (packed("u1", 250, 1, 1)[0], "token 200 is outside the vocabulary of 200"),
    (PackedSequences(Sequences(TOKENS, OFFSETS[:-1]), LABELS[:29] * 0), "ends outside"),
    (PackedSequences(Sequences(TOKENS, OFFSETS), np.full(30, 200)), "outside 0 to 199"),
    (PackedSequences(Sequences(REALS, OFFSETS), np.zeros(30, int)), r"float32 \(\d+, 3\)"),
    (of_window(starts=np.array([54])), "ends outside"),
    (of_window(lengths=np.array([21])), "not of 1 to 20"),
    (of_window(skipped=np.array([8])), "no target"),
    (of_labels(with_label(1, 200)), "outside 0 to 199"),
    (of_labels(with_label(1, -1)), "outside 0 to 199"),
    (of_labels(np.where(np.arange(len(LABELS)) < LENGTHS[0], NOT_SCORED, LABELS)), "of example 0"),
    (of_labels(LABELS, np.array([0, len(TOKENS)])), "expected 1 to 20"),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_what_does_not_hold_is_named(case: int) -> None:
    split, words = WRONG[case]
    goal = PositionLabels(200) if isinstance(split, LabelledTokens) else INFO.goal
    with pytest.raises(ValueError, match=words):
        split.check(replace(INFO, goal=goal))


@settings(deadline=None, max_examples=30)
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
    for batches in (order.epoch(0), order.epoch(3), evaluation_batches(lengths, batch_size)):
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


def test_random_words_stay_what_they_are() -> None:
    """Data sets and orders are made from these: they must never change."""
    assert RandomWords(0, 0).draw(3).tolist() == [149215387, 49592932, 2628306354]
    assert permutation(7, 1, 8).tolist() == [3, 1, 6, 2, 5, 4, 0, 7]
