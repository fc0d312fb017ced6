"""Classes of some positions of each example, scored by segments of the split."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from lra.goals.result import AccuracyResult, Predictions, take_whole_numbers
from lra.goals.scorer import Add, Output, Score, Scorer, starts_of
from lra.runtime.tables import rounded
from lra.schema import Count, PositiveCount, Record, ShortText
from lra.tasks.goals import PositionLabels

if TYPE_CHECKING:
    from torch import Tensor

    from lra.tasks.base import Batch, Split


LONGEST = 2**31
"""Limit of the lengths of examples with labels of positions."""


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


class LabelsResult(AccuracyResult):
    """Token and sequence accuracy of labels of positions: means over the segments of a split."""

    goal: Literal["labels"] = "labels"
    segments: list[SegmentScore] = Field(default_factory=list)

    prefix = "tokens."
    targets = "positions"
    counted = " labels"

    def _expected_accuracy(self) -> float:
        return statistics.mean(segment.token_accuracy for segment in self.segments)

    @property
    def sequence_accuracy(self) -> float | None:
        """Percent of the examples all of whose labels were predicted, the mean over segments."""
        accuracies = [segment.sequence_accuracy for segment in self.segments]
        return statistics.mean(accuracies) if accuracies else None

    def read_predictions(self, columns: dict[str, np.ndarray]) -> Predictions:
        """See `Result.read_predictions`."""
        names = PositionLabels.columns(1)
        targets, correct, first_wrong = take_whole_numbers(columns, names, LONGEST)
        (lengths,) = take_whole_numbers({**columns}, ("length",), LONGEST)
        if (targets > lengths).any() or (correct > targets).any() or (first_wrong >= lengths).any():
            raise ValueError("an example has more labels than positions, or than right ones")
        self.check_counts(int(targets.sum()), int(correct.sum()))
        are_all_scored = np.array_equal(targets, lengths)
        return Predictions(
            targets, correct / targets, columns, first_wrong if are_all_scored else None
        )

    def describe_more(self) -> list[str]:
        """See `Result.describe_more`."""
        if self.sequence_accuracy is None:
            return []
        return [f"all labels of a sequence right: {rounded(self.sequence_accuracy, 2)} %"]

    @property
    def test_examples(self) -> int | None:
        """Number of examples, which are independent of each other, as their tokens are not."""
        return sum(segment.examples for segment in self.segments) or None


class LabelScorer(Scorer):
    """Cross-entropy of labels of positions, and their accuracy in the mean over segments."""

    result = LabelsResult

    def keep(self, logits: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """See `Scorer.keep`: losses, whether predictions are right, and positions in the batch."""
        loss, is_right = self.losses(logits, batch.labels)
        assert batch.scored is not None
        return loss, is_right & loss.isfinite(), batch.scored  # NaN has an argmax, too

    def score(self, outputs: Sequence[Output], split: Split, add: Add) -> Score:
        """See `Scorer.score`; predictions are counts of each example and its first wrong one."""
        outcomes = np.zeros((len(split), 3), dtype=np.int64)
        own_loss, own_non_finite = 0.0, 0
        for output in outputs:
            loss, is_right, where = (tensor.numpy() for tensor in output.kept)
            is_wrong, example = ~is_right, np.repeat(output.indices, output.counts)
            position = where - starts_of(output.lengths).repeat(output.counts)
            own_loss += float(loss.sum(dtype=np.float64))
            own_non_finite += int((~np.isfinite(loss)).sum())
            outcomes[output.indices, 0] = output.counts
            np.add.at(outcomes[:, 1], example[is_right], 1)
            # In reverse order, the first wrong position of an example is written last, and stays.
            # Positions are counted from 1, because 0 stands for no wrong one.
            outcomes[example[is_wrong][::-1], 2] = position[is_wrong][::-1] + 1
        outcomes = add(outcomes)
        outcomes[:, 2] -= 1
        total, correct, _ = outcomes.sum(axis=0).tolist()
        loss, non_finite = add(np.array([own_loss, own_non_finite])).tolist()
        segments = score_segments(outcomes, split.metadata())
        accuracy = statistics.mean(segment.token_accuracy for segment in segments)
        return Score(
            total=total,
            loss=loss / total,
            non_finite=round(non_finite),
            merit=accuracy,
            numbers={"val_accuracy": accuracy, "val_loss": loss / total},
            text=f"accuracy {accuracy:.2f} %, loss {loss / total:.3f}",
            result={"test_accuracy": accuracy, "test_correct": correct, "segments": segments},
            predictions=dict(zip(PositionLabels.columns(1), outcomes.T, strict=True)),
        )


def score_segments(outcomes: np.ndarray, metadata: Mapping[str, np.ndarray]) -> list[SegmentScore]:
    """Score the examples of a split, segment by segment.

    Args:
        outcomes: (examples, 3) labelled positions, those predicted right, and the first wrong one.
        metadata: fields of the examples, of which "segment" divides them into segments, which have
            equal weight.
    """
    names = metadata.get("segment", np.full(len(outcomes), "")).astype(str)
    segments: list[SegmentScore] = []
    for name in dict.fromkeys(names.tolist()):
        targets, correct, _ = outcomes[names == name].T
        counts = {"targets": int(targets.sum()), "correct": int(correct.sum())}
        whole = int((targets == correct).sum())
        segments.append(
            SegmentScore(name=name, examples=len(targets), correct_examples=whole, **counts)
        )
    return segments
