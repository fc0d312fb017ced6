"""Periodic: language modelling of repeated random words, whose best possible loss is known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveInt

from common.errors import DataError
from common.progress import progress
from tasks.base import Dataset, TaskInfo
from tasks.cache import Build, Cache, read_cache
from tasks.generated import SPLITS, GeneratedTask
from tasks.next_token import NextToken
from tasks.periodic.ideal import ideal_bits
from tasks.periodic.law import (
    FEWEST_REPEATS,
    GROUP,
    SHORTEST_PERIOD,
    Law,
    PeriodicExamples,
    Periods,
    choose_periods,
    draw,
)

COUNTS = {"train": 20_000, "val": 1_000, "test": 2_000}
IDEAL = "ideal_predictions"
"""Name of the array of what the ideal predictor needs on the test split: (examples, positions)."""
SIGMAS = 6
"""Standard deviations by which what was drawn may differ from its law."""


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
        data_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0,
    ) -> None:
        if vocab_size < 2:  # noqa: PLR2004
            raise ValueError(f"vocab_size is {vocab_size}, expected at least 2")
        if not 0 <= noise < 1 - 1 / vocab_size:
            raise ValueError(
                f"noise is {noise}, expected at least 0 and below {1 - 1 / vocab_size:.6g}, where "
                f"all tokens of vocab_size {vocab_size} are equally likely everywhere"
            )
        length = periods_of_length or sequence_length
        chosen = choose_periods(length, periods)
        if not chosen:
            given = "periods_of_length" if periods_of_length else "sequence_length"
            raise ValueError(
                f"{given} is {length}, which has no divisor for a period, of {SHORTEST_PERIOD} or "
                f"more that is repeated {FEWEST_REPEATS} times or more; use a length that has, "
                f"such as a power of two from {SHORTEST_PERIOD * FEWEST_REPEATS} on"
            )
        self.law = Law(length=sequence_length, vocab_size=vocab_size, noise=noise, periods=chosen)
        self.counts = {"train": train, "val": val, "test": test}
        self.data_seed = data_seed
        self.info = TaskInfo(
            name=self.name,
            num_classes=vocab_size,
            max_length=sequence_length,
            vocab_size=vocab_size,
            targets="position",
        )

    def describe_law(self) -> dict[str, Any]:
        """See `GeneratedTask.describe_law`."""
        return {**vars(self.law), "periods": list(self.law.periods), "version": 1}

    def describe_sequences(self) -> str:
        """See `GeneratedTask.describe_sequences`."""
        return f"sequences of {self.law.length + 1:,} tokens"

    def _draw(self, split: str, title: str) -> Iterator[tuple[slice, PeriodicExamples]]:
        """Draw a split, group by group: the rows of the split that each has, and its examples."""
        count, number = self.counts[split], SPLITS.index(split)
        for start in progress(f"{title} {split}", range(0, count, GROUP), unit="groups"):
            rows = slice(start, min(count, start + GROUP))
            drawn = draw(self.law, self.data_seed, number, start // GROUP)
            yield rows, drawn.first(rows.stop - rows.start)

    def _build(self, made: Build) -> None:
        """Draw all splits, and calculate what the ideal predictor needs on the test split."""
        dtype = np.uint8 if self.law.vocab_size <= 2**8 else np.uint16
        classes = {split: np.zeros(self.law.vocab_size, dtype=np.int64) for split in SPLITS}
        for split in SPLITS:
            made.sizes[split] = self.counts[split]
            tokens = made.mapped(f"{split}_tokens", self._shape(split), dtype)
            periods = made.mapped(f"{split}_periods", (self.counts[split],), np.int32)
            for rows, drawn in self._draw(split, "drawing"):
                tokens[rows], periods[rows] = drawn.tokens, drawn.periods
                targets = drawn.tokens[:, 1:].ravel()
                classes[split] += np.bincount(targets, minlength=self.law.vocab_size)
        in_test = int(classes["test"][classes["train"].argmax()])
        made.baselines = {"majority class": 100.0 * in_test / int(classes["test"].sum())}
        made.save(IDEAL, ideal_bits(made.array("test_tokens"), self.law).astype(np.float32))

    def _shape(self, split: str) -> tuple[int, int]:
        return self.counts[split], self.law.length + 1

    def _dataset(self, cache: Cache) -> Dataset:
        return Dataset(
            splits={split: self._split(cache, split) for split in SPLITS},
            source=cache.manifest.source,
            fingerprint=cache.fingerprint,
            baselines=cache.manifest.baselines,
            baseline_bits={"uniform": math.log2(self.law.vocab_size)},
            lowest_bits={
                "entropy rate": self.law.entropy_rate,
                "ideal predictor": float(cache.array(IDEAL).mean(dtype=np.float64)),
            },
            folder=cache.folder,
        )

    def _split(self, cache: Cache, split: str) -> NextToken:
        examples, total = self._shape(split)
        periods = np.asarray(cache.array(f"{split}_periods"))
        return NextToken(
            cache.array(f"{split}_tokens").reshape(examples * total),
            np.arange(examples) * total,
            np.full(examples, self.law.length),
            fields={
                "period": periods,
                "divides length": np.where(self.law.length % periods == 0, "yes", "no"),
            },
            ideal_bits=cache.array(IDEAL) if split == "test" else None,
        )

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: draws new examples, with the periods of training at any length."""
        drawn = super().fresh(options, length=length, examples=examples)
        if length is None:
            return drawn
        trained = options["periods_of_length"] or options["sequence_length"]
        return {**drawn, "sequence_length": length, "periods_of_length": trained}

    def verify(self, dataset: Dataset) -> list[str]:
        """See `Task.verify`: checks checksums, periods and noise, and draws all examples again."""
        cache = read_cache(dataset.folder)
        cache.check_files(checksums=True)
        replaced = sum(self._check_split(cache, split) for split in SPLITS)
        total = sum(self.counts.values()) * (self.law.length + 1)
        expected, variance = total * self.law.noise, total * self.law.noise * (1 - self.law.noise)
        if abs(replaced - expected) > SIGMAS * math.sqrt(variance):
            raise DataError(
                f"{cache.folder}: {replaced} of {total} tokens are not the word's, expected some "
                f"{expected:.0f} by noise {self.law.noise}"
            )
        again = ideal_bits(cache.array("test_tokens"), self.law)
        if not np.allclose(again, cache.array(IDEAL), rtol=1e-3, atol=1e-3):
            raise DataError(f"{cache.folder}: the ideal predictor needs other bits than it says")
        return [
            "sizes and checksums of all files match the manifest",
            f"{sum(self.counts.values())} examples were drawn again and are the same",
            f"their periods are {', '.join(map(str, self.law.periods))}",
            f"{100 * replaced / total:.2f} % of their tokens are not the repeated word's",
            f"the ideal predictor needs {again.mean():.4f} bits per target of the test split",
        ]

    def _check_split(self, cache: Cache, split: str) -> int:
        """Compare a split with what is drawn again; return how many tokens are not the word's."""
        tokens, periods = cache.array(f"{split}_tokens"), cache.array(f"{split}_periods")
        replaced = 0
        for rows, drawn in self._draw(split, "checking"):
            same = np.array_equal(tokens[rows], drawn.tokens)
            if not (same and np.array_equal(periods[rows], drawn.periods)):
                raise DataError(
                    f"{cache.folder}: {split} examples {rows.start} to {rows.stop - 1} are not "
                    f"what their law draws"
                )
            replaced += int(drawn.is_replaced.sum())
        return replaced
