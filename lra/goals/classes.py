"""A class for each example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from lra.goals.result import NO_PREDICTION, AccuracyResult, Predictions, take_whole_numbers
from lra.goals.scorer import Add, Output, Score, Scorer, gather
from lra.tasks.base import MOST_CLASSES
from lra.tasks.goals import ExampleClass

if TYPE_CHECKING:
    from torch import Tensor

    from lra.tasks.base import Batch, Split


class ClassResult(AccuracyResult):
    """The accuracy of classes of examples."""

    goal: Literal["class"] = "class"

    def read_predictions(self, columns: dict[str, np.ndarray]) -> Predictions:
        """See `Result.read_predictions`."""
        labels, predicted = take_whole_numbers(columns, ExampleClass.columns(1), MOST_CLASSES)
        is_right = labels == predicted
        self.check_counts(len(labels), int(is_right.sum()))
        return Predictions(labels, is_right.astype(float), columns)


class ClassScorer(Scorer):
    """Cross-entropy and accuracy of classes of examples."""

    result = ClassResult

    def keep(self, logits: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """See `Scorer.keep`: the losses and the predicted classes."""
        loss, _ = self.losses(logits, batch.labels)
        is_finite = logits.isfinite().all(dim=-1)
        return loss, logits.argmax(dim=-1).where(is_finite, NO_PREDICTION)

    def score(self, outputs: Sequence[Output], split: Split, add: Add) -> Score:
        """See `Scorer.score`."""
        predictions = gather(outputs, 1, np.zeros(len(split), dtype=np.int64), add)
        own_loss = sum(output.kept[0].sum().item() for output in outputs)
        correct = int((predictions == split.labels).sum())
        loss = float(add(np.array([own_loss]))[0]) / len(split)
        accuracy = 100.0 * correct / len(split)
        return Score(
            total=len(split),
            loss=loss,
            non_finite=int((predictions == NO_PREDICTION).sum()),
            merit=accuracy,
            numbers={"val_accuracy": accuracy, "val_loss": loss},
            text=f"accuracy {accuracy:.2f} %, loss {loss:.3f}",
            result={"test_accuracy": accuracy, "test_correct": correct},
            predictions={"label": split.labels, "prediction": predictions},
        )
