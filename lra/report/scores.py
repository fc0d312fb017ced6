"""What the runs of one row and column score: numbers over seeds, chance, intervals and ranks."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Generic, TypeVar

from lra.record.run import RunRecord, choose_attempts
from lra.record.schema import MeasuredRecord, was_busy
from lra.record.scores import PositionScores, TestedRecord, unit_of, wilson_interval
from lra.runtime.tables import MISSING
from tasks.base import BENCHMARK

AT_CHANCE = "at chance"
"""Remark on a number that is at chance."""
BEST, SECOND = "best", "second"
FIVE = BENCHMARK[:-1]
"""The tasks of the average without Path-X."""
AVERAGES = {"mean of 5": FIVE, "mean of 6": BENCHMARK}
"""Tasks of each average."""

Result = TestedRecord
"""The result of a run, or of its model's evaluation on other data."""
AnyResult = TypeVar("AnyResult", bound=TestedRecord)
Interval = tuple[float, float]
"""Lower and upper end."""
IsOwn = Callable[[Any], bool]
"""Says whether a record is the user's own, rather than a shipped one."""


def rounded(value: float, digits: int) -> str:
    """Write a number with so many decimals, halves away from 0, as its decimal form has them.

    Of 54.55 and 46.45 the binary forms lie below and above the half.
    """
    unit = Decimal(1).scaleb(-digits)
    return str(Decimal(repr(float(value))).quantize(unit, ROUND_HALF_UP))


def rank_numbers(
    values: Sequence[float | None],
    digits: int = 2,
    *,
    lowest_is_best: bool = False,
    margin: float | None = None,
) -> dict[int, str]:
    """Mark the best and the second best of two numbers or more, compared as printed.

    With a margin, the largest difference that means nothing, the highest number is the best if all
    others are lower by more; otherwise it and those within are second.
    """
    known = {i: value for i, value in enumerate(values) if value is not None}
    if len(known) < 2:  # noqa: PLR2004
        return {}
    if margin is not None:
        close = [i for i, value in known.items() if value >= max(known.values()) - margin]
        return dict.fromkeys(close, BEST if len(close) == 1 else SECOND)
    shown = {i: float(rounded(value, digits)) for i, value in known.items()}
    order = sorted(set(shown.values()), reverse=not lowest_is_best)
    marks = dict(zip(order, (BEST, SECOND), strict=False))
    return {i: marks[value] for i, value in shown.items() if value in marks}


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

    def rows_beneath(self, results: Sequence[Result]) -> dict[str, float]:
        """Join what stands beneath a column of results; of several numbers the last counts."""
        return {name: value for one in results for name, value in self.beneath(one).items()}


def _scores(result: Result) -> PositionScores:
    return result.positions or PositionScores()


def _bits_beneath(result: Result) -> Mapping[str, float]:
    scores = _scores(result)
    trivial = {f"trivial baseline: {name}": bits for name, bits in scores.baseline_bits.items()}
    return trivial | {f"lower bound: {name}": bits for name, bits in scores.lowest_bits.items()}


ACCURACY = Measure(
    "test accuracy in percent",
    lambda result: result.test_accuracy,
    has_chance=True,
    beneath=lambda result: {f"trivial baseline: {n}": v for n, v in result.baselines.items()},
)
NEXT_TOKEN = replace(ACCURACY, name="accuracy, %", has_chance=False)
"""Accuracy where targets are positions, which is no measure of chance."""
PERPLEXITY = Measure("perplexity", lambda result: _scores(result).perplexity, lowest_is_best=True)
VALIDATION_LOSS = Measure(
    "validation loss, nats", lambda result: _scores(result).val_loss, digits=3, lowest_is_best=True
)


def measures_of(results: Sequence[Result]) -> list[Measure]:
    """Return what tables of results show: accuracy, or where targets are positions bits and
    perplexity.
    """
    positions = [one.positions for one in results if one.positions is not None]
    if not positions:
        return [ACCURACY]
    unit = unit_of(max((one.text_bytes for one in positions if one.text_bytes), default=None))
    bits = Measure(
        f"bits per {unit}",
        lambda result: _scores(result).bits,
        digits=3,
        lowest_is_best=True,
        beneath=_bits_beneath,
    )
    return [bits, PERPLEXITY]


def validation_of(results: Sequence[Result]) -> Measure:
    """Measure what settings and checkpoints are chosen by."""
    if all(one.positions is None for one in results):
        return Measure("validation accuracy", lambda result: getattr(result, "val_accuracy", None))

    def bits(result: Result) -> float | None:
        loss = _scores(result).val_loss
        return None if loss is None else loss / math.log(2)

    return Measure("validation bits per token", bits, digits=3, lowest_is_best=True)


def is_busy(record: MeasuredRecord) -> bool:
    """Say whether other processes kept the machine busy while a record was made."""
    return was_busy(record.threads, record.gpu_shared)


