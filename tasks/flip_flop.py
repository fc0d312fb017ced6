"""Flip-flop: recall the value that was written last, at fixed distances.

A sequence writes values below VALUES. The tokens after a write are noise, one of NOISES symbols,
and reads, one symbol. A read stands at every distance of `list_distances` after the write, until
the next write; its label is the written value. No other position has a label. A read carries no
value, so that no read helps a later one: a model that sees r positions is at chance beyond them.

    last: segments of a write and g more positions, g = floor(exp(U(0, ln 2 D))), D the largest
        distance. The last segment is cut off.
    one: a single write, at a uniform place, with noise before it.

Mode `published` is the language of Liu et al., "Exposing Attention Glitches with Flip-Flop Language
Modeling", NeurIPS 2023 (arXiv:2306.00946). A sequence has pairs of an instruction and a bit:
ignore, write or read. After a read comes the bit that was written last, the other bits are random.
The first instruction is a write, the last one a read; the others are ignore with probability p, and
else write or read, equally likely. Labels are the bits after reads, as in the paper's "clean" mode.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from lra.tasks.base import SPLITS, DataSeed, TaskInfo
from lra.tasks.cache import Cache
from lra.tasks.generated import GROUP, Drawn, GeneratedTask, Law, divide, draw_segments
from lra.tasks.goals import NOT_SCORED, DistantLabels, PositionLabels
from lra.tasks.random_words import RandomWords
from lra.tasks.splits import LabelledTokens, Sequences

COUNTS = {"train": 8_000, "val": 500, "test": 1_000}
VALUES, NOISES = 8, 16
READ = VALUES + NOISES
IGNORE, WRITE, ASK = 2, 3, 4
"""Instructions of mode `published`; its other tokens are the bits 0 and 1."""
DISTANCE, LENGTH = 512, 2048
IGNORED = {"train": [80], "val": [80], "test": [80, 98, 10]}
"""Percent of instructions that are ignored in each segment of a split, in mode `published`."""


def list_distances(longest: int) -> tuple[int, ...]:
    """List 1, 2, 3, 4, 6, 8, 12, ... up to a distance: half an octave apart."""
    every = {factor << k for factor in (1, 3) for k in range(longest.bit_length())}
    return tuple(sorted(distance for distance in every if distance <= longest))


def draw_gaps(random: RandomWords, distance: int, *shape: int) -> np.ndarray:
    """Draw floor(exp(U(0, ln 2 D))) for the largest distance D, of this shape."""
    ends = [round(2**32 * math.log(gap, 2 * distance)) for gap in range(1, 2 * distance)]
    return np.searchsorted(ends, random.draw_below(2**32, *shape), side="right")


def draw_sequences(mode: str, distance: int, length: int, random: RandomWords) -> Drawn:
    """Draw GROUP sequences of mode `last` or `one`."""
    if mode == "one":
        starts = random.draw_below(length - distance, GROUP, 1)
    else:  # as many segments as there can be
        sizes = 1 + draw_gaps(random, distance, GROUP, length // 2)
        starts = sizes.cumsum(axis=1) - sizes
    values = random.draw_below(VALUES, GROUP, length)
    noise = VALUES + random.draw_below(NOISES, GROUP, length)
    place, is_write = np.arange(length), np.zeros((GROUP, length + 1), dtype=bool)
    np.put_along_axis(is_write, np.minimum(starts, length), values=True, axis=1)
    is_write = is_write[:, :length]
    write = np.maximum.accumulate(np.where(is_write, place, -length), axis=1)
    is_read = np.isin(place - write, list_distances(distance))
    tokens = np.where(is_write, values, np.where(is_read, READ, noise))
    return _pack(tokens, is_read, np.take_along_axis(values, write, axis=1))


def draw_language(ignored: int, length: int, random: RandomWords) -> Drawn:
    """Draw GROUP sequences of mode `published`, with a percentage of ignored instructions."""
    drawn = random.draw_below(200, GROUP, length // 2)
    kinds = IGNORE + (drawn >= 2 * ignored) + (drawn >= 100 + ignored)
    kinds[:, 0], kinds[:, -1] = WRITE, ASK
    bits = random.draw_below(2, *kinds.shape)
    write = np.maximum.accumulate(np.where(kinds == WRITE, np.arange(length // 2), 0), axis=1)
    bits = np.where(kinds == ASK, np.take_along_axis(bits, write, axis=1), bits)
    tokens = np.stack([kinds, bits], axis=2).reshape(GROUP, length)
    return _pack(tokens, tokens == ASK, bits.repeat(2, axis=1))


def _pack(tokens: np.ndarray, is_read: np.ndarray, written: np.ndarray) -> Drawn:
    """Put sequences end to end, labelled at reads; all are (GROUP, length)."""
    labels = np.where(is_read, written, NOT_SCORED).astype(np.int8)
    lengths = np.full(GROUP, tokens.shape[1], dtype=np.int32)
    return Drawn(tokens.astype(np.uint8).ravel(), lengths, labels.ravel())


class FlipFlop(GeneratedTask):
    """Say at each read which value was written last: how far back a mixer remembers.

    The score is the effective window: the largest distance up to which the accuracy is at least
    halfway between chance and 100 % at every distance.

    Args:
        mode: last (each write replaces the value before it), one (a single write), or published
            (flip-flop language modelling, whose score is the mean accuracy over three segments of
            the test set: 80 % of the instructions are ignored, as in training, or 98 % or 10 %).
        distance: largest distance between a write and a read, 2**k or 3 * 2**k positions.
        length: positions of a sequence, at least four times the distance.
        train: sequences to train on.
        val: sequences to select on.
        test: sequences to test on.
        data_seed: seed of the generator.
    Raises: ValueError for other distances, for shorter sequences, for a distance in mode
        `published`, and there for odd lengths and fewer than three test sequences.
    """

    name = "flip-flop"
    default_counts = COUNTS

    def __init__(
        self,
        *,
        mode: Literal["last", "one", "published"] = "last",
        distance: PositiveInt = DISTANCE,
        length: Annotated[int, Field(ge=4, le=2**16)] = LENGTH,
        train: PositiveInt = COUNTS["train"],
        val: PositiveInt = COUNTS["val"],
        test: PositiveInt = COUNTS["test"],
        data_seed: DataSeed = 0,
    ) -> None:
        _check_options(mode, distance, length, test)
        self.mode, self.length, self.data_seed = mode, length, data_seed
        self.counts = {"train": train, "val": val, "test": test}
        self.distances = list_distances(distance)
        law = partial(draw_sequences, mode, distance, length)
        self.laws: dict[str, dict[str, Law]] = {split: {mode: law} for split in SPLITS}
        goal, size = DistantLabels(VALUES, self.distances), READ + 1
        if mode == "published":
            self.laws = {
                split: {f"{p} % ignored": partial(draw_language, p, length) for p in percentages}
                for split, percentages in IGNORED.items()
            }
            goal, size = PositionLabels(2), ASK + 1
        self.divided = {
            split: divide(self.counts[split], [1] * len(self.laws[split])) for split in SPLITS
        }
        self.info = TaskInfo(name=self.name, goal=goal, max_length=length, vocab_size=size)

    def describe_law(self) -> dict[str, Any]:
        """See `GeneratedTask.describe_law`."""
        is_published = self.mode == "published"
        more = {"ignored": IGNORED} if is_published else {"distances": [*self.distances]}
        return {"mode": self.mode, "length": self.length, "version": 1, **more}

    def draw(self) -> dict[str, np.ndarray]:
        """See `GeneratedTask.draw`."""
        return draw_segments(self.laws, self.divided, self.data_seed)

    def open_split(self, cache: Cache, split: str) -> LabelledTokens:
        """See `GeneratedTask.open_split`."""
        drawn = Drawn.from_cache(cache, split)
        sequences = Sequences(drawn.tokens, drawn.offsets)
        if self.mode == "published":
            names = np.repeat([*self.laws[split]], self.divided[split])
            return LabelledTokens(sequences, drawn.labels, {"segment": names})
        writes = np.flatnonzero(drawn.tokens < VALUES)
        reads = np.flatnonzero(drawn.labels != NOT_SCORED)
        distances = reads - writes[np.searchsorted(writes, reads) - 1]
        return LabelledTokens(sequences, drawn.labels, distances=distances)

    @classmethod
    def change_length(cls, options: Mapping[str, Any], length: int) -> dict[str, Any]:
        """See `GeneratedTask.change_length`: distances up to a quarter of the length."""
        if options["mode"] == "published":
            return {"length": length}
        return {"length": length, "distance": max(list_distances(length // 4), default=1)}


def _check_options(mode: str, distance: int, length: int, test: int) -> None:
    nearest = list_distances(distance)[-1]
    if mode == "published":
        if distance != DISTANCE:
            raise ValueError(f"distance {distance} has no effect in mode published; leave it out")
        if length % 2 or test < len(IGNORED["test"]):
            raise ValueError(
                f"length is {length} and test is {test}, expected an even length and at least "
                f"{len(IGNORED['test'])} test sequences, one for each segment"
            )
    elif distance != nearest:
        raise ValueError(
            f"distance is {distance}, expected 2**k or 3 * 2**k; the next lower one is {nearest}"
        )
    elif length < 4 * distance:
        raise ValueError(
            f"length is {length}, expected at least {4 * distance}, four times the distance; use "
            f"longer sequences or a lower distance"
        )
