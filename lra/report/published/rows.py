"""Results as printed in papers, and the averages that their rows really have."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from lra.report.boards.averages import FIVE, mean_over
from lra.runtime.console import MISSING
from lra.runtime.errors import UnknownName
from tasks.base import BENCHMARK

PUBLISHED = Path(__file__).resolve().parents[3] / "results" / "published.csv"
PERPLEXITIES = PUBLISHED.with_name("published_perplexities.csv")
FAIL = "FAIL"
"""A result that the source prints as at chance or not trained."""
WRONG = "wrong"
"""Rule of a printed average that none of the known rules gives."""


@dataclass(frozen=True)
class PublishedRow:
    """A row of published.csv."""

    method: str
    mixer: str
    """The mixer of this suite that the method is, or nothing."""
    printed: Mapping[str, str]
    """Printed text by task: a number, FAIL, or nothing."""
    printed_average: str
    """The average that the source prints, or nothing."""
    average_rule: str
    """The rule that gives the printed average: "of 6", "of 5", "of 5, no ListOps", "of 6, FAIL as
    50" or WRONG; empty if no average is printed, or nothing else."""
    source: str
    """Key of the source in sources.yaml."""
    note: str

    @property
    def values(self) -> dict[str, float | None]:
        """Accuracies in percent by task; None where no number is printed."""
        return {
            task: float(text) if text not in ("", FAIL) else None
            for task, text in self.printed.items()
        }

    @property
    def average_text(self) -> str:
        """The printed average with its rule or, if that is WRONG, with the row's real average."""
        if not self.printed_average:
            return MISSING
        if not self.average_rule:
            return f"{self.printed_average} (not checked)"
        if self.average_rule != WRONG:
            return f"{self.printed_average} ({self.average_rule})"
        averages = [mean_over(tasks, self.values) for tasks in (BENCHMARK, FIVE)]
        real = next((average for average in averages if average is not None), None)
        gives = "does not follow from the row" if real is None else f"the row gives {real:.2f}"
        return f"{self.printed_average} (wrong: {gives})"


def published_rows() -> list[PublishedRow]:
    """Read published.csv."""
    with PUBLISHED.open(newline="", encoding="utf-8") as file:
        return [
            PublishedRow(
                method=row["method"],
                mixer=row["mixer"],
                printed={task: row[task] for task in BENCHMARK},
                printed_average=row["avg_as_published"],
                average_rule=row["avg_rule"],
                source=row["source"],
                note=row["note"],
            )
            for row in csv.DictReader(file)
        ]


def choose_published(named: str | None) -> list[PublishedRow]:
    """Choose rows by `--published`: all for None, none for "none", else those named.

    Raises: UserError for a method that is not there.
    """
    rows = published_rows()
    if named is None:
        return rows
    names = [] if named == "none" else [name.strip() for name in named.split(",")]
    by_name = {row.method.casefold(): row for row in rows}
    for name in names:
        if name.casefold() not in by_name:
            raise UnknownName("method", name, (row.method for row in rows), "--published")
    return [by_name[name.casefold()] for name in names]


def rows_of(mixers: Collection[str]) -> list[PublishedRow]:
    """Return the published rows of mixers of this suite."""
    return [row for row in published_rows() if row.mixer in mixers]


def published_perplexities(tasks: Collection[str]) -> list[dict[str, str]]:
    """Read the rows of published_perplexities.csv on some tasks."""
    with PERPLEXITIES.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["task"] in tasks]
