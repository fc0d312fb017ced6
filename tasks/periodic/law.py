"""The law of Periodic: a random word, repeated, some of whose tokens are replaced.

An example has a period, uniform among those of the law, and a word of as many tokens, uniform and
independent. Position t has token t mod period of the word; but with probability `noise`, at each
position anew, another token stands there, uniform among the others.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tasks.random_words import RandomWords

Periods = Literal["dividing", "other", "both"]

GROUP = 64
"""Number of examples drawn at once. It belongs to the law: another number gives other examples."""
SHORTEST_PERIOD = 4
FEWEST_REPEATS = 8
"""Least number of times that the word of a dividing period is repeated."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """What examples are drawn by."""

    length: int
    """Positions of an example; it has one token more, the target of the last position."""
    vocab_size: int
    noise: float
    """Probability that a token is replaced, below 1 - 1 / vocab_size."""
    periods: tuple[int, ...]

    @property
    def replacement(self) -> float:
        """Probability of each token that does not stand in the word."""
        return self.noise / (self.vocab_size - 1)

    @property
    def entropy_rate(self) -> float:
        """Bits a token that are needed where word and period are known.

        With q for the noise: - q log2 q - (1 - q) log2 (1 - q) + q log2 (vocab_size - 1).
        """
        shares = (self.noise, 1 - self.noise)
        which = -sum(share * math.log2(share) for share in shares if share)
        return which + self.noise * math.log2(self.vocab_size - 1)


def choose_periods(length: int, which: Periods) -> tuple[int, ...]:
    """Choose periods by a length, as many that divide it as that do not.

    Those that divide it: the smallest from SHORTEST_PERIOD on, and then each time the smallest
    that is at least twice the one before, as long as it is repeated FEWEST_REPEATS times. The
    others: for each of these the nearest number above that does not divide the length and is not
    yet taken.

    Returns: the periods, in rising order; none for a length without such divisors.
    """
    dividing: list[int] = []
    for number in range(SHORTEST_PERIOD, length // FEWEST_REPEATS + 1):
        if length % number == 0 and (not dividing or number >= 2 * dividing[-1]):
            dividing.append(number)
    other: list[int] = []
    for period in dividing:
        above = (n for n in itertools.count(period + 1) if length % n and n not in other)
        other.append(next(above))
    chosen = {"dividing": dividing, "other": other, "both": [*dividing, *other]}
    return tuple(sorted(chosen[which]))


@dataclass(frozen=True)
class PeriodicExamples:
    """Examples of a law."""

    tokens: np.ndarray
    """(examples, length + 1) int64."""
    periods: np.ndarray
    """(examples,) int64."""
    is_replaced: np.ndarray
    """(examples, length + 1) bool, where tokens are not those of the repeated word."""

    def first(self, count: int) -> PeriodicExamples:
        """Keep some examples."""
        return PeriodicExamples(self.tokens[:count], self.periods[:count], self.is_replaced[:count])


def draw(law: Law, seed: int, split: int, group: int) -> PeriodicExamples:
    """Draw a group of GROUP examples: a function of its arguments.

    Args:
        law: law of the examples.
        seed: seed of all splits.
        split: number of the split.
        group: number of the group within the split.
    """
    random = RandomWords(seed, split << 32 | group)
    positions = law.length + 1
    longest = max(law.periods)
    periods = np.array(law.periods)[random.draw_below(len(law.periods), GROUP)]
    words = random.draw_below(law.vocab_size, GROUP, longest)
    shape = GROUP, positions
    is_replaced = random.draw(GROUP * positions).reshape(shape) < round(law.noise * 2**32)
    shift = 1 + random.draw_below(law.vocab_size - 1, *shape)
    tokens = np.take_along_axis(words, np.arange(positions) % periods[:, None], axis=1)
    tokens = np.where(is_replaced, (tokens + shift) % law.vocab_size, tokens)
    return PeriodicExamples(tokens, periods, is_replaced)
