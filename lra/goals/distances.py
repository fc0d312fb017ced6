"""Labels of positions by distance: the effective window of a mixer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from lra.goals.labels import LONGEST, LabelScorer, LabelsResult
from lra.goals.measure import Measure
from lra.goals.result import Predictions, take_whole_numbers
from lra.goals.scorer import Add, Output, Score, starts_of
from lra.runtime.tables import rounded
from lra.schema import Count, PositiveCount, Record
from lra.statistics import Interval, bootstrap_interval
from lra.tasks.goals import DistantLabels

if TYPE_CHECKING:
    from lra.tasks.base import Dataset, Split, TaskInfo

HELD = 0.5
"""Gain from which a distance belongs to the effective window."""
RESAMPLES = 1000


def calculate_gains(asked: np.ndarray, right: np.ndarray, classes: int) -> np.ndarray:
    """Calculate (accuracy - chance) / (1 - chance) at each distance, (distances,) all."""
    return (right / np.maximum(asked, 1) - 1 / classes) / (1 - 1 / classes)


def count_held(gains: np.ndarray) -> int:
    """Count the distances, from the first on, up to which every gain is at least HELD."""
    return int(np.logical_and.accumulate(gains >= HELD).sum())


class DistanceScore(Record):
    """The score of the labels at one distance from what determines them."""

    distance: PositiveCount
    asked: PositiveCount
    right: Count


class DistanceResult(LabelsResult):
    """The effective window: the largest distance up to which gains are at least HELD."""

    goal: Literal["labels by distance"] = "labels by distance"  # pyright: ignore[reportIncompatibleVariableOverride]
    classes: int = Field(ge=2, le=2**16)
    distances: list[DistanceScore] = Field(default_factory=list, max_length=100)
    """From the smallest on; empty without a test."""
    low: Count | None = None
    """Lower end of the 95 % interval of the window, by a bootstrap of the test examples."""
    high: Count | None = None

    prefix = "window."
    is_accuracy = False
    of_what = "effective windows of"
    grows_with_training = True
    remark = (
        "The effective window is the largest distance, in positions from a value to the read that "
        "asks for it, up to which the accuracy is at least halfway from chance to 100 % at every "
        "distance. It grows with training: compare rows of equal steps. A gain is (accuracy - "
        "chance) / (100 % - chance). Minutes are those of training."
    )

    @model_validator(mode="after")
    def _check_distances(self) -> Self:
        places, asked, right = self.counts
        total = (int(asked.sum()), int(right.sum())) if self.distances else (None, None)
        if total != (self.test_total, self.test_correct):
            raise ValueError(f"(labels, right ones) of all distances are {total}")
        if (np.diff(places) <= 0).any() or (right > asked).any():
            raise ValueError("distances do not increase, or more labels are right than asked")
        if self.distances and (self.interval is None or self.interval[0] > self.interval[1]):
            raise ValueError(f"the interval of the window is {self.low} to {self.high}")
        return self

    @property
    def counts(self) -> np.ndarray:
        """(3, distances): each distance, its labels, and the right ones."""
        rows = [(one.distance, one.asked, one.right) for one in self.distances]
        return np.array(rows, dtype=np.int64).reshape(-1, 3).T

    @property
    def gains(self) -> np.ndarray:
        """See `calculate_gains`."""
        _, asked, right = self.counts
        return calculate_gains(asked, right, self.classes)

    @property
    def window(self) -> int | None:
        """The effective window in positions; 0 if even the first distance is not held."""
        places = [0, *(one.distance for one in self.distances)]
        return places[count_held(self.gains)] if self.distances else None

    @property
    def mean_gain(self) -> float | None:
        """The mean of gains over distances, in percent."""
        return 100 * float(self.gains.mean()) if self.distances else None

    @property
    def measures(self) -> list[Measure]:
        """See `Result.measures`."""
        highest = self.distances[-1].distance if self.distances else math.inf
        window, interval = attrgetter("window"), attrgetter("interval")
        return [
            Measure("effective window", window, digits=0, interval=interval, highest=highest),
            Measure("mean gain, %", attrgetter("mean_gain"), digits=1),
        ]

    @property
    def unit(self) -> str:
        """See `Result.unit`."""
        return "positions"

    @property
    def trivial_scores(self) -> dict[str, float]:
        """See `Result.trivial_scores`: trivial baselines have accuracies, but no windows."""
        return {}

    @property
    def text(self) -> str:
        """See `Result.text`."""
        if self.window is None:
            return ""
        longest = self.distances[-1].distance
        bound = "at least " * (self.window == longest)
        window = f"{bound}{self.window:,}" if self.window else "below 1"
        return f"effective window {window} of {longest:,} positions"

    @property
    def validation_text(self) -> str:
        """See `Result.validation_text`."""
        return f"accuracy {self.validation.text(self.val_accuracy)} %"

    def describe_test(self) -> list[str]:
        """See `Result.describe_test`."""
        low, high = self.interval or (0, 0)
        verdict = f", {self.chance}" if self.is_at_chance else ""
        return [f"{self.text}{verdict}", f"(95 % interval {low:,.0f} to {high:,.0f})"]

    def describe_more(self) -> list[str]:
        """See `Result.describe_more`."""
        if self.mean_gain is None or self.test_accuracy is None:
            return []
        gain, accuracy = rounded(self.mean_gain, 1), rounded(self.test_accuracy, 2)
        return [f"mean gain over distances {gain} %", f"test accuracy {accuracy} %"]

    @property
    def interval(self) -> Interval | None:
        """See `Result.interval`: in positions."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def read_predictions(self, columns: dict[str, np.ndarray]) -> Predictions:
        """See `Result.read_predictions`."""
        goal = DistantLabels(self.classes, tuple(one.distance for one in self.distances))
        counts = np.stack(take_whole_numbers(columns, goal.columns_by_distance, LONGEST))
        asked, right = np.split(counts, 2)
        if (right < 0).any() or (right > asked).any():
            raise ValueError("more labels are right than asked, or fewer than none")
        if not np.array_equal(self.counts[1:].ravel(), counts.sum(axis=1)):
            raise ValueError("the labels at each distance are not those of its record")
        predictions = super().read_predictions(columns)
        if not np.array_equal(asked.sum(axis=0), predictions.labels):
            raise ValueError("an example has other labels than its distances have")
        return predictions

    def list_fields(self) -> dict[str, Any]:
        """See `Result.list_fields`: the window, and counts for each distance."""
        fields = super().list_fields()
        del fields["window.distances"], fields["window.segments"]
        fields |= {"window.positions": self.window, "window.mean_gain": self.mean_gain}
        for one in self.distances:
            fields[f"window.asked_{one.distance}"] = one.asked
            fields[f"window.right_{one.distance}"] = one.right
        return fields


