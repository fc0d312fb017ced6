"""Real numbers for each example, standardised by the training split."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, FiniteFloat

from lra.goals.measure import Measure
from lra.goals.numbers import NumbersResult, NumbersScorer, Scores
from lra.goals.result import Predictions, take_real_numbers
from lra.goals.scorer import Score
from lra.schema import Amount
from lra.tasks.goals import ExampleValues, Goal

if TYPE_CHECKING:
    from torch import Tensor

    from lra.tasks.base import Dataset, TaskInfo


class RegressionResult(NumbersResult):
    """R2 and root mean squared error, each the mean over the labels of an example."""

    goal: Literal["values"] = "values"
    val_r2: FiniteFloat | None = None
    """R2 on the validation set, at the best step."""
    means: list[FiniteFloat] = Field(default_factory=list)
    """Mean of each label over the training split."""
    deviations: list[Amount] = Field(default_factory=list)
    """Standard deviation of each label over the training split."""

    prefix = "values."
    of_what = "real numbers of"
    compared = "explained variance (R2)"
    chance = "no better than the mean"
    baseline_name = "mean of the training labels"
    named = {"r2": "R2", "rmse": "root mean squared error"}  # noqa: RUF012 (a class variable)
    errors = ("rmse",)
    validation = Measure("validation R2", lambda result: result.val_r2, digits=3)
    loss_name = "validation loss, variances of the labels"

    def digits_of(self, key: str) -> int:
        """See `NumbersResult.digits_of`: errors have four digits of a label's deviation."""
        digits = 3 - math.floor(math.log10(min(self.deviations, default=1.0)))
        return 3 if key == "r2" else max(0, digits)

    def fitted(self, goal: Goal) -> Goal:
        """See `Result.fitted`."""
        assert isinstance(goal, ExampleValues)
        return replace(goal, means=tuple(self.means), deviations=tuple(self.deviations))

    def read_predictions(self, columns: dict[str, np.ndarray]) -> Predictions:
        """See `Result.read_predictions`: the mean of merits is R2, if no label is constant."""
        labels, predictions = take_real_numbers(columns, ExampleValues.columns(len(self.means)))
        self.check_scores(RegressionScorer.measure(labels, predictions))
        shares = (labels - predictions) ** 2 / np.maximum(labels.var(axis=0), 1e-300)
        return Predictions(labels, 1 - shares.mean(axis=1), columns)


class RegressionScorer(NumbersScorer):
    """Mean squared error of standardised labels: in variances of the training split."""

    result = RegressionResult
    validated = "val_r2"

    def __init__(self, info: TaskInfo) -> None:
        super().__init__(info)
        assert isinstance(info.goal, ExampleValues)
        self.means = np.array(info.goal.means)
        self.deviations = np.array(info.goal.deviations)

    def losses(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """See `Scorer.losses`: means over the labels of each example; nothing is right."""
        means, deviations = labels.new_tensor(np.stack([self.means, self.deviations]))
        errors = logits.float() - ((labels - means) / deviations).float()
        return errors.square().mean(dim=1), self.goal.is_target(labels) & False

    def predict(self, logits: np.ndarray) -> np.ndarray:
        """See `Scorer.predict`: real numbers in the unit of the labels, (examples, outputs)."""
        return logits * self.deviations + self.means

    def predict_trivially(self, train: np.ndarray) -> np.ndarray:
        """See `NumbersScorer.predict_trivially`: their means."""
        return self.means

    @staticmethod
    def measure(labels: np.ndarray, predictions: np.ndarray) -> Scores:
        """See `NumbersScorer.measure`.

        As in scikit-learn, R2 of a constant label is 1 if it is predicted exactly, and else 0.
        """
        errors, variances = ((labels - predictions) ** 2).mean(axis=0), labels.var(axis=0)
        exact, is_constant = (errors == 0).astype(float), variances == 0
        r2 = np.where(is_constant, exact, 1 - errors / np.where(is_constant, 1, variances))
        return {"r2": float(r2.mean()), "rmse": float(np.sqrt(errors).mean())}

    def _list_facts(self, score: Score | None, dataset: Dataset) -> dict[str, Any]:
        facts = super()._list_facts(score, dataset)
        return facts | {"means": self.means.tolist(), "deviations": self.deviations.tolist()}
