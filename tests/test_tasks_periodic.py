"""Periodic: the law, the ideal predictor against brute force, the task."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.errors import DataError
from lra.runtime.errors import UserError
from requested import compose_task
from tasks.base import Dataset
from tasks.manifest import file_facts
from tasks.next_token import NextToken
from tasks.periodic import Periodic
from tasks.periodic.ideal import ideal_bits
from tasks.periodic.law import GROUP, Law, choose_periods, draw

DEFAULT = Periodic(sequence_length=256).law


def small(**options: Any) -> Periodic:
    given = {"sequence_length": 64, "train": 150, "val": 20, "test": 70, **options}
    return Periodic(**given)


@pytest.fixture(scope="module")
def task() -> Periodic:
    return small()


@pytest.fixture(scope="module")
def dataset(task: Periodic, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return task.prepare(tmp_path_factory.mktemp("periodic"))


def examples_of(law: Law, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    groups = [draw(law, seed, 0, group) for group in range(-(-count // GROUP))]
    tokens = np.concatenate([group.tokens for group in groups])
    return tokens[:count], np.concatenate([group.periods for group in groups])[:count]


@pytest.mark.parametrize(
    ("length", "dividing", "other"),
    [
        (512, (4, 8, 16, 32, 64), (5, 9, 17, 33, 65)),
        (1000, (4, 8, 20, 40, 100), (6, 9, 21, 41, 101)),
        (840, (4, 8, 20, 40, 84), (9, 11, 22, 41, 85)),  # 5 to 8 divide 840, too
        (49, (), ()),
        (32, (4,), (5,)),
        (31, (), ()),
    ],
)
def test_periods_are_as_documented(
    length: int, dividing: tuple[int, ...], other: tuple[int, ...]
) -> None:
    assert choose_periods(length, "dividing") == dividing
    assert choose_periods(length, "other") == other
    assert choose_periods(length, "both") == tuple(sorted(dividing + other))
    assert not any(length % period for period in dividing)
    assert all(length % period for period in other)


def test_tokens_are_those_of_a_word_but_for_noise() -> None:
    drawn = draw(DEFAULT, 3, 1, 2)
    assert drawn.tokens.shape == (GROUP, DEFAULT.length + 1)
    for tokens, period, is_replaced in zip(
        drawn.tokens, drawn.periods, drawn.is_replaced, strict=True
    ):
        for start in range(period):
            kept = tokens[start::period][~is_replaced[start::period]]
            others = tokens[start::period][is_replaced[start::period]]
            assert len(set(kept)) <= 1 and not set(kept) & set(others)


def test_noise_periods_and_tokens_are_uniform() -> None:
    groups = [draw(DEFAULT, 0, 0, group) for group in range(40)]
    count = len(groups) * GROUP
    replaced = np.concatenate([group.is_replaced for group in groups])
    assert replaced.mean() == pytest.approx(0.1, abs=5 * math.sqrt(0.09 / replaced.size))
    assert replaced.mean(axis=0).std() == pytest.approx(math.sqrt(0.09 / count), rel=0.3)
    tokens = np.concatenate([group.tokens for group in groups])
    for first, second in (
        (tokens[:, 0], tokens[:, 3]),
        (tokens[replaced][:-1], tokens[replaced][1:]),
    ):
        pairs = np.bincount(16 * first + second, minlength=256)
        chi_square = ((pairs - pairs.mean()) ** 2 / pairs.mean()).sum()
        assert abs(chi_square - 255) < 6 * math.sqrt(2 * 255)
    periods = np.concatenate([group.periods for group in groups])
    found, counts = np.unique(periods, return_counts=True)
    assert tuple(found) == DEFAULT.periods
    assert np.abs(counts - count / 8).max() < 5 * math.sqrt(count / 8)


def test_the_law_draws_the_same_for_good() -> None:
    """A digest of what the first version drew: another one would be other data."""
    drawn = draw(DEFAULT, 7, 2, 1)
    digest = hashlib.sha256(
        drawn.tokens.astype("<u2").tobytes() + drawn.periods.astype("<u4").tobytes()
    )
    assert digest.hexdigest()[:16] == "91879d20e6351616"


def test_splits_seeds_and_groups_are_different() -> None:
    kinds = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    drawn = [draw(DEFAULT, *kind).tokens for kind in kinds]
    for one, other in itertools.combinations(drawn, 2):
        assert (one == other).mean() == pytest.approx(1 / 16, abs=0.01)


def test_more_examples_begin_with_the_same(tmp_path: Path, dataset: Dataset) -> None:
    more = small(train=200, test=3).prepare(tmp_path)
    for split in ("train", "test"):
        few, many = sorted((dataset.splits[split], more.splits[split]), key=len)
        rows = np.arange(len(few))
        assert few.batch(rows).inputs.equal(many.batch(rows).inputs)


def brute_force(tokens: np.ndarray, law: Law) -> np.ndarray:
    """Sum the probabilities of the first 1, 2, ... tokens over all periods and all words."""
    total = np.zeros(len(tokens))
    for period in law.periods:
        words = np.array(list(itertools.product(range(law.vocab_size), repeat=period)))
        repeated = words[:, np.arange(len(tokens)) % period]
        chances = np.where(repeated == tokens, 1 - law.noise, law.replacement)
        total += chances.cumprod(axis=1).mean(axis=0) / len(law.periods)
    return total


@pytest.mark.parametrize(
    ("vocab_size", "noise", "periods"),
    [
        (2, 0.1, (1, 2, 3)),
        (2, 0.49, (2, 4)),
        (3, 0.3, (2, 3, 5)),
        (3, 0.0, (2, 3)),
        (2, 0.2, (4, 9)),  # one longer than the example
    ],
)
def test_the_ideal_predictor_is_bayes_rule(
    vocab_size: int, noise: float, periods: tuple[int, ...]
) -> None:
    """Against the sum over all words, on every sequence that the law can draw."""
    law = Law(length=6, vocab_size=vocab_size, noise=noise, periods=periods)
    every = np.array(list(itertools.product(range(vocab_size), repeat=7)))
    chances = np.array([brute_force(one, law) for one in every])
    possible = chances[:, -1] > 0
    expected = -np.diff(np.log2(chances[possible]), axis=1)
    assert ideal_bits(every[possible], law) == pytest.approx(expected, abs=1e-9)
    assert chances[:, -1].sum() == pytest.approx(1)


@pytest.mark.parametrize("noise", [0.0, 1e-300, 0.1, 0.93749])
@pytest.mark.parametrize("length", [1, 4, 11, 100])
def test_probabilities_of_the_next_token_sum_to_one(length: int, noise: float) -> None:
    law = Law(length=length, vocab_size=16, noise=noise, periods=(4, 5, 8))
    for tokens in examples_of(law, 5)[0]:
        with_each = np.tile(tokens, (16, 1))
        with_each[:, -1] = np.arange(16)
        last = ideal_bits(with_each, law)[:, -1]
        assert (last >= 0).all()
        assert (2.0**-last).sum() == pytest.approx(1)


@pytest.mark.parametrize("numbers", [1, 3 * len(DEFAULT.periods) * (DEFAULT.length + 1)])
def test_examples_and_targets_do_not_depend_on_others(
    monkeypatch: pytest.MonkeyPatch, numbers: int
) -> None:
    tokens, _ = examples_of(DEFAULT, 20)
    together = ideal_bits(tokens, DEFAULT)
    monkeypatch.setattr("tasks.periodic.ideal.NUMBERS_A_CHUNK", numbers)
    assert np.array_equal(ideal_bits(tokens, DEFAULT), together)
    assert np.array_equal(ideal_bits(tokens[:, :50], DEFAULT), together[:, :49])


def test_without_noise_nothing_is_needed_once_the_period_is_known() -> None:
    law = Law(length=40, vocab_size=16, noise=0.0, periods=(7,))
    bits = ideal_bits(examples_of(law, 50)[0], law)
    assert bits[:, :6] == pytest.approx(np.full((50, 6), 4.0))
    assert not bits[:, 6:].any()
    both = Law(length=40, vocab_size=16, noise=0.0, periods=(4, 7))
    tokens, periods = examples_of(both, 50)
    assert ideal_bits(tokens, both)[periods == 4][:, 12:] == pytest.approx(0, abs=1e-3)
    assert law.entropy_rate == 0


def test_the_ideal_predictor_comes_down_to_the_entropy_rate() -> None:
    tokens, periods = examples_of(DEFAULT, 2048, seed=5)
    bits = ideal_bits(tokens, DEFAULT)
    rate = DEFAULT.entropy_rate
    by_position = bits.mean(axis=0)
    assert by_position[0] == pytest.approx(4, abs=0.05)
    assert bits.mean() > rate + 0.1
    spread = bits[:, -64:].mean(axis=1).std() / math.sqrt(len(bits))
    for period in DEFAULT.periods:
        late = bits[periods == period][:, -64:].mean()
        # A word of 33 tokens has been seen seven times by then.
        assert rate - 5 * spread * math.sqrt(8) < late < rate + 0.15
    short = bits[periods == 4][:, 128:].mean()
    assert short == pytest.approx(rate, abs=5 * spread * math.sqrt(8))


def test_the_entropy_rate_is_that_of_the_noise() -> None:
    assert Law(length=8, vocab_size=2, noise=0.25, periods=(4,)).entropy_rate == pytest.approx(
        0.25 * 2 + 0.75 * math.log2(4 / 3)
    )
    shares = np.array([0.9, *[0.1 / 15] * 15])
    assert DEFAULT.entropy_rate == pytest.approx(-(shares * np.log2(shares)).sum())


def test_what_a_data_set_says(task: Periodic, dataset: Dataset) -> None:
    assert task.law.periods == (4, 5, 8, 9)
    assert dataset.source == "generated"
    assert dataset.sizes == {"train": 150, "val": 20, "test": 70}
    assert dataset.baseline_bits == {"uniform": 4.0}
    test = dataset.splits["test"]
    assert isinstance(test, NextToken) and test.text_bytes is None
    batch = test.batch(np.arange(70))
    tokens = np.concatenate([batch.inputs.reshape(70, 64), batch.labels.reshape(70, 64)[:, -1:]], 1)
    bits = ideal_bits(tokens, task.law).mean()
    assert dataset.lowest_bits == pytest.approx(
        {"entropy rate": task.law.entropy_rate, "ideal predictor": bits}
    )
    periods = test.metadata()["period"]
    divides = np.where(np.isin(periods, (4, 8)), "yes", "no")
    assert np.array_equal(test.metadata()["divides length"], divides)


def test_large_vocabularies_fit(tmp_path: Path) -> None:
    large = small(vocab_size=2**16, train=70, test=2)
    dataset = large.prepare(tmp_path)
    assert dataset.splits["train"].labels.max() > 2**15
    assert large.verify(dataset)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise": 0.9375}, r"noise is 0.9375, expected at least 0 and below 0.9375"),
        ({"noise": 0.5, "vocab_size": 2}, "below 0.5"),
        ({"noise": -0.1}, r"noise.*-0.1"),
        ({"noise": 1.0}, r"noise.*1.0"),
        ({"vocab_size": 1}, "vocab_size.*1"),
        ({"sequence_length": 31}, "sequence_length is 31, which has no divisor"),
        ({"sequence_length": 509}, "sequence_length is 509, which has no divisor"),
        ({"sequence_length": 256, "periods_of_length": 20}, "periods_of_length is 20"),
        ({"periods": "prime"}, "valid: both, dividing, other"),
    ],
)
def test_bad_options_get_one_line(options: dict[str, Any], words: str) -> None:
    overrides = [f"task.{name}={value}" for name, value in options.items()]
    with pytest.raises(UserError, match=words) as raised:
        compose_task("periodic", overrides=overrides)
    assert "\n" not in str(raised.value)
    assert f"--set {overrides[-1]}" in str(raised.value)


def test_longer_examples_have_the_periods_of_training(tmp_path: Path) -> None:
    options = {
        "sequence_length": 64, "periods": "both", "periods_of_length": None, "data_seed": 4,
    }  # fmt: skip
    assert Periodic.fresh(options, length=None, examples=9) == {
        "data_seed": 5, "train": 1000, "val": 1, "test": 9,
    }  # fmt: skip
    longer = Periodic.fresh(options, length=100, examples=90)
    again = Periodic.fresh({**options, **longer}, length=300, examples=90)
    assert again["periods_of_length"] == longer["periods_of_length"] == 64
    task = Periodic(**{**options, **longer})
    assert task.law.periods == (4, 5, 8, 9) and task.info.max_length == 100
    metadata = task.prepare(tmp_path).splits["test"].metadata()
    # What divides is told by the length that there is.
    assert np.array_equal(
        metadata["divides length"], np.where(np.isin(metadata["period"], (4, 5)), "yes", "no")
    )
    for length in (1, 3, 37):  # of any length, shorter than the periods, too
        assert Periodic(**{**options, **Periodic.fresh(options, length=length, examples=5)})


def forge_tokens(folder: Path) -> None:
    tokens = np.load(folder / "val_tokens.npy")
    tokens[3, 5] ^= 1
    np.save(folder / "val_tokens.npy", tokens)


def forge_periods(folder: Path) -> None:
    np.save(folder / "val_periods.npy", np.load(folder / "val_periods.npy")[::-1])


def forge_bits(folder: Path) -> None:
    np.save(folder / "ideal_predictions.npy", np.load(folder / "ideal_predictions.npy") * 0.99)


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (forge_tokens, "val examples 0 to 19 are not what their law draws"),
        (forge_periods, "val examples 0 to 19 are not what their law draws"),
        (forge_bits, "the ideal predictor needs other bits"),
    ],
)
def test_verification_looks_at_the_content(
    task: Periodic, tmp_path: Path, forge: Callable[[Path], None], words: str
) -> None:
    """Arrays are changed, and their checksums made to fit."""
    dataset = task.prepare(tmp_path)
    assert len(task.verify(dataset)) == 5
    facts = {path: file_facts(path).sha256 for path in dataset.folder.glob("*.npy")}
    forge(dataset.folder)
    manifest = dataset.folder / "manifest.json"
    text = manifest.read_text()
    for path, digest in facts.items():
        text = text.replace(digest, file_facts(path).sha256)
    manifest.write_text(text)
    with pytest.raises(DataError, match=words):
        task.verify(task.prepare(tmp_path))


def test_verification_compares_checksums_of_large_data(
    task: Periodic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change too small for the other checks, in data too large to be read when it is opened."""
    monkeypatch.setattr("tasks.cache.VERIFY_ON_OPEN", 0)
    dataset = task.prepare(tmp_path)
    path = dataset.folder / "ideal_predictions.npy"
    np.save(path, np.load(path) + np.float32(1e-5))
    with pytest.raises(DataError, match=r"checksum of ideal_predictions.npy"):
        task.verify(task.prepare(tmp_path))


def test_noise_that_is_not_the_laws_is_noticed(
    task: Periodic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data of a generator that replaces too few tokens, which draws the same again."""
    monkeypatch.setattr("tasks.periodic.law.round", lambda value: int(value) // 2, raising=False)
    with pytest.raises(
        DataError, match=r"tokens are not the word's, expected some .* by noise 0.1"
    ):
        task.verify(task.prepare(tmp_path))


def test_what_the_harness_asks(task: Periodic, dataset: Dataset, tmp_path: Path) -> None:
    assert task.training_examples() == 150
    assert task.split_sizes(23_000) == {"train": 20_000, "val": 1_000, "test": 2_000}
    assert task.split_sizes(3) == {"train": 1, "val": 1, "test": 1}
    with pytest.raises(DataError, match="got 2 examples"):
        task.split_sizes(2)
    with pytest.raises(DataError, match="no official file structure"):
        task.export(dataset, tmp_path)
