"""Runs that differ in seed alone, as one cell of a table."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from lra.record.run import RunRecord
from lra.runtime.console import MISSING

CHANCE_SIGMA = 2.326
"""A result is at chance unless it beats every constant answer at the 1 % level, one-sided."""


class Result(Protocol):
    """The result of a run, or of its model's evaluation on other data."""

    @property
    def status(self) -> str:
        """How the run ended."""
        ...

    @property
    def test_accuracy(self) -> float | None:
        """Test accuracy in percent; None for a run that is not done."""
        ...

    @property
    def test_total(self) -> int | None:
        """Number of test examples."""
        ...

    @property
    def baselines(self) -> Mapping[str, float]:
        """Accuracy of trivial baselines, in percent."""
        ...

    @property
    def largest_class(self) -> float | None:
        """Percent of the test examples that are in the largest class."""
        ...


AnyResult = TypeVar("AnyResult", bound=Result)


@dataclass(frozen=True)
class Cell(Generic[AnyResult]):
    """Counted runs of one row and column; see `cell_of`."""

    runs: tuple[AnyResult, ...] = ()
    beside: tuple[RunRecord, ...] = ()
    """Runs of the user's own that have no result, in place of which shipped ones are counted."""

    @property
    def accuracies(self) -> list[float]:
        """Test accuracy of each finished run, in percent."""
        return [r.test_accuracy for r in self.runs if r.test_accuracy is not None]

    @property
    def mean(self) -> float | None:
        """Mean test accuracy of finished runs in percent; None if there are none."""
        return statistics.mean(self.accuracies) if self.accuracies else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation of test accuracy over seeds; None for fewer than two."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else None

    @property
    def is_at_chance(self) -> bool:
        """Whether every finished run is at chance, and there is one."""
        done = [run for run in self.runs if run.test_accuracy is not None]
        return bool(done) and all(map(is_at_chance, done))

    @property
    def value(self) -> float | None:
        """Number to average and rank: the mean; None if a run failed or all are at chance."""
        failed = any(run.status in ("diverged", "oom") for run in self.runs)
        return None if failed or self.is_at_chance else self.mean

    @property
    def words(self) -> list[str]:
        """How the runs without a result ended, such as "stopped" or "2 diverged"."""
        counts = Counter(run.status for run in self.runs if run.test_accuracy is None)
        return [word if n == 1 else f"{n} {word}" for word, n in sorted(counts.items())]

    @property
    def unfinished(self) -> list[str]:
        """How far the runs came that stand beside counted ones, in one text; none without them."""
        ends = [f"{run.status} at {run.steps:,} of {run.total_steps:,}" for run in self.beside]
        return [f"yours: {', '.join(ends)}"] if ends else []

    @property
    def text(self) -> str:
        """Mean ± standard deviation (n), and how the runs without a result ended."""
        if self.mean is None:
            return ", ".join(self.words) or MISSING
        text = f"{self.mean:.2f}"
        if self.deviation is not None:
            text += f" ± {self.deviation:.2f}"
        text += f" ({'; '.join([f'n={len(self.accuracies)}', *self.unfinished])})"
        if self.is_at_chance:
            return ", ".join([f"at chance: {text}", *self.words])
        lucky = sum(map(is_at_chance, self.runs))
        return ", ".join([text, *([f"{lucky} at chance"] if lucky else []), *self.words])


def is_at_chance(run: Result) -> bool:
    """Whether a finished run is no better than one answer to all, by a test of proportions."""
    majority = run.baselines.get("majority class")
    chance = majority if run.largest_class is None else run.largest_class
    if chance is None or run.test_accuracy is None or not run.test_total:
        return False
    sigma = math.sqrt(chance * (100.0 - chance) / run.test_total)
    return run.test_accuracy < chance + CHANCE_SIGMA * sigma


def cell_of(records: Sequence[RunRecord]) -> Cell[RunRecord]:
    """Make a cell of all runs of one row and column."""
    runs = counted(records)
    names = {(run.run_id, run.seed) for run in runs if run.status == "done"}
    beside = [r for r in records if r.status != "done" and (r.run_id, r.seed) in names]
    return Cell(runs, tuple(sorted(beside, key=lambda r: r.seed)))


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