class DistanceScorer(LabelScorer):
    """Cross-entropy of labels of positions, and their accuracy at each distance."""

    result = DistanceResult

    def __init__(self, info: TaskInfo) -> None:
        super().__init__(info)
        assert isinstance(info.goal, DistantLabels)
        self.distances, self.columns = info.goal.distances, info.goal.columns_by_distance

    def score(self, outputs: Sequence[Output], split: Split, add: Add) -> Score:
        """See `Scorer.score`; predictions have the numbers of labels at each distance."""
        score = super().score(outputs, split, add)
        targets = score.predictions["targets"]
        places = np.split(np.arange(len(split.labels)), starts_of(targets)[1:])
        is_right = np.zeros(len(split.labels), dtype=np.int64)
        for output in outputs:
            is_right[np.concatenate([places[i] for i in output.indices])] = output.kept[1].numpy()
        assert split.distances is not None
        column = np.searchsorted(self.distances, split.distances)
        counts = np.zeros((2, len(self.distances), len(split)), dtype=np.int64)
        cell = column, np.arange(len(split)).repeat(targets)
        np.add.at(counts[0], cell, 1)
        np.add.at(counts[1], cell, add(is_right))
        of_distances = zip(self.distances, *counts.sum(axis=2).tolist(), strict=True)
        scores = [DistanceScore(distance=d, asked=n, right=m) for d, n, m in of_distances]
        of_examples = dict(zip(self.columns, np.concatenate(counts), strict=True))
        predictions = {**score.predictions, **of_examples}
        return replace(score, result={**score.result, "distances": scores}, predictions=predictions)

    def _list_facts(self, score: Score | None, dataset: Dataset) -> dict[str, Any]:
        facts = super()._list_facts(score, dataset) | {"classes": self.goal.outputs}
        if score is None:
            return facts
        counts = np.stack([score.predictions[name] for name in self.columns])

        def count_drawn(drawn: np.ndarray) -> float:
            asked, right = np.split(counts[:, drawn].sum(axis=1), 2)
            return count_held(calculate_gains(asked, right, self.goal.outputs))

        low, high = bootstrap_interval(count_drawn, counts.shape[1], RESAMPLES)
        places = [0, *self.distances]
        return facts | {"low": places[math.floor(low)], "high": places[math.ceil(high)]}
