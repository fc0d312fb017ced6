"""Languages: evaluate sequences of a formal language, longer ones than in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from tasks.base import TaskInfo
from tasks.generated import SPLITS, Drawn, SequenceTask, draw_in_groups
from tasks.languages.law import LANGUAGES, draw
from tasks.splits import PackedTokens, Sequences

COUNTS = {"train": 200_000, "val": 8_192, "test": 8_192}
BAND = 40
"""Width of the bands of lengths by which results are broken down."""
Length = Annotated[int, Field(ge=1, le=2**16)]


class Languages(SequenceTask):
    """Say what a sequence of a formal language evaluates to.

    Sequences of validation and test are longer than those of training. All lengths that are
    possible within the limits are equally likely: arithmetic without brackets has even lengths.
    Published scores are often scaled: (accuracy - chance) / (1 - chance).

    Args:
        language: parity (of the ones among bits), even-pairs (whether the number of unequal
            neighbours among bits is even), cycle-navigation (the place on a circle of 5 after steps
            of 0, 1 or -1), modular-arithmetic (of digits below 5 with + - *), or
            modular-arithmetic-brackets.
        train_min: shortest sequence of the training set.
        train_max: longest sequence of the training set.
        test_min: shortest sequence of the validation set and the test set.
        test_max: longest sequence of the validation set and the test set.
        train: sequences to train on.
        val: sequences to select on.
        test: sequences to test on.
        data_seed: seed of the generator.
    Raises: ValueError for limits between which the language has no sequence.
    """

    name = "languages"
    default_counts = COUNTS

    def __init__(
        self,
        *,
        language: Literal[
            "parity", "even-pairs", "cycle-navigation", "modular-arithmetic",
            "modular-arithmetic-brackets",
        ] = "parity",
        train_min: Length = 3,
        train_max: Length = 40,
        test_min: Length = 40,
        test_max: Length = 256,
        train: PositiveInt = COUNTS["train"],
        val: PositiveInt = COUNTS["val"],
        test: PositiveInt = COUNTS["test"],
        data_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0,
    ) -> None:  # fmt: skip
        self.language_name = language
        self.language = LANGUAGES[language]
        tested = self._lengths("test", test_min, test_max)
        self.lengths = {
            "train": self._lengths("train", train_min, train_max), "val": tested, "test": tested,
        }  # fmt: skip
        self.counts = {"train": train, "val": val, "test": test}
        self.data_seed = data_seed
        self.info = TaskInfo(
            name=self.name,
            num_classes=self.language.num_classes,
            max_length=int(max(lengths[-1] for lengths in self.lengths.values())),
            vocab_size=self.language.vocab_size,
        )

    def _lengths(self, split: str, least: int, most: int) -> np.ndarray:
        if least > most:
            raise ValueError(
                f"{split}_min is {least}, expected at most {split}_max, which is {most}"
            )
        lengths = self.language.lengths(least, most)
        if not len(lengths):
            first, step = self.language.shortest, self.language.step
            raise ValueError(
                f"{split}_min is {least} and {split}_max is {most}, but {self.language_name} has "
                f"only sequences of {first}, {first + step}, {first + 2 * step}, ... positions; "
                f"use limits with one of these between them"
            )
        return lengths

    def describe_law(self) -> dict[str, Any]:
        """See `GeneratedTask.describe_law`."""
        limits = {split: [int(n[0]), int(n[-1])] for split, n in self.lengths.items()}
        return {"language": self.language_name, "lengths": limits, "version": 1}

    def describe_sequences(self) -> str:
        """See `GeneratedTask.describe_sequences`."""
        return f"sequences of {self.language_name}, of up to {self.info.max_length:,} symbols"

    def draw(self) -> dict[str, Drawn]:
        """See `SequenceTask.draw`."""
        return {split: self._draw_split(split) for split in SPLITS}

    def _draw_split(self, split: str) -> Drawn:
        first = SPLITS.index(split) << 32
        return draw_in_groups(
            f"drawing {split}",
            self.counts[split],
            lambda group: draw(self.language, self.lengths[split], self.data_seed, first | group),
        )

    def open_split(self, drawn: Drawn) -> PackedTokens:
        """See `SequenceTask.open_split`."""
        return PackedLanguage(Sequences(drawn.tokens, drawn.offsets), np.asarray(drawn.labels))

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: draws new sequences of at least three quarters of the length."""
        drawn = super().fresh(options, length=length, examples=examples)
        if length is None:
            return drawn
        return {**drawn, "test_min": max(1, 3 * length // 4), "test_max": length}


class PackedLanguage(PackedTokens):
    """Sequences of a language, with the metadata that results are broken down by."""

    def metadata(self) -> dict[str, np.ndarray]:
        """See `Split.metadata`: the band of the length, by its largest length."""
        return {"length up to": -(-self.lengths // BAND) * BAND}