@dataclass(frozen=True)
class Cell(Generic[AnyResult]):
    """Runs that differ in seed alone, as one cell of a table; see `cell_of`."""

    runs: tuple[AnyResult, ...] = ()
    unfinished: tuple[str, ...] = ()
    """How runs of the user's own ended in whose place shipped results are counted."""
    has_own: bool = False
    """Whether any of these runs is the user's own, rather than a shipped one."""

    def numbers(self, measure: Measure = ACCURACY) -> list[float]:
        """List the numbers of all runs that have one."""
        return [value for run in self.runs if (value := measure.of(run)) is not None]

    def mean(self, measure: Measure = ACCURACY) -> float | None:
        """Return the mean over seeds; None if no run has a number."""
        found = self.numbers(measure)
        return statistics.mean(found) if found else None

    def deviation(self, measure: Measure = ACCURACY) -> float | None:
        """Return the standard deviation over seeds; None for fewer than two numbers."""
        found = self.numbers(measure)
        return statistics.stdev(found) if len(found) > 1 else None

    def number(self, measure: Measure = ACCURACY) -> float | None:
        """Return the number for averages over tasks: the mean; None if a run failed."""
        has_failed = any(isinstance(run, RunRecord) and run.has_failed for run in self.runs)
        return None if has_failed else self.mean(measure)

    def value(self, measure: Measure = ACCURACY) -> float | None:
        """Return the number to rank: the mean; None if a run failed, or at chance."""
        return None if measure.has_chance and self.is_at_chance else self.number(measure)

    def interval(self, measure: Measure = ACCURACY) -> Interval | None:
        """Return mean ± standard deviation; of one seed the 95 % interval of its accuracy."""
        mean, deviation = self.mean(measure), self.deviation(measure)
        if mean is not None and deviation is not None:
            return mean - deviation, mean + deviation
        totals = [run.test_examples for run in self.runs if measure.of(run) is not None]
        if mean is None or measure is not ACCURACY or not totals[0]:
            return None
        return wilson_interval(mean / 100, totals[0])

    def spread_text(self, measure: Measure = ACCURACY) -> str:
        """Write the mean, ± standard deviation of several; a dash if no run has a number."""
        text, deviation = measure.text(self.mean(measure)), self.deviation(measure)
        return text if deviation is None else f"{text} ± {measure.text(deviation)}"

    def text(self, measure: Measure = ACCURACY, *, shows_spread: bool = True) -> str:
        """Write mean ± standard deviation (n), or the mean alone, and how other runs ended."""
        count, remarks = len(self.numbers(measure)), self.remarks(measure)
        if not count:
            return ", ".join(remarks) or MISSING
        text = self.spread_text(measure) if shows_spread else measure.text(self.mean(measure))
        if brackets := [f"n={count}"] * shows_spread + [*self.unfinished]:
            text += f" ({'; '.join(brackets)})"
        if remarks[:1] == [AT_CHANCE]:
            return ", ".join([f"{AT_CHANCE}: {text}", *remarks[1:]])
        return ", ".join([text, *remarks])

    def remarks(self, measure: Measure = ACCURACY) -> list[str]:
        """List what holds for the number besides: chance, runs without a result, faults."""
        runs = [run for run in self.runs if isinstance(run, RunRecord)]
        counts = Counter(run.status for run in runs if run.test_accuracy is None)
        ends = [word if n == 1 else f"{n} {word}" for word, n in sorted(counts.items())]
        faulty = sum(bool(run.test_non_finite) for run in self.runs)
        faults = [f"{faulty} with non-finite logits"] if faulty else []
        return [*filter(None, [self.chance_text(measure)]), *ends, *faults]

    def chance_text(self, measure: Measure = ACCURACY) -> str:
        """Say that all runs are at chance, or how many: "1 of 5 at chance"; empty if none is."""
        number = sum(run.is_at_chance for run in self.runs) if measure.has_chance else 0
        share = "" if self.is_at_chance else f"{number} of {len(self.numbers())} "
        return share + AT_CHANCE if number else ""

    @property
    def is_at_chance(self) -> bool:
        """Whether every finished run is at chance, and there is one."""
        done = [run for run in self.runs if run.test_accuracy is not None]
        return bool(done) and all(run.is_at_chance for run in done)

    @property
    def merit(self) -> float:
        """Mean validation result of the finished runs, the higher the better; -inf without any."""
        measure = validation_of(self.runs)
        done = [run for run in self.runs if isinstance(run, RunRecord) and run.status == "done"]
        mean = Cell(tuple(done)).mean(measure)
        return -math.inf if mean is None else mean * (-1 if measure.lowest_is_best else 1)


def cell_of(records: Sequence[RunRecord], is_own: IsOwn = lambda _: False) -> Cell[RunRecord]:
    """Make a cell of all runs of one row and column, of which it counts one for each seed."""
    runs = tuple(choose_attempts(records))
    done = {(run.run_id, run.seed) for run in runs if run.status == "done"}
    others = [run for run in records if run.status != "done" and (run.run_id, run.seed) in done]
    unfinished = tuple(
        f"your run: {run.status} at step {run.steps:,} of {run.total_steps:,}" for run in others
    )
    return Cell(runs, unfinished, any(map(is_own, [*runs, *others])))


def mean_over(tasks: Sequence[str], values: Mapping[str, float | None]) -> float | None:
    """Average a row over tasks; None if any is missing."""
    found = [value for task in tasks if (value := values.get(task)) is not None]
    return statistics.mean(found) if len(found) == len(tasks) else None


def average(cells: Mapping[str, Cell], tasks: Sequence[str]) -> float | None:
    """Average a row over tasks, in which results at chance count; None if a task has none."""
    return mean_over(tasks, {task: cell.number() for task, cell in cells.items()})


def average_interval(
    values: Sequence[float], intervals: Sequence[Interval | None]
) -> Interval | None:
    """Return the interval of an average over tasks, whose errors are independent; None if any
    number has no interval.
    """
    known = [interval for interval in intervals if interval is not None]
    if not known or len(known) < len(values):
        return None
    if len(known) == 1:
        return known[0]
    half = math.hypot(*((high - low) / 2 for low, high in known)) / len(values)
    mean = statistics.mean(values)
    return mean - half, mean + half
