"""Searches of learning rates: runs of a mixer on a task that differ in nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lra.report.boards.finding_runs import finding_results
from lra.report.boards.results import Results
from tasks.base import BENCHMARK

NAMES = ("a third", "middle rate", "three times")
"""The three learning rates of each search, the lowest first."""

FIRST = "listops"
"""The task of the first search; the others begin with the rates that it found."""


def describe_rates(task: str) -> str:
    """Say which three learning rates were searched on a task."""
    chosen = "is published for the mixer or was chosen by us"
    middle = chosen if task == FIRST else f"is the mixer's best on {FIRST}"
    return f"The middle rate {middle}; the others are a third of it and three times the rate."


@dataclass(frozen=True)
class RateSearch:
    """Runs of one mixer on one task that differ in their learning rate alone."""

    task: str
    mixer: str
    rates: Sequence[float]
    """The learning rates, the lowest first."""
    accuracies: Sequence[float]
    """Best validation accuracy at each rate in percent; 0 where training diverged."""

    @property
    def best_rate(self) -> float:
        """The rate with the best validation accuracy; of equal ones the lowest."""
        return self.rates[self.accuracies.index(max(self.accuracies))]


def shipped_rate_searches() -> list[RateSearch]:
    """Read the searches whose best rates the leaderboard has; none where they are not there."""
    results = finding_results("learning-rates")
    return rate_searches(results) if results is not None else []


def rate_searches(results: Results) -> list[RateSearch]:
    """Read searches of learning rates: by task, the mixer with the best accuracy first.

    Runs that were stopped, or of which a mixer has no three rates after equal steps, do not count.

    Args:
        results: a results folder with the runs of searches.
    """
    found: dict[tuple[str, str, int], dict[float, float]] = {}
    for run in results.records:
        rate = run.settings.get("train.lr")
        if isinstance(rate, float) and run.status in ("done", "diverged"):
            key = run.task, run.mixer, run.total_steps
            found.setdefault(key, {})[rate] = run.val_accuracy or 0.0
    searches = [
        RateSearch(task, mixer, sorted(by_rate), [by_rate[rate] for rate in sorted(by_rate)])
        for (task, mixer, _), by_rate in found.items()
        if len(by_rate) == len(NAMES)
    ]
    return sorted(
        searches,
        key=lambda search: (BENCHMARK.index(search.task), -max(search.accuracies), search.mixer),
    )
