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

MISSING = "-"

CHANCE_SIGMA = 2.326
"""A result is at chance unless it beats every constant answer at the 1 % level, one-sided."""


class Result(Protocol):
    """What the accuracy of a run, or of its model on other data, is told by."""

    @property
    def status(self) -> str:
        """How the run ended."""
        ...

    @property
    def test_accuracy(self) -> float | None:
        """Percent; None for a run that is not done."""
        ...

    @property
    def test_total(self) -> int | None:
        """Examples."""
        ...

    @property
    def baselines(self) -> Mapping[str, float]:
        """Accuracy of trivial baselines, in percent."""
        ...

    @property
    def largest_class(self) -> float | None:
        """Percent of the examples."""
        ...


AnyResult = TypeVar("AnyResult", bound=Result)


@dataclass(frozen=True)
class Cell(Generic[AnyResult]):
    """Counted runs of one row and column; see `counted`."""

    runs: tuple[AnyResult, ...] = ()

    @property
    def accuracies(self) -> list[float]:
        """Test accuracy of each finished run, in percent."""
        return [r.test_accuracy for r in self.runs if r.test_accuracy is not None]

    @property
    def mean(self) -> float | None:
        """Percent, over finished runs; None if there is none."""
        return statistics.mean(self.accuracies) if self.accuracies else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation over seeds; None for fewer than two."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else None

    @property
    def is_at_chance(self) -> bool:
        """Whether no finished run tells itself from one answer to all."""
        done = [run for run in self.runs if run.test_accuracy is not None]
        return bool(done) and all(map(is_at_chance, done))

    @property
    def value(self) -> float | None:
        """What may be averaged and ranked: the mean, unless a run failed or all are at chance."""
        failed = any(run.status in ("diverged", "oom") for run in self.runs)
        return None if failed or self.is_at_chance else self.mean

    @property
    def words(self) -> list[str]:
        """What became of runs that have no result: stopped, 2 diverged."""
        counts = Counter(run.status for run in self.runs if run.test_accuracy is None)
        return [word if n == 1 else f"{n} {word}" for word, n in sorted(counts.items())]

    @property
    def text(self) -> str:
        """Mean ± standard deviation (n), and what happened to the others."""
        if self.mean is None:
            return ", ".join(self.words) or MISSING
        text = f"{self.mean:.2f}"
        if self.deviation is not None:
            text += f" ± {self.deviation:.2f}"
        text += f" (n={len(self.accuracies)})"
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


def counted(records: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
    """Choose, of several attempts at a seed, the newest, a finished one before others."""
    by_seed: dict[int, RunRecord] = {}
    for record in sorted(records, key=lambda r: (r.seed, r.status == "done", attempt(r))):
        by_seed[record.seed] = record
    return tuple(by_seed.values())


def attempt(record: RunRecord) -> int:
    """Return which attempt a run is, 1 for the first: the number behind -r in its id."""
    found = re.search(r"-r(\d+)$", record.run_id)
    return int(found[1]) if found else 1
