"""Recall: multi-query associative recall, where pairs of a key and a value precede the queries.

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

import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveInt

from lra.tasks.base import SPLITS, DataSeed, TaskInfo
from lra.tasks.cache import Cache
from lra.tasks.generated import GROUP, Drawn, GeneratedTask, Law, divide, draw_segments
from lra.tasks.goals import NOT_SCORED, PositionLabels
from lra.tasks.random_words import RandomWords
from lra.tasks.splits import LabelledTokens, Sequences

Fill = Literal["zero", "random"]

COUNTS = {"train": 100_000, "val": 3_000, "test": 3_000}
MIXTURE = {
    "train": {(64, 4): 100, (128, 8): 20, (256, 16): 20, (256, 32): 20, (256, 64): 20},
    "test": {
        (64, 4): 1, (64, 8): 1, (64, 16): 1, (128, 32): 1, (256, 64): 1, (512, 128): 1,
        (1024, 256): 1,
    },
}  # fmt: skip
"""Segments (length, pairs) of the mixture and their shares, as in HazyResearch/zoology,
mqar_example_configs/original_mqar_configs.py."""
LENGTH, PAIRS, LONGEST = 64, 4, 1024
POWER = 0.01
"""Exponent of the distribution of places; 1 would make it uniform."""


class Segment(NamedTuple):
    """Sequences of one length and one number of pairs."""

    length: int
    pairs: int

    @property
    def name(self) -> str:
        """Length and pairs: "256x64"."""
        return f"{self.length}x{self.pairs}"


def draw_sequences(segment: Segment, vocab_size: int, fill: Fill, random: RandomWords) -> Drawn:
    """Draw GROUP sequences."""
    (length, pairs), half = segment, vocab_size // 2
    keys = 1 + draw_different(random, half - 1, pairs)
    values = half + draw_different(random, vocab_size - half, pairs)
    queries = 2 * pairs + 2 * draw_places(random, (length - 2 * pairs) // 2, pairs)
    tokens = np.zeros((GROUP, length), dtype=np.uint16)
    tokens[:, 0 : 2 * pairs : 2] = keys
    tokens[:, 1 : 2 * pairs : 2] = values
    np.put_along_axis(tokens, queries, keys.astype(np.uint16), axis=1)
    if fill == "random":
        anything = random.draw_below(vocab_size, GROUP, length)
        tokens = np.where(tokens == 0, anything.astype(np.uint16), tokens)
    labels = np.full((GROUP, length), NOT_SCORED, dtype=np.int32)
    np.put_along_axis(labels, queries, values.astype(np.int32), axis=1)
    return Drawn(tokens.ravel(), np.full(GROUP, length, dtype=np.int32), labels.ravel())


def draw_different(random: RandomWords, bound: int, count: int) -> np.ndarray:
    """Draw `count` different numbers below a bound for each sequence: (GROUP, count) int64."""
    drawn = np.empty((GROUP, count), dtype=np.int64)
    for i in range(count):
        drawn[:, i] = random.draw_below(bound, GROUP)
        while len(again := np.flatnonzero((drawn[:, :i] == drawn[:, i : i + 1]).any(axis=1))):
            drawn[again, i] = random.draw_below(bound, len(again))
    return drawn


def draw_places(random: RandomWords, available: int, count: int) -> np.ndarray:
    """Draw places of queries, counted from 0, without replacement: (GROUP, count) int64."""
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
    powers = [number ** (POWER - 1) for number in range(1, available + 1)]
    unit = math.fsum(powers) / (2**32 - available)
    return np.array([round(power / unit) for power in powers], dtype=np.int64)


class Recall(GeneratedTask):
    """Say at each query which value its key had: multi-query associative recall.

    The score is the mean accuracy over the segments of the test set. Without `train.bucketing`,
    batches are drawn from the whole training set, so that with `mixture` they hold sequences of
    several segments. (Zoology fills each batch from one segment.)

    Args:
        length: positions of a sequence.
        pairs: pairs of a key and a value in a sequence.
        mixture: whether to train and test on several lengths and numbers of pairs instead: on 5
            segments, of 64x4 (length x pairs) to 256x64, with 5 times as many sequences of the
            first one, and on 7, of 64x4 to 1024x256, with equally many of each.
        longest: largest length of the mixture's segments; longer ones are left out.
        fill: tokens at positions without a key, a value or a query: "zero", or "random" tokens of
            the whole vocabulary. A random token may by chance be a key of its sequence, and then
            looks like a query although it has no label.
        vocab_size: different tokens.
        train: sequences to train on.
        val: sequences to select on.
        test: sequences to test on.
        data_seed: seed of the generator.
    Raises: ValueError for pairs that do not fit into the length or the vocabulary, for a length or
        a number of pairs beside a mixture, and for splits smaller than their segments.
    """

    name = "recall"
    default_counts = COUNTS

    def __init__(
        self,
        *,
        length: Annotated[int, Field(ge=4, lt=2**16)] = LENGTH,
        pairs: PositiveInt = PAIRS,
        mixture: bool = False,
        longest: PositiveInt = LONGEST,
        fill: Fill = "zero",
        vocab_size: Annotated[int, Field(ge=8, le=2**16)] = 8192,
        train: PositiveInt = COUNTS["train"],
        val: PositiveInt = COUNTS["val"],
        test: PositiveInt = COUNTS["test"],
        data_seed: DataSeed = 0,
    ) -> None:
        if mixture and (length, pairs) != (LENGTH, PAIRS):
            raise ValueError(
                f"length {length} and pairs {pairs} have no effect with mixture, whose segments "
                f"have their own; leave them out, or use mixture=false"
            )
        if not mixture and longest != LONGEST:
            raise ValueError(f"longest {longest} has no effect without mixture; leave it out")
        self.vocab_size = vocab_size
        self.fill: Fill = fill
        self.counts = {"train": train, "val": val, "test": test}
        self.data_seed = data_seed
        if mixture:
            self.shares = _choose_segments(longest)
        else:
            self.shares = {split: {Segment(length, pairs): 1} for split in SPLITS}
        segments = {segment for shares in self.shares.values() for segment in shares}
        for segment in sorted(segments, reverse=True):
            _check_segment(segment, vocab_size)
        self.divided = {
            split: divide(self.counts[split], shares.values())
            for split, shares in self.shares.items()
        }
        for split, shares in self.shares.items():
            if min(self.divided[split]) < 1:
                raise ValueError(
                    f"{split} is {self.counts[split]}, expected at least "
                    f"{sum(shares.values()) // min(shares.values())}, so that each of its "
                    f"{len(shares)} segments has a sequence"
                )
        self.info = TaskInfo(
            name=self.name,
            goal=PositionLabels(vocab_size),
            max_length=max(segment.length for segment in segments),
            vocab_size=vocab_size,
        )

    def describe_law(self) -> dict[str, Any]:
        """See `GeneratedTask.describe_law`."""
        segments = {
            split: {segment.name: share for segment, share in shares.items()}
            for split, shares in self.shares.items()
        }
        return {
            "vocab_size": self.vocab_size,
            "fill": self.fill,
            "segments": segments,
            "version": 1,
        }

    def draw(self) -> dict[str, np.ndarray]:
        """See `GeneratedTask.draw`."""
        laws: dict[str, dict[str, Law]] = {
            split: {
                segment.name: partial(draw_sequences, segment, self.vocab_size, self.fill)
                for segment in shares
            }
            for split, shares in self.shares.items()
        }
        return draw_segments(laws, self.divided, self.data_seed)

    def open_split(self, cache: Cache, split: str) -> LabelledTokens:
        """See `GeneratedTask.open_split`."""
        drawn = Drawn.from_cache(cache, split)
        is_query = drawn.labels != NOT_SCORED
        pairs = np.add.reduceat(is_query, drawn.offsets[:-1], dtype=np.int64)
        kinds, which = np.unique([drawn.lengths, pairs], axis=1, return_inverse=True)
        names = np.array([Segment(*map(int, kind)).name for kind in kinds.T])
        fields = {"segment": names[which], "pairs": pairs}
        return LabelledTokens(Sequences(drawn.tokens, drawn.offsets), drawn.labels, fields)

    def measure_baselines(self, arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
        """See `GeneratedTask.measure_baselines`."""
        shares = [1 / segment.pairs for segment in self.shares["test"]]
        return {
            "majority class": super().measure_baselines(arrays)["majority class"],
            "random value": 100 / (self.vocab_size - self.vocab_size // 2),
            "random value of the sequence": 100 * float(np.mean(shares)),
        }

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: a validation set has an example of each segment."""
        drawn = super().fresh(options, length=length, examples=examples)
        return {**drawn, "val": len(MIXTURE["test"]) if options["mixture"] else 1}

    @classmethod
    def change_length(cls, options: Mapping[str, Any], length: int) -> dict[str, Any]:
        """See `GeneratedTask.change_length`: sequences have `pairs` pairs."""
        return {"length": length, "mixture": False, "longest": LONGEST}


def _choose_segments(longest: int) -> dict[str, dict[Segment, int]]:
    """Choose segments of the mixture up to a length: their shares, by split."""
    chosen = {
        split: {Segment(*key): share for key, share in shares.items() if key[0] <= longest}
        for split, shares in MIXTURE.items()
    }
    if not all(chosen.values()):
        raise ValueError(f"longest is {longest}, expected at least {LENGTH}, the shortest segment")
    return {"train": chosen["train"], "val": chosen["test"], "test": chosen["test"]}


def _check_segment(segment: Segment, vocab_size: int) -> None:
    length, pairs = segment
    if length % 2:
        raise ValueError(f"length is {length}, expected an even number")
    if 4 * pairs > length:
        raise ValueError(
            f"pairs is {pairs}, too many for length {length}: each pair takes four positions; use "
            f"at most {length // 4} pairs, or a length of at least {4 * pairs}"
        )
    if vocab_size <= length:
        raise ValueError(
            f"vocab_size is {vocab_size}, expected more than the length {length}; use a larger "
            f"vocab_size or shorter sequences"
        )
