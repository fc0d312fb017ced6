"""The law of multi-query associative recall: pairs of a key and a value, then the keys again.

Arora et al., "Zoology: Measuring and Improving Recall in Efficient Language Models", ICLR 2024
(arXiv:2312.04927), and HazyResearch/zoology, zoology/data/multiquery_ar.py.

The vocabulary is divided into a filler 0, keys from 1 to below its half, and values from its half
on. A sequence of N positions begins with K pairs (key, value), of different keys and different
values. The other N - 2K positions are numbered in twos, as places 1 to S = (N - 2K) / 2. Each key
occurs once more, as a query, at the first position of a place of its own. The queries choose their
places one after another, in the order of their keys, among those that are still free: place i with
probability proportional to i ** (POWER - 1), so that most queries come soon. The label of a query
is the value of its key. No other position has a label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tasks.base import NOT_SCORED
from tasks.generated import GROUP, Drawn
from tasks.random_words import RandomWords

Fill = Literal["zero", "random"]

POWER = 0.01
"""Exponent of the distribution of places; 1 would make it uniform."""


@dataclass(frozen=True)
class Segment:
    """Sequences of one length and one number of pairs."""

    length: int
    pairs: int

    @property
    def name(self) -> str:
        """Length and pairs: "256x64"."""
        return f"{self.length}x{self.pairs}"


@dataclass(frozen=True, kw_only=True)
class Law:
    """What sequences of any segment are drawn by."""

    vocab_size: int
    fill: Fill
    """What is at positions without key, value or query: the filler, or random tokens."""


def draw(law: Law, segment: Segment, seed: int, stream: int) -> Drawn:
    """Draw GROUP sequences: a function of its arguments.

    Args:
        law: law of the sequences.
        segment: their length and number of pairs.
        seed: seed of all splits.
        stream: number of the group, different for all splits, segments and groups.
    """
    random = RandomWords(seed, stream)
    length, pairs, half = segment.length, segment.pairs, law.vocab_size // 2
    keys = 1 + draw_different(random, half - 1, pairs)
    values = half + draw_different(random, law.vocab_size - half, pairs)
    places = draw_places(random, (length - 2 * pairs) // 2, pairs)
    queries = 2 * pairs + 2 * places
    tokens = np.zeros((GROUP, length), dtype=np.uint16)
    tokens[:, 0 : 2 * pairs : 2] = keys
    tokens[:, 1 : 2 * pairs : 2] = values
    np.put_along_axis(tokens, queries, keys.astype(np.uint16), axis=1)
    if law.fill == "random":
        anything = random.draw_below(law.vocab_size, GROUP, length)
        tokens = np.where(tokens == 0, anything.astype(np.uint16), tokens)
    labels = np.full((GROUP, length), NOT_SCORED, dtype=np.int32)
    np.put_along_axis(labels, queries, values.astype(np.int32), axis=1)
    return Drawn(tokens.ravel(), np.full(GROUP, length, dtype=np.int32), labels.ravel())


def draw_different(random: RandomWords, bound: int, count: int) -> np.ndarray:
    """Draw `count` different numbers below a bound for each sequence, in any order alike.

    Returns: (GROUP, count) int64.
    """
    drawn = np.empty((GROUP, count), dtype=np.int64)
    for i in range(count):
        drawn[:, i] = random.draw_below(bound, GROUP)
        while len(again := np.flatnonzero((drawn[:, :i] == drawn[:, i : i + 1]).any(axis=1))):
            drawn[again, i] = random.draw_below(bound, len(again))
    return drawn


def draw_places(random: RandomWords, available: int, count: int) -> np.ndarray:
    """Draw the places of the queries of each sequence, without replacement.

    Args:
        random: the random words.
        available: number of places.
        count: number of queries.
    Returns: (GROUP, count) int64, places counted from 0.
    """
    weights = np.tile(place_weights(available), (GROUP, 1))
    drawn = np.empty((GROUP, count), dtype=np.int64)
    for i in range(count):
        sums = weights.cumsum(axis=1)
        chosen = random.draw_below(sums[:, -1], GROUP)
        drawn[:, i] = (sums <= chosen[:, None]).sum(axis=1)
        np.put_along_axis(weights, drawn[:, i : i + 1], 0, axis=1)
    return drawn


def place_weights(available: int) -> np.ndarray:
    """Tabulate the probabilities of places in units of about 2**-32: (available,) int64.

    Their sums are exact, and the largest one is below 2**32.
    """
    powers = [place ** (POWER - 1) for place in range(1, available + 1)]
    unit = math.fsum(powers) / (2**32 - available)
    return np.array([round(power / unit) for power in powers], dtype=np.int64)
