"""What goals of numbers of examples have in common: no prediction is right or wrong."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field, FiniteFloat

from lra.goals.measure import Measure
from lra.goals.result import Result
from lra.goals.scorer import Add, Output, Score, Scorer, gather
from lra.runtime.tables import rounded
from lra.schema import ShortText
from lra.statistics import Interval, bootstrap_interval

if TYPE_CHECKING:
    from torch import Tensor

    from lra.tasks.base import Batch, Dataset, Split

Scores = dict[ShortText, FiniteFloat]
"""Scores by the name of the measure, that which results are ranked by first."""


class NumbersResult(Result):
    """Scores of a test, and those of a trivial baseline."""

    scores: Scores = Field(default_factory=dict)
    """Empty also if a prediction is not finite."""
    low: FiniteFloat | None = None
    """Lower end of the 95 % interval of the first score, by a bootstrap of the test examples."""
    high: FiniteFloat | None = None
    baseline: Scores = Field(default_factory=dict)
    """What the trivial baseline scores on the test set."""

    of_non_finite = "so there is no score"
    baseline_name: ClassVar[str]
    named: ClassVar[Mapping[str, str]]
    """What tables call the scores."""
    errors: ClassVar[tuple[str, ...]] = ()
    """Those of which the lowest is best."""

    def digits_of(self, key: str) -> int:
        """Return with how many decimals a measure is written."""
        return 3

    @property
    def measures(self) -> list[Measure]:
        """See `Result.measures`."""
        return [self._measure(key) for key in self.named]

    def _measure(self, key: str) -> Measure:
        is_first = key == next(iter(self.named))
        return Measure(
            self.named[key],
            lambda result: result.scores.get(key),
            digits=self.digits_of(key),
            lowest_is_best=key in self.errors,
            interval=(lambda result: result.interval) if is_first else None,
            beneath=lambda result: result.list_beneath(key),
        )

    def list_beneath(self, key: str) -> dict[str, float]:
        """List what stands beneath a column of a measure."""
        row = f"trivial baseline: {self.baseline_name}"
        return {row: self.baseline[key]} if key in self.baseline else {}

    @property
    def unit(self) -> str:
        """See `Result.unit`: the name of the first score, which has no other."""
        return self.measures[0].name

    @property
    def text(self) -> str:
        """See `Result.text`."""
        if not self.scores:
            return "" if self.test_total is None else "not measured: not all logits are finite"
        return ", ".join(f"{m.name} {m.text(m.of(self))}" for m in self.measures)

    @property
    def validation_text(self) -> str:
        """See `Result.validation_text`."""
        return f"{self.unit} {self.validation.text(self.validation.of(self))}"

    def describe_test(self) -> list[str]:
        """See `Result.describe_test`."""
        parts = [f"test {self.text}{f', {self.chance}' if self.is_at_chance else ''}"]
        if self.interval is not None:
            low, high = (rounded(end, 3) for end in self.interval)
            of = f"95 % interval of {self.unit} {low} to {high}"
            parts.append(f"({self.test_total:,} examples; {of})")
        return parts

    @property
    def interval(self) -> Interval | None:
        """See `Result.interval`."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def trivial_scores(self) -> Mapping[str, float]:
        """See `Result.trivial_scores`."""
        first = next(iter(self.named))
        return {self.baseline_name: self.baseline[first]} if self.baseline else {}

    @property
    def is_at_chance(self) -> bool:
        """See `Result.is_at_chance`: whether the interval reaches down to the baseline."""
        return self.low is not None and self.low <= max([0.0, *self.trivial_scores.values()])

    def check_scores(self, scores: Mapping[str, float]) -> None:
        """Raise a ValueError unless these are the scores."""
        for name, score in scores.items():
            recorded = self.scores.get(name, math.nan)
            if not math.isclose(score, recorded, rel_tol=1e-6, abs_tol=1e-9):
                raise ValueError(f"{name} is {score}, its record says {recorded}")

    def list_fields(self) -> dict[str, Any]:
        """See `Result.list_fields`: each score has a column."""
        fields = super().list_fields()
        for name in ("scores", "baseline"):
            start = self.prefix if name == "scores" else f"{self.prefix}baseline."
            fields |= {start + key: v for key, v in fields.pop(self.prefix + name).items()}
        return fields


class NumbersScorer(Scorer):
    """Gathers predictions, and scores them together."""

    has_accuracy = False
    needs_finite_loss = True
    validated: ClassVar[str]
    """What validations call the first score."""
    resamples: ClassVar[int] = 1000
    """Resamples of the test examples, for the interval of the first score."""

    @staticmethod
    @abc.abstractmethod
    def measure(labels: np.ndarray, predictions: np.ndarray) -> Scores:
        """Score predictions, (examples, outputs) both."""

    @abc.abstractmethod
    def predict_trivially(self, train: np.ndarray) -> np.ndarray:
        """Predict from training labels, (examples, outputs), alone: (outputs,)."""

    def merit(self, scores: Scores, loss: float) -> float:
        """Return what the best model has most of, in percent."""
        return 100.0 * math.exp(-loss)

    def keep(self, logits: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """See `Scorer.keep`: losses, and logits (examples, outputs)."""
        return self.losses(logits, batch.labels)[0], logits.float()

    def score(self, outputs: Sequence[Output], split: Split, add: Add) -> Score:
        """See `Scorer.score`."""
        labels = split.labels
        losses = gather(outputs, 0, np.zeros(len(labels)), add)
        logits = gather(outputs, 1, np.zeros(labels.shape, dtype=np.float32), add)
        predictions, loss = self.predict(logits), float(losses.mean())
        is_finite = np.isfinite(logits).all(axis=1)
        scores = self.measure(labels, predictions) if is_finite.all() else {}
        first = next(iter(scores.values()), math.nan)
        columns = self.goal.columns(self.goal.outputs)
        return Score(
            total=len(split),
            loss=loss,
            non_finite=int((~is_finite).sum()),
            merit=self.merit(scores, loss),
            numbers={self.validated: first, "val_loss": loss},
            text=f"{self.validated.removeprefix('val_')} {first:.3f}, loss {loss:.3f}",
            result={"scores": scores},
            predictions=dict(zip(columns, [*labels.T, *predictions.T], strict=True)),
        )

    def _list_facts(self, score: Score | None, dataset: Dataset) -> dict[str, Any]:
        facts = super()._list_facts(score, dataset)
        labels = dataset.splits["test"].labels
        trivial = self.predict_trivially(dataset.splits["train"].labels)
        facts["baseline"] = self.measure(labels, np.broadcast_to(trivial, labels.shape))
        if score is not None and score.result["scores"]:
            half = len(score.predictions) // 2
            predictions = np.stack([*score.predictions.values()][half:], axis=1)

            def score_drawn(drawn: np.ndarray) -> float:
                return next(iter(self.measure(labels[drawn], predictions[drawn]).values()))

            facts["low"], facts["high"] = bootstrap_interval(
                score_drawn, len(labels), self.resamples
            )
        return facts
