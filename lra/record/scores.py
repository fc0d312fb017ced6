"""What a model scored on a test set: accuracies, and the losses and scores of positions."""

from __future__ import annotations

import math
import statistics
from typing import Self

from pydantic import Field, model_validator

from lra.record.schema import (
    Amount,
    Count,
    DataRecord,
    FileName,
    MeasuredRecord,
    Percent,
    PositiveCount,
    Record,
    ShortText,
)
from lra.statistics import is_at_chance
from tasks.base import Dataset


class PositionLoss(Record):
    """The mean loss of targets at a range of positions of their windows."""

    field: ShortText = ""
    """Field of metadata whose `value` these windows have; empty: all windows."""
    value: ShortText = ""
    first: Count
    """First position of the range, 0-based."""
    last: Count
    targets: PositiveCount
    loss: Amount | None
    """Mean loss in nats; null if it is not finite."""
    ideal: Amount | None = None
    """Mean loss of the best possible predictor; null where the law of the data is not known."""


class PositionScores(Record):
    """Results where targets are positions; null: not measured."""

    val_loss: Amount | None = None
    """Mean loss in nats on the validation set, at the best step."""
    loss: Amount | None = None
    """Mean loss in nats on the test set; null also if it is not finite, as for the next two."""
    bits_per_byte: Amount | None = None
    perplexity: Amount | None = None
    text_bytes: PositiveCount | None = None
    """Bytes of the text that the test targets stand for; null where they are no text."""
    baseline_bits: dict[ShortText, Amount] = Field(default_factory=dict)
    """What trivial baselines take, by name: bits per byte of text or, without text, per target."""
    lowest_bits: dict[ShortText, Amount] = Field(default_factory=dict)
    """What no model is below on average, by name, in the same unit, where the law is known."""
    by_position: list[PositionLoss] = Field(default_factory=list)
    """Test losses by where in their windows the targets stand."""

    @property
    def bits(self) -> float | None:
        """Bits of the test set: per byte of text or, without text, per target."""
        if self.loss is None or self.text_bytes is not None:
            return self.bits_per_byte
        return self.loss / math.log(2)

    @property
    def text(self) -> str:
        """Bits and perplexity of the test set, as commands print them."""
        if self.bits is None:
            return "loss not finite"
        text = f"{self.bits:.3f} bits per {unit_of(self.text_bytes)}"
        return text if self.perplexity is None else f"{text}, perplexity {self.perplexity:.4g}"


def unit_of(text_bytes: int | None) -> str:
    """Name what bits are counted for: a byte, or a token of what is no text."""
    return "token" if text_bytes is None else "byte"


class SegmentScore(Record):
    """The score of the examples with one value of the field "segment", or of a whole split."""

    name: ShortText
    """The value; empty for a whole split."""
    examples: PositiveCount
    correct_examples: Count
    """Examples all of whose labels were predicted."""
    targets: PositiveCount
    """Positions that have a label."""
    correct: Count

    @property
    def token_accuracy(self) -> float:
        """Percent of the labels that were predicted."""
        return 100.0 * self.correct / self.targets

    @property
    def sequence_accuracy(self) -> float:
        """Percent of the examples all of whose labels were predicted."""
        return 100.0 * self.correct_examples / self.examples


class TokenScores(Record):
    """Token and sequence accuracy of a split: the means over its segments."""

    segments: list[SegmentScore] = Field(min_length=1)

    @property
    def accuracy(self) -> float:
        """Token accuracy in percent, the mean over segments."""
        return statistics.mean(segment.token_accuracy for segment in self.segments)

    @property
    def sequence_accuracy(self) -> float:
        """Sequence accuracy in percent, the mean over segments."""
        return statistics.mean(segment.sequence_accuracy for segment in self.segments)

    @property
    def examples(self) -> int:
        """Number of examples, which are independent of each other, as their tokens are not."""
        return sum(segment.examples for segment in self.segments)


class TestedRecord(MeasuredRecord):
    """A record of a model's test; null stands for what was not measured."""

    run_id: FileName
    task: FileName
    mixer: FileName
    seed: Count
    config_hash: ShortText
    """Hash of the settings of the run whose model it is."""
    test_accuracy: Percent | None
    """Accuracy on the test set in percent."""
    test_correct: Count | None
    test_total: PositiveCount | None
    """Targets of the test set: examples, or positions."""
    test_non_finite: Count | None = None
    """Targets whose logits are not finite, which count as wrong; null in older records."""
    baselines: dict[ShortText, Percent]
    """Test accuracy in percent of trivial baselines."""
    largest_class: Percent | None = None
    """Percent of the test set in its largest class: the highest score of one answer to all."""
    positions: PositionScores | None = None
    tokens: TokenScores | None = None
    """Where some positions have labels."""
    data: DataRecord

    @model_validator(mode="after")
    def _check_accuracy(self) -> Self:
        accuracy, correct, total = self.test_accuracy, self.test_correct, self.test_total
        if accuracy is None or correct is None or total is None:
            return self
        expected = 100.0 * correct / total if self.tokens is None else self.tokens.accuracy
        if abs(expected - accuracy) > 1e-6:  # noqa: PLR2004
            raise ValueError(f"test_accuracy is {accuracy}, expected {expected}")
        if correct + (self.test_non_finite or 0) > total:
            raise ValueError(f"more targets are right or not finite than there are: {total}")
        return self

    @property
    def test_examples(self) -> int | None:
        """Number of independent test results, by which intervals are calculated."""
        return self.test_total if self.tokens is None else self.tokens.examples

    @property
    def score(self) -> float | None:
        """What results are ranked by: test accuracy in percent or, of positions, their bits."""
        return self.test_accuracy if self.positions is None else self.positions.bits

    @property
    def best_baseline(self) -> tuple[str, float] | None:
        """The best trivial baseline and its score."""
        if self.positions is not None:
            return min(self.positions.baseline_bits.items(), key=lambda one: one[1], default=None)
        return max(self.baselines.items(), key=lambda one: one[1], default=None)

    @property
    def is_at_chance(self) -> bool:
        """Whether the accuracy is no better than one answer to all, by a test of proportions."""
        majority = self.baselines.get("majority class")
        chance = majority if self.largest_class is None else self.largest_class
        if chance is None or self.test_accuracy is None or not self.test_examples:
            return False
        return is_at_chance(self.test_accuracy, chance, self.test_examples)


def describe_data(dataset: Dataset) -> list[str]:
    """Write a line on each note, each trivial baseline and each bound of a data set."""
    unit = f"bits per {unit_of(dataset.splits['test'].text_bytes)}"
    is_tested = dataset.selected_on == "test"
    return [
        *["the best model is selected on the test set, which validates it"] * is_tested,
        *(f"{note}: {count:,}" for note, count in dataset.notes.items() if count),
        *(f"trivial baseline, {name}: {accuracy:.2f} % of the test set"
          for name, accuracy in dataset.baselines.items()),
        *(f"trivial baseline, {name}: {bits:.3f} {unit}"
          for name, bits in dataset.baseline_bits.items()),
        *(f"lower bound, {name}: {bits:.3f} {unit}" for name, bits in dataset.lowest_bits.items()),
    ]  # fmt: skip
