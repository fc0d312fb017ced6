"""What papers report: the rows of results/published.csv, and the one that a run compares with."""

from __future__ import annotations

import csv
import functools
import re
import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import UnknownName
from common.strict_yaml import parse_yaml
from common.untrusted import read_text
from lra.config.request import DEFAULT_PROTOCOL, PAPER, SPEED_ALONE
from lra.config.settings_files import ALL, published_presets, read_file
from lra.record.run import RunRecord
from lra.record.schema import write_changes
from tasks.base import BENCHMARK

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "published.csv"
SOURCES = PUBLISHED.with_name("sources.yaml")
FAIL = "FAIL"
"""A result that the source prints as at chance or not trained."""


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
    50" or "wrong"; empty if no average is printed, or nothing else."""
    source: str
    """Key of the source in sources.yaml."""
    note: str

    @property
    def values(self) -> dict[str, float | None]:
        """Accuracies in percent by task; None where no number is printed."""
        return {
            t: float(text) if text not in ("", FAIL) else None for t, text in self.printed.items()
        }


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


@dataclass(frozen=True)
class PublishedRun:
    """The run that repeats a row, as the settings file of its mixer describes it."""

    mixer: str
    protocol: str = DEFAULT_PROTOCOL
    preset: str = PAPER
    changes: Mapping[str, list[str]] = field(default_factory=dict)
    """Changed settings, as for --set, by task or for `ALL` others."""

    def changes_on(self, task: str) -> list[str]:
        """Return the changed settings on a task."""
        return self.changes.get(task, self.changes.get(ALL, []))


def published_runs(mixer: str) -> dict[str, PublishedRun]:
    """Read the runs that repeat published rows of a mixer, by the method of the row."""
    rows: Mapping[str, Any] = read_file("mixers", mixer).rows
    return {method: PublishedRun(mixer, **(body or {})) for method, body in rows.items()}


def closest_row(record: RunRecord) -> PublishedRow | None:
    """Choose the published row that comes closest to a run on its task; None without any.

    The row whose settings the run has comes first, then one of its protocol, then the one that has
    the mixer's name, then the first one.
    """
    if record.has_own_code:
        return None  # a user's own, though it may have the name of one of ours
    runs = published_runs(record.mixer)

    def distance(row: PublishedRow) -> tuple[bool, ...]:
        run = runs.get(row.method)
        is_other_protocol = run is None or run.protocol != record.protocol
        is_other = is_other_protocol or bool(_other_settings(run, record))
        return is_other, is_other_protocol, _letters(row.method) != _letters(record.mixer)

    rows = [
        row
        for row in rows_of({record.mixer})
        if row.values.get(record.task) is not None
        and (row.method not in runs or runs[row.method].preset in (PAPER, record.preset))
    ]
    return min(rows, key=distance, default=None)


def closest_mean(record: RunRecord) -> float | None:
    """Return the mean over five tasks in percent of the row that comes closest to a run."""
    row = closest_row(record)
    values = [] if row is None else [row.values[task] for task in BENCHMARK[:-1]]
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known and len(known) == len(values) else None


def describe_published(record: RunRecord) -> str:
    """Write the closest published accuracy, its source, and how its experiment differs from a run;
    the method where it is not named like the mixer. Empty without one.
    """
    if (row := closest_row(record)) is None:
        return ""
    run = published_runs(record.mixer).get(row.method)
    parts = ["published"] + ["full size"] * (record.preset not in published_presets())
    if run is not None and run.protocol != record.protocol:
        parts.append(f"protocol {run.protocol}")
    parts += _other_settings(run, record)
    parts += ["official data"] * (record.data.source == "unofficial")
    source = _sources().get(row.source, {})
    cited = f"{source['authors']}, {source['year']}" if "authors" in source else row.source
    method = "" if _letters(row.method) == _letters(record.mixer) else f"{row.method} "
    return f"{', '.join(parts)}: {method}{row.printed[record.task]} % ({cited})"


def _other_settings(run: PublishedRun | None, record: RunRecord) -> list[str]:
    changes = {name: value for name, value in record.changes.items() if name not in SPEED_ALONE}
    published = [] if run is None else run.changes_on(record.task)
    return ["other settings"] * ({*write_changes(changes)} != {*published})


@functools.cache
def _sources() -> dict[str, dict[str, str]]:
    return parse_yaml(read_text(SOURCES), SOURCES.name)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
