"""Periodic: the law, and the ideal predictor against brute force."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from lra.tasks.next_token import TokenWindows
from lra.tasks.periodic import GROUP, Law, Periodic, choose_periods, draw_examples, ideal_bits

DEFAULT = Periodic(sequence_length=256).law


def examples_of(law: Law, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    groups = [draw_examples(law, seed, 0, group) for group in range(-(-count // GROUP))]
    tokens = np.concatenate([group.tokens for group in groups])
    return tokens[:count], np.concatenate([group.periods for group in groups])[:count]


@pytest.mark.parametrize(
    ("length", "dividing", "other"),
    [
        (512, (4, 8, 16, 32, 64), (5, 9, 17, 33, 65)),
        (840, (4, 8, 20, 40, 84), (9, 11, 22, 41, 85)),  # 5 to 8 divide 840, too
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


def test_tokens_are_those_of_a_word_but_for_noise() -> None:
    drawn = draw_examples(DEFAULT, 3, 1, 2)
    assert drawn.tokens.shape == (GROUP, DEFAULT.length + 1)
    for tokens, period, is_replaced in zip(*drawn, strict=True):
        for start in range(period):
            kept = tokens[start::period][~is_replaced[start::period]]
            others = tokens[start::period][is_replaced[start::period]]
            assert len(set(kept)) <= 1 and not set(kept) & set(others)


def test_noise_periods_and_tokens_are_uniform() -> None:
    groups = [draw_examples(DEFAULT, 0, 0, group) for group in range(40)]
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
        (3, 0.3, (2, 3)),
        (3, 0.0, (2, 3)),
        (2, 0.2, (4, 9)),  # one longer than the example
    ],
)
def test_the_ideal_predictor_is_bayes_rule(
    vocab_size: int, noise: float, periods: tuple[int, ...]
) -> None:
    """Against the sum over all words, on every sequence that the law can draw."""
    law = Law(length=5, vocab_size=vocab_size, noise=noise, periods=periods)
    every = np.array(list(itertools.product(range(vocab_size), repeat=6)))
    chances = np.array([brute_force(one, law) for one in every])
    possible = chances[:, -1] > 0
    expected = -np.diff(np.log2(chances[possible]), axis=1)
    assert ideal_bits(every[possible], law) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("noise", [0.0, 1e-300, 0.1, 0.93749])
def test_probabilities_of_the_next_token_sum_to_one(noise: float) -> None:
    law = Law(length=100, vocab_size=16, noise=noise, periods=(4, 5, 8))
    for tokens in examples_of(law, 5)[0]:
        with_each = np.tile(tokens, (16, 1))
        with_each[:, -1] = np.arange(16)
        assert (2.0 ** -ideal_bits(with_each, law)[:, -1]).sum() == pytest.approx(1)


def test_the_ideal_predictor_comes_down_to_the_entropy_rate() -> None:
    shares = np.array([0.9, *[0.1 / 15] * 15])
    rate = DEFAULT.entropy_rate
    assert rate == pytest.approx(-(shares * np.log2(shares)).sum())
    tokens, periods = examples_of(DEFAULT, 2048, seed=5)
    bits = ideal_bits(tokens, DEFAULT)
    assert bits.mean(axis=0)[0] == pytest.approx(4, abs=0.05)
    assert bits.mean() > rate + 0.1
    spread = bits[:, -64:].mean(axis=1).std() / math.sqrt(len(bits))
    for period in DEFAULT.periods:
        late = bits[periods == period][:, -64:].mean()
        # A word of 33 tokens has been seen seven times by then.
        assert rate - 5 * spread * math.sqrt(8) < late < rate + 0.15


def test_what_a_data_set_says(tmp_path: Path) -> None:
    task = Periodic(sequence_length=64, train=150, val=20, test=70)
    dataset = task.prepare(tmp_path)
    assert task.law.periods == (4, 5, 8, 9)
    assert dataset.baseline_bits == {"uniform": 4.0}
    test = dataset.splits["test"]
    assert isinstance(test, TokenWindows) and test.text_bytes is None
    batch = test.batch(np.arange(70))
    tokens = np.concatenate([batch.inputs.reshape(70, 64), batch.labels.reshape(70, 64)[:, -1:]], 1)
    bits = ideal_bits(tokens, task.law).mean()
    assert dataset.lowest_bits == pytest.approx(
        {"entropy rate": task.law.entropy_rate, "ideal predictor": bits}
    )
    periods = test.metadata()["period"]
    divides = np.where(np.isin(periods, (4, 8)), "yes", "no")
    assert np.array_equal(test.metadata()["divides length"], divides)
    assert periods.shape == (70,)


def test_large_vocabularies_fit(tmp_path: Path) -> None:
    large = Periodic(sequence_length=64, vocab_size=2**16, train=70, test=2)
    assert large.prepare(tmp_path).splits["train"].labels.max() > 2**15
