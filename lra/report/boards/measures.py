"""The numbers of results that tables and figures show: accuracies, bits, perplexities."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lra.record.evaluation import EvaluationRecord
from lra.record.run import RunRecord
from lra.record.scores import PositionScores, unit_of
from lra.report.boards.ranking import ranks
from lra.runtime.console import MISSING

Result = RunRecord | EvaluationRecord
"""The result of a run, or of its model's evaluation on other data."""


def _trivial_accuracies(result: Result) -> Mapping[str, float]:
    return {f"trivial baseline: {name}": value for name, value in result.baselines.items()}


@dataclass(frozen=True)
class Measure:
    """A number of a result, as tables and figures show it."""

    name: str
    """What the number is, with its unit, for a column or an axis."""
    of: Callable[[Result], float | None]
    """Returns the number of a result; None where there is none."""
    digits: int = 2
    lowest_is_best: bool = False
    has_chance: bool = False
    """Whether a result that is no better than one answer to all is called so."""
    beneath: Callable[[Result], Mapping[str, float]] = lambda _: {}
    """Returns numbers that stand beneath a table: those of trivial baselines, and bounds."""

    def text(self, value: float | None) -> str:
        """Write a value; a dash for None."""
        return MISSING if value is None else f"{value:.{self.digits}f}"

    def ranks(self, values: Sequence[float | None]) -> dict[int, str]:
        """Mark the best and the second best of some values, compared as printed."""
        return ranks(values, self.digits, lowest_is_best=self.lowest_is_best)

    def rows_beneath(self, results: Sequence[Result]) -> dict[str, float]:
        """Join what stands beneath a column of results; of several numbers the last counts."""
        return {name: value for one in results for name, value in self.beneath(one).items()}


ACCURACY = Measure(
    "test accuracy in percent",
    lambda result: result.test_accuracy,
    has_chance=True,
    beneath=_trivial_accuracies,
)


NEXT_TOKEN = replace(ACCURACY, name="accuracy, %", has_chance=False)
"""Accuracy where targets are positions, which is no measure of chance."""


def _bits(result: Result) -> float | None:
    return None if result.positions is None else result.positions.bits


def _perplexity(result: Result) -> float | None:
    return None if result.positions is None else result.positions.perplexity


def _bits_beneath(result: Result) -> Mapping[str, float]:
    scores = result.positions or PositionScores()
    trivial = {f"trivial baseline: {name}": bits for name, bits in scores.baseline_bits.items()}
    return trivial | {f"lower bound: {name}": bits for name, bits in scores.lowest_bits.items()}


def best_baseline(result: Result) -> tuple[str, float] | None:
    """Return the best trivial baseline and its number, by the first of `measures_of`."""
    if result.positions is not None:
        return min(result.positions.baseline_bits.items(), key=lambda one: one[1], default=None)
    return max(result.baselines.items(), key=lambda one: one[1], default=None)


PERPLEXITY = Measure("perplexity", _perplexity, lowest_is_best=True)


def bits_of(results: Sequence[Result]) -> Measure:
    """Measure bits per byte of text, or per token where none of the results is of text."""
    sizes = [one.positions.text_bytes for one in results if one.positions is not None]
    name = f"bits per {unit_of(max(filter(None, sizes), default=None))}"
    return Measure(name, _bits, digits=3, lowest_is_best=True, beneath=_bits_beneath)


def _validation(result: Result) -> float | None:
    return result.val_accuracy if isinstance(result, RunRecord) else None


def _validation_bits(result: Result) -> float | None:
    loss = None if result.positions is None else result.positions.val_loss
    return None if loss is None else loss / math.log(2)


def validation_of(results: Sequence[Result]) -> Measure:
    """Measure what settings and checkpoints are chosen by."""
    if all(one.positions is None for one in results):
        return Measure("validation accuracy", _validation)
    return Measure("validation bits per token", _validation_bits, digits=3, lowest_is_best=True)


def measures_of(results: Sequence[Result]) -> list[Measure]:
    """Return what tables of results show: accuracy, or where targets are positions bits and
    perplexity.
    """
    of_examples = all(one.positions is None for one in results)
    return [ACCURACY] if of_examples else [bits_of(results), PERPLEXITY]
