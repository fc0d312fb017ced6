"""Recall: its law against plain loops, and its segments."""

import itertools
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lra.tasks.base import Dataset
from lra.tasks.generated import GROUP
from lra.tasks.goals import NOT_SCORED
from lra.tasks.random_words import RandomWords
from lra.tasks.recall import (
    Recall,
    Segment,
    draw_different,
    draw_places,
    draw_sequences,
    place_weights,
)


def labels_by_reading(tokens: list[int], pairs: int) -> list[int]:
    """Label a sequence without random filler as a reader does, with a dictionary."""
    value_of = {tokens[2 * i]: tokens[2 * i + 1] for i in range(pairs)}
    assert len(value_of) == pairs and len(set(value_of.values())) == pairs
    later = [value_of.get(token, NOT_SCORED) for token in tokens[2 * pairs :]]
    return [NOT_SCORED] * (2 * pairs) + later


@pytest.mark.parametrize("segment", [Segment(64, 4), Segment(256, 64), Segment(34, 8)])
def test_labels_are_what_a_reader_with_a_dictionary_says(segment: Segment) -> None:
    drawn = draw_sequences(segment, 8192, "zero", RandomWords(3, 5))
    tokens = drawn.tokens.reshape(GROUP, segment.length).tolist()
    labels = drawn.labels.reshape(GROUP, segment.length).tolist()
    for one, expected in zip(tokens[:200], labels[:200], strict=True):
        assert labels_by_reading(one, segment.pairs) == expected
        keys, values = one[: 2 * segment.pairs : 2], one[1 : 2 * segment.pairs : 2]
        assert all(1 <= key < 4096 for key in keys)
        assert all(4096 <= value < 8192 for value in values)
        queries = [place for place, label in enumerate(expected) if label != NOT_SCORED]
        assert sorted(one[place] for place in queries) == sorted(keys), "each key once"
        assert all(place % 2 == 0 for place in queries)
        assert one[2 * segment.pairs :].count(0) == segment.length - 3 * segment.pairs


def test_random_filler_is_uniform_and_moves_nothing_else() -> None:
    zero = draw_sequences(Segment(64, 4), 65, "zero", RandomWords(0, 0))
    random = draw_sequences(Segment(64, 4), 65, "random", RandomWords(0, 0))
    is_filler = zero.tokens == 0
    assert np.array_equal(zero.tokens[~is_filler], random.tokens[~is_filler])
    assert np.array_equal(zero.labels, random.labels)
    counts = np.bincount(random.tokens[is_filler], minlength=65)
    assert len(counts) == 65, "of the whole vocabulary, the filler 0 included"
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert abs(chi_square - 64) < 6 * math.sqrt(2 * 64)


def test_places_are_chosen_one_after_another_by_their_weights() -> None:
    """The shares of all orders, against products of probabilities over what is left."""
    available, count = 5, 3
    drawn = np.concatenate(
        [draw_places(RandomWords(1, stream), available, count) for stream in range(40)]
    )
    found = Counter(map(tuple, drawn.tolist()))
    weights = [place ** (0.01 - 1) for place in range(1, available + 1)]
    orders = list(itertools.permutations(range(available), count))
    assert found.keys() <= set(orders)
    chi_square = 0.0
    for order in orders:
        chance, left = 1.0, sum(weights)
        for place in order:
            chance *= weights[place] / left
            left -= weights[place]
        expected = chance * len(drawn)
        chi_square += (found[order] - expected) ** 2 / expected
    assert abs(chi_square - (len(orders) - 1)) < 6 * math.sqrt(2 * (len(orders) - 1))
    large = place_weights(1000)
    assert large.sum() < 2**32
    assert large / large[0] == pytest.approx(np.arange(1, 1001) ** -0.99, rel=1e-5)


def test_different_numbers_are_uniform_in_any_order() -> None:
    drawn = np.concatenate([draw_different(RandomWords(0, n), 4, 3) for n in range(40)])
    found = Counter(map(tuple, drawn.tolist()))
    orders = list(itertools.permutations(range(4), 3))
    assert found.keys() == set(orders)
    mean = len(drawn) / len(orders)
    chi_square = sum((count - mean) ** 2 / mean for count in found.values())
    assert abs(chi_square - 23) < 6 * math.sqrt(2 * 23)


def count_segments(dataset: Dataset, split: str) -> dict[str, int]:
    return Counter(dataset.splits[split].metadata()["segment"].tolist())


def test_one_segment_is_the_default(tmp_path: Path) -> None:
    task = Recall(length=32, pairs=8, train=300, val=20, test=70)
    dataset = task.prepare(tmp_path)
    assert count_segments(dataset, "test") == {"32x8": 70}
    assert set(dataset.splits["test"].metadata()["pairs"]) == {8}
    assert dataset.baselines["random value of the sequence"] == pytest.approx(12.5)
    assert dataset.baselines["random value"] == pytest.approx(100 / 4096)
    rows = {
        tuple(row)
        for split in dataset.splits.values()
        for row in split.batch(np.arange(len(split))).inputs.reshape(-1, 32).tolist()
    }
    assert len(rows) == 390, "splits are drawn separately"


@pytest.mark.parametrize("longest", [1024, 256])
def test_the_mixture_has_the_published_segments(longest: int, tmp_path: Path) -> None:
    names = ["64x4", "64x8", "64x16", "128x32", "256x64", "512x128", "1024x256"]
    tested = [name for name in names if int(name.partition("x")[0]) <= longest]
    many = len(tested)
    task = Recall(mixture=True, longest=longest, train=180, val=2 * many, test=10 * many)
    assert task.info.max_length == longest
    dataset = task.prepare(tmp_path)
    assert count_segments(dataset, "train") == {
        "64x4": 100, "128x8": 20, "256x16": 20, "256x32": 20, "256x64": 20,
    }  # fmt: skip
    assert count_segments(dataset, "test") == dict.fromkeys(tested, 10)
    assert count_segments(dataset, "val") == dict.fromkeys(tested, 2)
    shares = [1 / int(name.partition("x")[2]) for name in tested]
    expected = 100 * sum(shares) / len(shares)
    assert dataset.baselines["random value of the sequence"] == pytest.approx(expected)
