"""Several labels for each example, each 0 or 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import FiniteFloat

from lra.goals.measure import Measure
from lra.goals.numbers import NumbersResult, NumbersScorer, Scores
from lra.goals.result import Predictions, take_real_numbers
from lra.tasks.goals import ExampleLabels

if TYPE_CHECKING:
    from torch import Tensor


class MultilabelResult(NumbersResult):
    """Mean average precision, and F1 where labels of probability 1/2 or more are predicted.

    Both are means over labels. One that no test example has does not count.
    """

    goal: Literal["example labels"] = "example labels"
    val_average_precision: FiniteFloat | None = None
    """Mean average precision on the validation set, at the best step."""

    prefix = "labels."
    of_what = "labels of"
    compared = "labels predicted right"
    chance = "no better than frequencies"
    baseline_name = "frequency of each label"
    named = {"average_precision": "mean average precision", "f1": "F1"}  # noqa: RUF012
    validation = Measure(
        "validation mean average precision", lambda result: result.val_average_precision, digits=3
    )

    def read_predictions(self, columns: dict[str, np.ndarray]) -> Predictions:
        """See `Result.read_predictions`: merits are shares of the labels predicted right."""
        kinds = "label_", "prediction_"
        outputs = sum(name.startswith(kinds[0]) for name in columns)
        labels, predictions = take_real_numbers(columns, ExampleLabels.columns(max(1, outputs)))
        self.check_scores(MultilabelScorer.measure(labels, predictions))
        return Predictions(labels, ((predictions >= 0.5) == labels).mean(axis=1), columns)  # noqa: PLR2004


class MultilabelScorer(NumbersScorer):
    """Binary cross-entropy in nats, the mean over the labels of an example."""

    result = MultilabelResult
    validated = "val_average_precision"
    resamples = 200

    def losses(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """See `Scorer.losses`; nothing is right."""
        from torch.nn import functional

        losses = functional.binary_cross_entropy_with_logits(
            logits.float(), labels.float(), reduction="none"
        )
        return losses.mean(dim=1), self.goal.is_target(labels) & False

    def merit(self, scores: Scores, loss: float) -> float:
        """See `NumbersScorer.merit`: mean average precision."""
        return 100 * scores.get("average_precision", 0.0)

    def predict(self, logits: np.ndarray) -> np.ndarray:
        """See `Scorer.predict`: probabilities of the labels, (examples, outputs)."""
        from scipy.special import expit

        return expit(logits.astype(np.float64))

    def predict_trivially(self, train: np.ndarray) -> np.ndarray:
        """See `NumbersScorer.predict_trivially`: their frequencies."""
        return train.mean(axis=0)

    @staticmethod
    def measure(labels: np.ndarray, predictions: np.ndarray) -> Scores:
        """See `NumbersScorer.measure`, by scikit-learn."""
        from sklearn.metrics import average_precision_score, f1_score

        pairs = [(true, p) for true, p in zip(labels.T, predictions.T, strict=True) if true.any()]
        precisions = [float(average_precision_score(*pair)) for pair in pairs]
        f1 = [float(f1_score(true, p >= 0.5)) for true, p in pairs]  # noqa: PLR2004
        count = max(1, len(pairs))
        return {"average_precision": sum(precisions) / count, "f1": sum(f1) / count}
