"""Searches of learning rates: runs of each mixer that differ in their learning rate alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lra.record.frame import settings_of
from lra.report.boards.finding_runs import finding_results
from lra.report.boards.results import Results

NAMES = ("a third", "own rate", "three times")
"""The three learning rates of each mixer, the lowest first."""


@dataclass(frozen=True)
class RateSearch:
    """Runs of one mixer that differ in their learning rate alone."""

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
    """Read the search whose best rates the leaderboard has; none where it is not there."""
    results = finding_results("learning-rates")
    return rate_searches(results) if results is not None else []


def rate_searches(results: Results) -> list[RateSearch]:
    """Read the runs of a search of learning rates, the mixer with the best accuracy first.

    Args:
        results: a results folder with nothing but the finished runs of the search.
    """
    found: dict[str, dict[float, float]] = {}
    for run in results.records:
        rate = settings_of(results.path(run))["config.train.lr"]
        assert isinstance(rate, float)
        found.setdefault(run.mixer, {})[rate] = run.val_accuracy or 0.0
    searches = [
        RateSearch(mixer, sorted(by_rate), [by_rate[rate] for rate in sorted(by_rate)])
        for mixer, by_rate in found.items()
        if len(by_rate) == len(NAMES)
    ]
    return sorted(searches, key=lambda search: (-max(search.accuracies), search.mixer))
