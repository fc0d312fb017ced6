"""What is recorded where some positions of an example have labels: token and sequence accuracy."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import numpy as np
from pydantic import Field, model_validator

from lra.record.schema import ROUNDING, Count, PositiveCount, Record, ShortText

SEGMENT = "segment"
"""Field of metadata whose values divide a split into segments, which have equal weight."""


class SegmentScore(Record):
    """The score of one segment of a split."""

    name: ShortText
    """The value of the field "segment"; empty where a split has no segments."""
    examples: PositiveCount
    correct_examples: Count
    """Examples all of whose labels were predicted."""
    targets: PositiveCount
    """Positions that have a label."""
    correct: Count
    """Positions whose label was predicted."""

    @model_validator(mode="after")
    def _consistent(self) -> SegmentScore:
        if self.correct > self.targets or self.correct_examples > self.examples:
            raise ValueError(f"segment {self.name!r} has more right answers than questions")
        return self

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


def token_scores(outcomes: np.ndarray, metadata: Mapping[str, np.ndarray]) -> TokenScores:
    """Score the examples of a split, segment by segment.

    Args:
        outcomes: (examples, 3) labelled positions, those predicted right, and the first wrong one.
        metadata: fields of the examples, of which "segment" divides them.
    """
    names = metadata.get(SEGMENT, np.full(len(outcomes), "")).astype(str)
    found: list[SegmentScore] = []
    for name in dict.fromkeys(names.tolist()):
        targets, correct, _ = outcomes[names == name].T
        found.append(
            SegmentScore(
                name=name,
                examples=len(targets),
                correct_examples=int((targets == correct).sum()),
                targets=int(targets.sum()),
                correct=int(correct.sum()),
            )
        )
    return TokenScores(segments=found)


def refuse_other_accuracy(
    accuracy: float, correct: int, total: int, tokens: TokenScores | None
) -> None:
    """Refuse an accuracy in percent that is not that of the counts beside it.

    Args:
        correct: right answers.
        total: targets.
        tokens: the scores where some positions have labels; the accuracy is then theirs.
    Raises: ValueError saying so.
    """
    expected, origin = 100.0 * correct / total, f"{correct} in {total}"
    if tokens is not None:
        sums = [(one.correct, one.targets) for one in tokens.segments]
        if (correct, total) != tuple(map(sum, zip(*sums, strict=True))):
            raise ValueError(f"the segments do not add up to {correct} of {total} right answers")
        expected, origin = tokens.accuracy, "its segments"
    if abs(expected - accuracy) > ROUNDING:
        raise ValueError(f"test_accuracy is {accuracy}, expected that of {origin}")
