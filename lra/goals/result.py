"""What records hold of what a model scores; each goal has a form of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from lra.goals.measure import ACCURACY, Measure
from lra.runtime.tables import rounded
from lra.schema import Count, Percent, PositiveCount, Record, ShortText
from lra.statistics import Interval, is_at_chance, wilson_interval
from lra.tasks.goals import Goal

NO_PREDICTION = -1
"""Class in predictions.csv of an example that the model gave no answer to."""


@dataclass(frozen=True)
class Predictions:
    """Predictions of a model for every test example, in the order of the data."""

    labels: np.ndarray
    """(examples, ...) what is kept of the true labels."""
    merits: np.ndarray
    """(examples,) share of the labels of each example that were predicted, or what else it adds to
    the measure that mixers are compared by: the mean over examples is that measure."""
    metadata: dict[str, np.ndarray]
    """Metadata fields by name, (examples,) numbers or strings each; length is among them."""
    first_wrong: np.ndarray | None = None
    """Where all positions have labels, (examples,) the first whose label was not predicted, or
    NO_PREDICTION. Otherwise None."""

    def same_examples(self, other: Predictions) -> bool:
        """Whether labels and metadata equal those of other predictions."""
        return (
            np.array_equal(self.labels, other.labels)
            and self.metadata.keys() == other.metadata.keys()
            and all(np.array_equal(v, other.metadata[name]) for name, v in self.metadata.items())
        )


class Result(Record):
    """What a model scores, and what that compares with; null stands for what was not measured."""

    test_total: PositiveCount | None = None
    """Targets of the test set: examples, or positions."""
    test_non_finite: Count | None = None
    """Targets whose logits are not finite, which count as wrong; null in older records."""

    prefix: ClassVar[str] = ""
    """Start of the names of what this goal alone measures, in tables of runs."""
    is_accuracy: ClassVar[bool] = False
    """Whether results are ranked by accuracy, and share tables with those of other tasks."""
    targets: ClassVar[str] = "examples"
    """What has a target."""
    of_what: ClassVar[str] = ""
    """What boards of one task are called by, before the task's name."""
    compared: ClassVar[str] = ""
    """What two mixers are compared by, in percent; empty if predictions are not kept."""
    of_non_finite: ClassVar[str] = "they count as wrong"
    """What targets are called whose logits are not finite."""
    grows_with_training: ClassVar[bool] = False
    """Whether the score means little without the number of steps."""
    chance: ClassVar[str] = "at chance"
    """What a result is called that is no better than the best answer that heeds no input."""
    validation: ClassVar[Measure]
    """What settings are chosen by."""
    loss_name: ClassVar[str] = "validation loss, nats"
    remark: ClassVar[str] = "Minutes are those of training."
    """What a table of `more_measures` says of its columns."""

    @property
    def measures(self) -> list[Measure]:
        """What results are measured by, the one that they are ranked by first."""
        return []

    @property
    def more_measures(self) -> list[Measure]:
        """What a table of one task shows beside them."""
        return []

    @property
    def score(self) -> float | None:
        """What results are ranked by."""
        return self.measures[0].of(self)

    @property
    def unit(self) -> str:
        """The unit of scores."""
        return "%"

    @property
    def text(self) -> str:
        """What the model scored on the test set, as commands print it; empty if nothing."""
        return ""

    @property
    def validation_text(self) -> str:
        """What the best validation scored."""
        value = self.validation.of(self)
        return f"{self.validation.text(value)} {self.unit}"

    def describe_test(self) -> list[str]:
        """Write what the model scored on the test set, in parts of a line."""
        return [f"test {self.text}"]

    def describe_more(self) -> list[str]:
        """Write what else was measured, in parts of a line; nothing without a test."""
        return []

    @property
    def test_examples(self) -> int | None:
        """Number of independent test results, by which intervals are calculated."""
        return self.test_total

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the score, for another test set."""
        return None

    @property
    def trivial_scores(self) -> Mapping[str, float]:
        """Scores of trivial baselines, by name."""
        return {}

    @property
    def best_baseline(self) -> tuple[str, float] | None:
        """The best trivial baseline and its score."""
        best = min if self.measures[0].lowest_is_best else max
        return best(self.trivial_scores.items(), key=lambda baseline: baseline[1], default=None)

    @property
    def best_possible(self) -> tuple[str, float] | None:
        """The highest of the bounds that no model beats, and its score; None: not known."""
        return None

    @property
    def is_at_chance(self) -> bool:
        """Whether the score is no better than that of an answer that heeds no input."""
        return False

    def fitted(self, goal: Goal) -> Goal:
        """Return a goal with what training took from its labels; see `Goal.fitted`."""
        return goal

    def read_predictions(self, columns: dict[str, np.ndarray]) -> Predictions:
        """Make predictions of the columns of predictions.csv.

        Raises: KeyError or ValueError for columns that contradict each other or the result.
        """
        raise ValueError("predictions of this kind are not kept")

    def list_fields(self) -> dict[str, Any]:
        """List what a table of runs has a column of, by the names of the columns."""
        fields = self.model_dump(mode="json", exclude={"by_position"})
        shared = {"goal", *AccuracyResult.model_fields}
        return {n if n in shared else self.prefix + n: value for n, value in fields.items()}


class AccuracyResult(Result):
    """What a model scores where predictions are right or wrong."""

    test_accuracy: Percent | None = None
    """Accuracy on the test set in percent."""
    test_correct: Count | None = None
    val_accuracy: Percent | None = None
    """Accuracy in percent at the best step."""
    baselines: dict[ShortText, Percent] = Field(default_factory=dict)
    """Test accuracy in percent of trivial baselines."""
    largest_class: Percent | None = None
    """Percent of the test set in its largest class: the highest score of one answer to all."""

    is_accuracy = True
    compared = "test accuracy"
    counted: ClassVar[str] = ""
    """Word after numbers of targets."""
    validation = Measure("validation accuracy", lambda result: result.val_accuracy)

    @model_validator(mode="after")
    def _check_test(self) -> Self:
        tested = self.test_accuracy, self.test_correct, self.test_total
        accuracy, correct, total = tested
        if accuracy is None or correct is None or total is None:
            if tested != (None,) * 3 or self.test_non_finite:
                raise ValueError(f"test accuracy, correct, total {tested}")
            return self
        if abs(self._expected_accuracy() - accuracy) > 1e-6:  # noqa: PLR2004
            raise ValueError(f"test_accuracy is {accuracy}, expected {self._expected_accuracy()}")
        if correct + (self.test_non_finite or 0) > total:
            raise ValueError(f"more targets are right or not finite than there are: {total}")
        return self

    def _expected_accuracy(self) -> float:
        return 100.0 * (self.test_correct or 0) / (self.test_total or 1)

    @property
    def measures(self) -> list[Measure]:
        """See `Result.measures`."""
        return [ACCURACY]

    @property
    def text(self) -> str:
        """See `Result.text`."""
        return "" if self.test_accuracy is None else f"{rounded(self.test_accuracy, 2)} %"

    def describe_test(self) -> list[str]:
        """See `Result.describe_test`."""
        name, baseline = self.best_baseline or ("", 0.0)
        accuracy, (low, high) = self.test_accuracy or 0.0, self.interval or (0.0, 100.0)
        verdicts = [self.chance] if self.is_at_chance else []
        if name != "majority class" and accuracy < baseline:
            verdicts.append("below a trivial baseline")
        verdict = f", {' and '.join(verdicts)}" if verdicts else ""
        return [
            f"test accuracy {self.text}{verdict}",
            f"({self.test_correct:,} of {self.test_total:,}{self.counted}; 95 % interval "
            f"{rounded(low, 1)} to {rounded(high, 1)})",
        ]

    @property
    def interval(self) -> Interval | None:
        """See `Result.interval`: in percent."""
        if self.test_accuracy is None or not self.test_examples:
            return None
        return wilson_interval(self.test_accuracy / 100, self.test_examples)

    @property
    def trivial_scores(self) -> Mapping[str, float]:
        """See `Result.trivial_scores`."""
        return self.baselines

    @property
    def is_at_chance(self) -> bool:
        """See `Result.is_at_chance`: whether the accuracy is no better than one answer to all."""
        majority = self.baselines.get("majority class")
        constant = majority if self.largest_class is None else self.largest_class
        if constant is None or self.test_accuracy is None or not self.test_examples:
            return False
        return is_at_chance(self.test_accuracy, constant, self.test_examples)

    def check_counts(self, total: int, right: int) -> None:
        """Raise a ValueError unless so many predictions, and so many right ones, were tested."""
        if (total, right) != (self.test_total, self.test_correct):
            raise ValueError(
                f"{right} of {total} right, its record says {self.test_correct} of "
                f"{self.test_total}"
            )


def take_whole_numbers(
    columns: dict[str, np.ndarray], names: Sequence[str], limit: int
) -> list[np.ndarray]:
    """Take columns of whole numbers from NO_PREDICTION to below a limit out of all columns.

    Raises: KeyError or ValueError for a column that is missing, or holds anything else.
    """
    for name in names:
        column = columns[name]
        if column.dtype.kind != "i" or not ((column >= NO_PREDICTION) & (column < limit)).all():
            raise ValueError(f"{name}: not only whole numbers from {NO_PREDICTION} to {limit}")
    return [columns.pop(name) for name in names]


def take_real_numbers(
    columns: dict[str, np.ndarray], names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Take columns of labels, and as many of predictions, out of all columns.

    Returns: labels and predictions, (examples, outputs) both.
    Raises: KeyError or ValueError for a column that is missing, or holds anything else.
    """
    numbers = np.stack([columns.pop(name) for name in names], axis=1)
    if numbers.dtype.kind not in "if" or not np.isfinite(numbers).all():
        raise ValueError(f"{', '.join(names)}: not only finite numbers")
    labels, predictions = np.split(numbers.astype(np.float64), 2, axis=1)
    return labels, predictions


def upgrade(record: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the content of a record of schema 2, whose results had no form of their own."""
    fields = dict(record)
    result = {name: fields.pop(name) for name in AccuracyResult.model_fields if name in fields}
    positions, tokens = fields.pop("positions", None), fields.pop("tokens", None)
    goal = "class"
    if positions is not None:
        goal = "next token"
        result |= positions
    elif tokens is not None:
        goal = "labels"
        result |= tokens
    return {**fields, "schema_version": 3, "result": {"goal": goal, **result}}
