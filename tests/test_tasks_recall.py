"""Recall: its law against plain loops, its segments, and what it refuses."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.errors import DataError
from lra.runtime.errors import UserError
from requested import compose_task
from tasks.base import NOT_SCORED, Dataset
from tasks.generated import GROUP
from tasks.labelled import LabelledTokens
from tasks.random_words import RandomWords
from tasks.recall import Recall
from tasks.recall.law import (
    Fill,
    Law,
    Segment,
    draw,
    draw_different,
    draw_places,
    place_weights,
)


def law(vocab_size: int = 8192, fill: Fill = "zero") -> Law:
    return Law(vocab_size=vocab_size, fill=fill)


def small(**options: Any) -> Recall:
    return Recall(**{"train": 300, "val": 20, "test": 70, **options})


def labels_by_reading(tokens: list[int], pairs: int) -> list[int]:
    """Label a sequence without random filler as a reader does, with a dictionary."""
    value_of = {tokens[2 * i]: tokens[2 * i + 1] for i in range(pairs)}
    assert len(value_of) == pairs and len(set(value_of.values())) == pairs
    later = [value_of.get(token, NOT_SCORED) for token in tokens[2 * pairs :]]
    return [NOT_SCORED] * (2 * pairs) + later


@pytest.mark.parametrize("segment", [Segment(64, 4), Segment(256, 64), Segment(34, 8)])
def test_labels_are_what_a_reader_with_a_dictionary_says(segment: Segment) -> None:
    drawn = draw(law(), segment, 3, 5)
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
        rest = [token for place, token in enumerate(one) if place >= 2 * segment.pairs]
        assert rest.count(0) == segment.length - 3 * segment.pairs


def test_random_filler_is_uniform_and_moves_nothing_else() -> None:
    segment = Segment(64, 4)
    zero, random = (draw(law(64 + 1, fill), segment, 0, 0) for fill in ("zero", "random"))
    is_filler = zero.tokens == 0
    assert np.array_equal(zero.tokens[~is_filler], random.tokens[~is_filler])
    assert np.array_equal(zero.labels, random.labels)
    filler = random.tokens[is_filler]
    counts = np.bincount(filler, minlength=65)
    assert len(counts) == 65, "of the whole vocabulary, the filler 0 included"
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert abs(chi_square - 64) < 6 * math.sqrt(2 * 64)


def test_places_are_chosen_one_after_another_by_their_weights() -> None:
    """The shares of all orders, against products of probabilities over what is left."""
    available, count, groups = 5, 3, 40
    drawn = np.concatenate(
        [draw_places(RandomWords(1, stream), available, count) for stream in range(groups)]
    )
    found = Counter(map(tuple, drawn.tolist()))
    weights = [0.01 * place ** (0.01 - 1) for place in range(1, available + 1)]
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


def test_weights_are_a_power_law() -> None:
    for available in (1, 7, 112, 1000):
        weights = place_weights(available)
        assert weights.sum() < 2**32
        ratios = weights / weights[0]
        assert ratios == pytest.approx(np.arange(1, available + 1) ** -0.99, rel=1e-5)


def test_different_numbers_are_uniform_in_any_order() -> None:
    drawn = np.concatenate([draw_different(RandomWords(0, n), 4, 3) for n in range(40)])
    found = Counter(map(tuple, drawn.tolist()))
    orders = list(itertools.permutations(range(4), 3))
    assert found.keys() == set(orders)
    mean = len(drawn) / len(orders)
    chi_square = sum((count - mean) ** 2 / mean for count in found.values())
    assert abs(chi_square - 23) < 6 * math.sqrt(2 * 23)


def test_the_law_draws_the_same_for_good() -> None:
    """Digests of what the first version drew: other ones would be other data."""
    found = []
    for fill in ("zero", "random"):
        drawn = draw(law(fill=fill), Segment(128, 16), 7, 2)
        content = drawn.tokens.astype("<u2").tobytes() + drawn.labels.astype("<i4").tobytes()
        found.append(hashlib.sha256(content).hexdigest()[:16])
    assert found == ["4e7c2898b7108b5f", "5d3abe05fcb21908"]


def test_splits_segments_groups_and_seeds_are_different() -> None:
    kinds = [(0, 0), (0, 1), (0, 1 << 32), (0, 1 << 40), (1, 0)]
    drawn = [draw(law(), Segment(64, 16), *kind).labels for kind in kinds]
    for one, other in itertools.combinations(drawn, 2):
        both = (one != NOT_SCORED) & (other != NOT_SCORED)
        assert (one == other)[both].mean() < 0.01


def segments_of(dataset: Dataset, split: str) -> dict[str, int]:
    names, counts = np.unique(dataset.splits[split].metadata()["segment"], return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def test_one_segment_is_the_default(tmp_path: Path) -> None:
    task = small(length=32, pairs=8)
    dataset = task.prepare(tmp_path)
    assert dataset.sizes == {"train": 300, "val": 20, "test": 70}
    test = dataset.splits["test"]
    assert isinstance(test, LabelledTokens)
    assert segments_of(dataset, "test") == {"32x8": 70}
    assert set(test.metadata()["pairs"]) == {8}
    assert dataset.baselines["random value of the sequence"] == pytest.approx(12.5)
    assert dataset.baselines["random value"] == pytest.approx(100 / 4096)
    assert task.info.num_classes == task.info.vocab_size == 8192
    rows = {
        tuple(row)
        for split in dataset.splits.values()
        for row in split.batch(np.arange(len(split))).inputs.reshape(-1, 32).tolist()
    }
    assert len(rows) == 390, "splits are drawn separately"
    again = small(length=32, pairs=8).prepare(tmp_path / "again")
    assert again.fingerprint == dataset.fingerprint


def test_the_mixture_has_the_published_segments(tmp_path: Path) -> None:
    task = Recall(mixture=True, train=180, val=14, test=70)
    assert task.info.max_length == 1024
    dataset = task.prepare(tmp_path)
    assert segments_of(dataset, "train") == {
        "64x4": 100, "128x8": 20, "256x16": 20, "256x32": 20, "256x64": 20,
    }  # fmt: skip
    tested = ["64x4", "64x8", "64x16", "128x32", "256x64", "512x128", "1024x256"]
    assert segments_of(dataset, "test") == dict.fromkeys(tested, 10)
    assert segments_of(dataset, "val") == dict.fromkeys(tested, 2)
    names = dataset.splits["test"].metadata()["segment"]
    lengths = np.array([int(name.partition("x")[0]) for name in names])
    assert np.array_equal(lengths, dataset.splits["test"].lengths)
    assert dataset.baselines["random value of the sequence"] == pytest.approx(
        100 * sum(1 / int(name.partition("x")[2]) for name in tested) / 7
    )
    assert len(task.verify(dataset)) == 2


def test_the_mixture_is_cut_at_a_length(tmp_path: Path) -> None:
    task = Recall(mixture=True, longest=256, train=180, val=5, test=10)
    assert task.info.max_length == 256
    dataset = task.prepare(tmp_path)
    assert segments_of(dataset, "test") == dict.fromkeys(
        ["64x4", "64x8", "64x16", "128x32", "256x64"], 2
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pairs": 17}, "pairs is 17, too many for length 64.*at most 16 pairs, or a length.* 68"),
        ({"length": 63}, "length is 63, expected an even number"),
        (
            {"length": 128, "vocab_size": 128},
            "vocab_size is 128, expected more than the length 128; use a larger",
        ),
        ({"mixture": "true", "pairs": 8}, "pairs 8 have no effect with mixture"),
        ({"mixture": "true", "vocab_size": 512}, "vocab_size is 512, expected more than the.*1024"),
        ({"mixture": "true", "longest": 63, "train": 9}, "longest is 63, expected at least 64"),
        ({"mixture": "true", "val": 6}, "val is 6, expected at least 7, so that each of its 7"),
        ({"longest": 64}, "longest 64 has no effect without mixture"),
        ({"fill": "ones"}, "valid: random, zero"),
        ({"pairs": 0}, "pairs.*0"),
    ],
)
def test_bad_options_get_one_line(options: dict[str, Any], words: str) -> None:
    overrides = [f"task.{name}={value}" for name, value in options.items()]
    with pytest.raises(UserError, match=words) as raised:
        compose_task("recall", overrides=overrides)
    assert "\n" not in str(raised.value)


def test_fresh_data_may_be_longer_and_keeps_the_pairs() -> None:
    options = {"length": 64, "pairs": 4, "mixture": False, "longest": 1024, "data_seed": 4}
    longer = Recall.fresh(options, length=128, examples=9)
    task = Recall(**{**options, **longer})
    assert task.counts == {"train": 1000, "val": 1, "test": 9} and task.data_seed == 5
    assert task.shares["test"] == {Segment(128, 4): 1}
    mixed = {**options, "mixture": True}
    same = Recall(**{**mixed, **Recall.fresh(mixed, length=None, examples=70)})
    assert len(same.shares["test"]) == 7 and same.counts["test"] == 70


def test_verification_draws_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator that would draw other places than those that are stored."""
    task = small()
    dataset = task.prepare(tmp_path)
    monkeypatch.setattr("tasks.recall.law.POWER", 1.0)
    with pytest.raises(DataError, match="train examples are not what their law draws"):
        task.verify(dataset)


@pytest.mark.parametrize(
    "options",
    [{}, {"length": 32}, {"length": 1024, "pairs": 256}, {"length": 32, "vocab_size": 70}],
)
def test_the_advice_gives_a_mixture_that_can_be_made(options: dict[str, Any]) -> None:
    flags = Recall(**options).advice.partition(": ")[2].split("--set task.")[1:]
    advised = {key: json.loads(value) for key, value in (flag.split("=") for flag in flags)}
    assert Recall(**{**options, **advised}).advice == ""
    assert len(Recall(**{**options, **advised}).shares["test"]) > 1
