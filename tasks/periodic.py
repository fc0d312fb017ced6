"""Periodic: language modelling of repeated random words, whose best possible loss is known.

An example has a period, uniform among those of the law, and a word of as many tokens, uniform and
independent. Position t has token t mod period of the word; but with probability `noise`, at each
position anew, another token stands there, uniform among the others.

The ideal predictor follows from this law by Bayes' rule. It knows the periods that there are, the
noise q and the number of tokens V, but neither the word nor the period of an example. Of period p,
position t continues the class of positions s < t with s = t (mod p). With c(v) for how often token
v stands in this class, the token w of the word has

    P(w | x_0 .. x_{t-1}, p) = a**c(w) / sum over v of a**c(v),    a = (1 - q) (V - 1) / q,

as each token that agrees with w is a times likelier than one that does not. So the next one has

    P(x_t | x_0 .. x_{t-1}, p) = P(w = x_t) (1 - q) + (1 - P(w = x_t)) q / (V - 1).

The product over s < t is the likelihood of p, and periods are equally likely at first:

    P(x_t | x_0 .. x_{t-1}) = sum over p of prod over s <= t of P(x_s | x_0 .. x_{s-1}, p)
                              / the same sum with s < t.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveInt

from lra.common.progress import progress
from lra.tasks.base import SPLITS, DataSeed, Dataset, TaskInfo, majority
from lra.tasks.cache import Cache
from lra.tasks.generated import GeneratedTask
from lra.tasks.goals import NextToken
from lra.tasks.next_token import TokenWindows
from lra.tasks.random_words import RandomWords

Periods = Literal["dividing", "other", "both"]

COUNTS = {"train": 20_000, "val": 1_000, "test": 2_000}
GROUP = 64
"""Number of examples drawn at once. It belongs to the law: another number gives other examples."""
SHORTEST_PERIOD = 4
FEWEST_REPEATS = 8
"""Least number of times that the word of a dividing period is repeated."""
IDEAL = "ideal_predictions"
"""Name of the array of what the ideal predictor needs on the test split: (examples, positions)."""
CERTAIN = 800.0
"""log a where there is no noise: exp(-800) is 0, and sums of multiples of 800 are exact."""
NUMBERS_A_CHUNK = 2**21
"""Numbers, of all periods together, that the ideal predictor keeps at a time."""


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


class PeriodicExamples(NamedTuple):
    """Examples of a law."""

    tokens: np.ndarray
    """(examples, length + 1) int64."""
    periods: np.ndarray
    """(examples,) int64."""
    is_replaced: np.ndarray
    """(examples, length + 1) bool, where tokens are not those of the repeated word."""


def draw_examples(law: Law, seed: int, split: int, group: int) -> PeriodicExamples:
    """Draw a group of GROUP examples, which depend on the arguments alone."""
    random = RandomWords(seed, split << 32 | group)
    shape = GROUP, law.length + 1
    periods = np.array(law.periods)[random.draw_below(len(law.periods), GROUP)]
    words = random.draw_below(law.vocab_size, GROUP, max(law.periods))
    is_replaced = random.draw(math.prod(shape)).reshape(shape) < round(law.noise * 2**32)
    shift = 1 + random.draw_below(law.vocab_size - 1, *shape)
    tokens = np.take_along_axis(words, np.arange(shape[1]) % periods[:, None], axis=1)
    tokens = np.where(is_replaced, (tokens + shift) % law.vocab_size, tokens)
    return PeriodicExamples(tokens, periods, is_replaced)


def ideal_bits(tokens: np.ndarray, law: Law) -> np.ndarray:
    """Calculate what the ideal predictor needs, in bits, for each token but the first.

    Its mean over examples is, by position, the least that any predictor can need on average.

    Args:
        tokens: (examples, positions + 1) examples of the law, of any length.
        law: law of the examples; its length has no effect.
    Returns: (examples, positions) float64.
    """
    total = tokens.shape[1]
    rows = max(1, NUMBERS_A_CHUNK // (len(law.periods) * total))
    bits = np.empty((len(tokens), total - 1))
    for start in range(0, len(tokens), rows):
        some = np.asarray(tokens[start : start + rows], dtype=np.int64)
        joint = [_log_probabilities(some, period, law).cumsum(axis=1) for period in law.periods]
        log_likelihoods = np.logaddexp.reduce(joint, axis=0)
        bits[start : start + rows] = -np.diff(log_likelihoods, axis=1) / math.log(2)
    return bits


def _log_probabilities(tokens: np.ndarray, period: int, law: Law) -> np.ndarray:
    """Calculate log P(token | tokens before it, period), (examples, total), of tokens so shaped."""
    examples, total = tokens.shape
    repeats = -(-total // period)
    log_a = CERTAIN
    if law.replacement:
        log_a = max(0.0, math.log(1 - law.noise) - math.log(law.replacement))
    with np.errstate(divide="ignore"):
        # The logarithms of a**c, and of a**(c + 1) - a**c, by which a token changes the sum.
        log_powers = log_a * _counts_before(tokens, period, law.vocab_size)
        log_changes = np.zeros((examples, (repeats + 1) * period))
        log_changes[:, :period] = math.log(law.vocab_size)
        log_changes[:, period:][:, :total] = log_powers + log_a + np.log(-np.expm1(-log_a))
        by_class = log_changes.reshape(examples, repeats + 1, period)
        log_sums = np.logaddexp.accumulate(by_class, axis=1).reshape(examples, -1)[:, :total]
        agrees = np.exp(log_powers - log_sums)
        return np.log(agrees * (1 - law.noise) + (1 - agrees) * law.replacement)


def _counts_before(tokens: np.ndarray, period: int, vocab_size: int) -> np.ndarray:
    """Count for each token, (examples, total), how often it stands before in its class."""
    positions = np.arange(tokens.shape[1])
    keys = positions % period * vocab_size + tokens
    order = np.argsort(keys, axis=1, kind="stable")
    ordered = np.take_along_axis(keys, order, axis=1)
    is_first = np.diff(ordered, axis=1, prepend=-1) != 0
    firsts = np.maximum.accumulate(np.where(is_first, positions, 0), axis=1)
    counts = np.empty_like(keys)
    np.put_along_axis(counts, order, positions - firsts, axis=1)
    return counts


class Periodic(GeneratedTask):
    """Say which token comes next, in a sequence that repeats a random word with noise.

    Args:
        sequence_length: positions of an example.
        vocab_size: different tokens.
        noise: probability that a token is replaced by another one.
        periods: whether the lengths of words divide the sequence's, which are then a whole number
            of times around a circle, or do not, or both; see `choose_periods`.
        periods_of_length: length that periods are chosen by; None: sequence_length.
        train: examples to train on.
        val: examples to select on.
        test: examples to test on.
        data_seed: seed of the generator.
    Raises: ValueError for noise that leaves nothing to learn, and a length without such periods.
    """

    name = "periodic"
    default_counts = COUNTS

    def __init__(
        self,
        *,
        sequence_length: Annotated[int, Field(ge=1, le=2**20)] = 512,
        vocab_size: Annotated[int, Field(ge=2, le=2**16)] = 16,
        noise: Annotated[float, Field(ge=0, lt=1)] = 0.1,
        periods: Periods = "both",
        periods_of_length: Annotated[int, Field(ge=1, le=2**20)] | None = None,
        train: PositiveInt = COUNTS["train"],
        val: PositiveInt = COUNTS["val"],
        test: PositiveInt = COUNTS["test"],
        data_seed: DataSeed = 0,
    ) -> None:
        if not 0 <= noise < 1 - 1 / vocab_size:
            raise ValueError(
                f"noise is {noise}, expected at least 0 and below {1 - 1 / vocab_size:.6g}, where "
                f"all tokens of vocab_size {vocab_size} are equally likely everywhere"
            )
        length = periods_of_length or sequence_length
        chosen = choose_periods(length, periods)
        if not chosen:
            option = "periods_of_length" if periods_of_length else "sequence_length"
            raise ValueError(
                f"{option} is {length}, which has no divisor for a period, of {SHORTEST_PERIOD} or "
                f"more that is repeated {FEWEST_REPEATS} times or more; use a length that has, "
                f"such as a power of two from {SHORTEST_PERIOD * FEWEST_REPEATS} on"
            )
        self.law = Law(length=sequence_length, vocab_size=vocab_size, noise=noise, periods=chosen)
        self.counts = {"train": train, "val": val, "test": test}
        self.data_seed = data_seed
        self.info = TaskInfo(
            name=self.name,
            goal=NextToken(vocab_size),
            max_length=sequence_length,
            vocab_size=vocab_size,
        )

    def describe_law(self) -> dict[str, Any]:
        """See `GeneratedTask.describe_law`."""
        return {**vars(self.law), "periods": list(self.law.periods), "version": 1}

    def draw(self) -> dict[str, np.ndarray]:
        """See `GeneratedTask.draw`; with what the ideal predictor needs on the test split."""
        dtype = np.uint8 if self.law.vocab_size <= 2**8 else np.uint16
        arrays: dict[str, np.ndarray] = {}
        for number, split in enumerate(SPLITS):
            count = self.counts[split]
            tokens = np.empty((count, self.law.length + 1), dtype)
            periods = np.empty(count, dtype=np.int32)
            for start in progress(f"drawing {split}", range(0, count, GROUP), unit="groups"):
                drawn = draw_examples(self.law, self.data_seed, number, start // GROUP)
                rows = slice(start, min(count, start + GROUP))
                tokens[rows] = drawn.tokens[: count - start]
                periods[rows] = drawn.periods[: count - start]
            arrays |= {f"{split}_tokens": tokens, f"{split}_periods": periods}
        arrays[IDEAL] = ideal_bits(arrays["test_tokens"], self.law).astype(np.float32)
        return arrays

    def measure_baselines(self, arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
        """See `GeneratedTask.measure_baselines`."""
        train, test = (arrays[f"{split}_tokens"][:, 1:].ravel() for split in ("train", "test"))
        return {"majority class": majority(train, test)}

    def open_dataset(self, cache: Cache) -> Dataset:
        """See `GeneratedTask.open_dataset`."""
        splits = {split: self.open_split(cache, split) for split in SPLITS}
        return Dataset.from_cache(
            cache,
            splits,
            baseline_bits={"uniform": math.log2(self.law.vocab_size)},
            lowest_bits={
                "entropy rate": self.law.entropy_rate,
                "ideal predictor": float(cache.array(IDEAL).mean(dtype=np.float64)),
            },
        )

    def open_split(self, cache: Cache, split: str) -> TokenWindows:
        """See `GeneratedTask.open_split`."""
        periods = np.asarray(cache.array(f"{split}_periods"))
        is_divided = self.law.length % periods == 0
        return TokenWindows(
            cache.array(f"{split}_tokens").reshape(-1),
            np.arange(len(periods)) * (self.law.length + 1),
            np.full(len(periods), self.law.length),
            fields={"period": periods, "divides length": np.where(is_divided, "yes", "no")},
            ideal_bits=cache.array(IDEAL) if split == "test" else None,
        )

    @classmethod
    def change_length(cls, options: Mapping[str, Any], length: int) -> dict[str, Any]:
        """See `GeneratedTask.change_length`: the periods stay those of training."""
        trained = options["periods_of_length"] or options["sequence_length"]
        return {"sequence_length": length, "periods_of_length": trained}
