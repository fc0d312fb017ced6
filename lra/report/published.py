"""Results as printed in papers, and what their rows really average to."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lra.report.cells import MISSING
from lra.report.table import Table, ranks
from lra.runtime.errors import unknown
from tasks.base import BENCHMARK

PUBLISHED = Path(__file__).resolve().parent.parent.parent / "results" / "published.csv"
FAIL = "FAIL"
"""A result that the source prints as at chance or not trained."""
FIVE = BENCHMARK[:-1]
"""The tasks of the average without Path-X."""
TOLERANCE = 0.0101
"""Of a printed average: cells and average are rounded, or cut off, to two digits."""


def mean_over(tasks: Sequence[str], values: Mapping[str, float | None]) -> float | None:
    """Average a row over tasks; None if any is missing."""
    found = [value for task in tasks if (value := values.get(task)) is not None]
    return statistics.mean(found) if len(found) == len(tasks) else None


@dataclass(frozen=True)
class PublishedRow:
    """A row of published.csv."""

    method: str
    printed: Mapping[str, str]
    """Text by task: a number, FAIL, or nothing."""
    printed_average: str
    source: str
    """Key in sources.yaml."""
    note: str

    @property
    def values(self) -> dict[str, float | None]:
        """Percent by task; None where there is no number."""
        return {
            task: float(text) if text not in ("", FAIL) else None
            for task, text in self.printed.items()
        }

    @property
    def average_rule(self) -> str | None:
        """Which average the source printed: None if no rule gives the printed number."""
        if not self.printed_average:
            return ""
        return next(
            (
                name
                for name, average in _RULES.items()
                if (value := average(self)) is not None
                and abs(value - float(self.printed_average)) <= TOLERANCE
            ),
            None,
        )

    @property
    def average_text(self) -> str:
        """The printed average with its rule, or with what the row really gives."""
        if not self.printed_average:
            return MISSING
        if self.average_rule is not None:
            return f"{self.printed_average} ({self.average_rule})"
        real = mean_over(FIVE, self.values)
        gives = "does not follow from the row" if real is None else f"the row gives {real:.2f}"
        return f"{self.printed_average} (wrong: {gives})"

    def _with_fail_as_50(self) -> float | None:
        filled = {t: 50.0 if text == FAIL else self.values[t] for t, text in self.printed.items()}
        return mean_over(BENCHMARK, filled)


_RULES: dict[str, Callable[[PublishedRow], float | None]] = {
    "of 6": lambda row: mean_over(BENCHMARK, row.values),
    "of 5": lambda row: mean_over(FIVE, row.values),
    "of 6, FAIL as 50": lambda row: row._with_fail_as_50(),
}
"""Averages in use, by what the table calls them."""


def published_rows() -> list[PublishedRow]:
    """Read published.csv."""
    with PUBLISHED.open(newline="", encoding="utf-8") as file:
        return [
            PublishedRow(
                method=row["method"],
                printed={task: row[task] for task in BENCHMARK},
                printed_average=row["avg_as_published"],
                source=row["source"],
                note=row["note"],
            )
            for row in csv.DictReader(file)
        ]


def choose_published(wanted: str | None) -> list[PublishedRow]:
    """Choose rows by `--published`: all for None, none for "none", else those named.

    Raises: UserError for a method that is not there.
    """
    rows = published_rows()
    if wanted is None:
        return rows
    names = [] if wanted == "none" else [name.strip() for name in wanted.split(",")]
    by_name = {row.method.casefold(): row for row in rows}
    for name in names:
        if name.casefold() not in by_name:
            raise unknown("method", name, (row.method for row in rows), "--published")
    return [by_name[name.casefold()] for name in names]


def published_table(rows: Sequence[PublishedRow]) -> Table:
    """Tabulate published results, their averages recomputed."""
    lines: list[list[str]] = []
    columns: list[list[float | None]] = []
    for row in rows:
        averages = [mean_over(tasks, row.values) for tasks in (FIVE, BENCHMARK)]
        texts = [row.printed[task] or MISSING for task in BENCHMARK]
        texts += [MISSING if value is None else f"{value:.2f}" for value in averages]
        lines.append([row.method, *texts, row.average_text, row.source, row.note or MISSING])
        columns.append([*row.values.values(), *averages])
    marks = {
        (i, j): mark
        for j, values in enumerate(zip(*columns, strict=True), start=1)
        for i, mark in ranks(values).items()
    }
    return Table(
        slug="published",
        title="Published results",
        caption="Test accuracy in percent as printed by the source (keys: results/sources.yaml), "
        "on its own hardware and protocol. FAIL: at chance. The two averages are recomputed, and "
        "a row with a hole has none; beside them the printed one, with the rule that gives it.",
        columns=[
            "method",
            *BENCHMARK,
            "mean of 5",
            "mean of 6",
            "printed average",
            "source",
            "note",
        ],
        rows=lines,
        marks=marks,
        facts=[
            {"method": row.method, "task": task, "accuracy": text, "source": row.source}
            for row in rows
            for task, text in row.printed.items()
        ],
    )
