"""Runs that differ in seed alone, as one cell of a table."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from lra.record.benchmark import BenchRecord
from lra.record.evaluation import EvaluationRecord
from lra.record.run import RunRecord
from lra.report.boards.measures import ACCURACY, Measure, Result, validation_of
from lra.runtime.console import MISSING

CHANCE_SIGMA = 2.326
"""A result is at chance unless it beats every constant answer at the 1 % level, one-sided."""
AT_CHANCE = "at chance"
"""Remark on a number that is at chance."""


AnyResult = TypeVar("AnyResult", RunRecord, EvaluationRecord)
AnyRecord = TypeVar("AnyRecord", RunRecord, BenchRecord)


@dataclass(frozen=True)
class Cell(Generic[AnyResult]):
    """Counted runs of one row and column; see `cell_of`."""

    runs: tuple[AnyResult, ...] = ()
    unfinished_runs: tuple[RunRecord, ...] = ()
    """Runs of the user's own that have no result, in place of which shipped ones are counted."""
    has_own: bool = False
    """Whether any of these runs is the user's own, rather than a shipped one."""

    def numbers(self, measure: Measure) -> list[float]:
        """List the numbers of all runs that have one."""
        return [value for run in self.runs if (value := measure.of(run)) is not None]

    def mean_of(self, measure: Measure) -> float | None:
        """Return the mean over seeds; None if no run has a number."""
        found = self.numbers(measure)
        return statistics.mean(found) if found else None

    def number_of(self, measure: Measure) -> float | None:
        """Return the number for averages over tasks: the mean; None if a run failed."""
        has_failed = any(run.status in ("diverged", "oom") for run in self.runs)
        return None if has_failed else self.mean_of(measure)

    def value_of(self, measure: Measure) -> float | None:
        """Return the number to rank: the mean; None if a run failed, or at chance."""
        return None if measure.has_chance and self.is_at_chance else self.number_of(measure)

    def spread_of(self, measure: Measure) -> str:
        """Write the mean, ± standard deviation of several; a dash if no run has a number."""
        found = self.numbers(measure)
        text = measure.text(self.mean_of(measure))
        return f"{text} ± {measure.text(statistics.stdev(found))}" if len(found) > 1 else text

    def deviation_of(self, measure: Measure) -> float | None:
        """Return the standard deviation over seeds; None for fewer than two numbers."""
        found = self.numbers(measure)
        return statistics.stdev(found) if len(found) > 1 else None

    def text_of(self, measure: Measure, *, shows_spread: bool = True) -> str:
        """Write mean ± standard deviation (n), or the mean alone, and how other runs ended."""
        count = len(self.numbers(measure))
        if not count:
            return ", ".join(self.remarks_of(measure)) or MISSING
        text = self.spread_of(measure) if shows_spread else measure.text(self.mean_of(measure))
        brackets = [f"n={count}"] * shows_spread + self.unfinished
        text += f" ({'; '.join(brackets)})" if brackets else ""
        chance, *others = self.remarks_of(measure) or [""]
        if chance == AT_CHANCE:
            return ", ".join([f"{AT_CHANCE}: {text}", *others])
        return ", ".join([text, *self.remarks_of(measure)])

    def remarks_of(self, measure: Measure) -> list[str]:
        """List what holds for the number besides: chance, runs without a result, faults."""
        chance = self.chance_of(measure)
        return [*([chance] if chance else []), *self.words, *self.faults]

    def chance_of(self, measure: Measure) -> str:
        """Say that all runs are at chance, or how many: "1 of 5 at chance"; empty if none is."""
        number = sum(map(is_at_chance, self.runs)) if measure.has_chance else 0
        share = "" if self.is_at_chance else f"{number} of {len(self.accuracies)} "
        return share + AT_CHANCE if number else ""

    @property
    def accuracies(self) -> list[float]:
        """Test accuracy of each finished run, in percent."""
        return self.numbers(ACCURACY)

    @property
    def mean(self) -> float | None:
        """Mean test accuracy of finished runs in percent; None if there are none."""
        return self.mean_of(ACCURACY)

    @property
    def is_at_chance(self) -> bool:
        """Whether every finished run is at chance, and there is one."""
        done = [run for run in self.runs if run.test_accuracy is not None]
        return bool(done) and all(map(is_at_chance, done))

    @property
    def value(self) -> float | None:
        """See `value_of`, of the accuracy in percent."""
        return self.value_of(ACCURACY)

    @property
    def merit(self) -> float:
        """Mean validation result of the finished runs, the higher the better; -inf without any."""
        done = replace(self, runs=tuple(run for run in self.runs if run.status == "done"))
        measure = validation_of(done.runs)
        mean = done.mean_of(measure)
        return -math.inf if mean is None else mean * (-1 if measure.lowest_is_best else 1)

    @property
    def words(self) -> list[str]:
        """How the runs without a result ended, such as "stopped" or "2 diverged"."""
        counts = Counter(run.status for run in self.runs if run.test_accuracy is None)
        return [word if n == 1 else f"{n} {word}" for word, n in sorted(counts.items())]

    @property
    def faults(self) -> list[str]:
        """How many runs predicted nothing for some test targets, in words; none if no run did."""
        count = sum(bool(run.test_non_finite) for run in self.runs)
        return [f"{count} with non-finite logits"] if count else []

    @property
    def unfinished(self) -> list[str]:
        """How the user's own runs without a result ended, in one text; empty without such runs."""
        ends = [
            f"{run.status} at step {run.steps:,} of {run.total_steps:,}"
            for run in self.unfinished_runs
        ]
        return [f"your run{'s' * (len(ends) > 1)}: {', '.join(ends)}"] if ends else []


def is_at_chance(run: Result) -> bool:
    """Whether a finished run is no better than one answer to all, by a test of proportions."""
    majority = run.baselines.get("majority class")
    chance = majority if run.largest_class is None else run.largest_class
    if chance is None or run.test_accuracy is None or not run.test_examples:
        return False
    sigma = math.sqrt(chance * (100.0 - chance) / run.test_examples)
    return run.test_accuracy < chance + CHANCE_SIGMA * sigma


IsOwn = Callable[[AnyRecord], bool]
"""Says whether a record is the user's own, rather than a shipped one."""


def none_own(_: object) -> bool:
    """Say of every record that it is not the user's own."""
    return False


def cell_of(records: Sequence[RunRecord], is_own: IsOwn[RunRecord] = none_own) -> Cell[RunRecord]:
    """Make a cell of all runs of one row and column."""
    runs = counted(records)
    names = {(run.run_id, run.seed) for run in runs if run.status == "done"}
    unfinished_runs = [r for r in records if r.status != "done" and (r.run_id, r.seed) in names]
    has_own = any(map(is_own, [*runs, *unfinished_runs]))
    return Cell(runs, tuple(sorted(unfinished_runs, key=lambda r: r.seed)), has_own)


def counted(records: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
    """Choose one run for each seed: the newest finished attempt, or the newest if none finished."""
    by_seed: dict[int, RunRecord] = {}
    for record in sorted(records, key=lambda r: (r.seed, r.status == "done", attempt(r))):
        by_seed[record.seed] = record
    return tuple(by_seed.values())


def attempt(record: RunRecord) -> int:
    """Return which attempt a run is, 1 for the first: the number behind -r in its id."""
    found = re.search(r"-r(\d+)$", record.run_id)
    return int(found[1]) if found else 1
