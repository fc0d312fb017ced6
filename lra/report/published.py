"""What papers report: the rows of results/published.csv, and the one that a run compares with."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lra.common.strict_yaml import parse_yaml
from lra.common.untrusted import read_text
from lra.config.layers import published_presets
from lra.config.request import DEFAULT_PROTOCOL, PAPER, SPEED_ALONE
from lra.config.settings_files import ALL, read_file
from lra.record.run import RunRecord
from lra.record.schema import write_changes
from lra.tasks.base import BENCHMARK

PUBLISHED = Path(__file__).resolve().parents[1] / "results" / "published.csv"
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
    source: str
    """Key of the source in sources.yaml."""
    note: str
    split: str = "test"
    """The split that was scored: test, or val where a source prints validation accuracies."""

    @property
    def other_name(self) -> str:
        """The method and a space, unless it is named like the mixer."""
        names = (
            name.lower().replace(" ", "").replace("-", "") for name in (self.method, self.mixer)
        )
        return "" if len({*names}) == 1 else f"{self.method} "

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
                printed={task: row[task] for task in BENCHMARK},
                **{name: row[name] for name in ("method", "mixer", "source", "note", "split")},
            )
            for row in csv.DictReader(file)
        ]


def read_sources() -> dict[str, Any]:
    """Read sources.yaml: authors, title, year and url of each source by its key."""
    return parse_yaml(read_text(SOURCES), SOURCES.name)


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
    rows = read_file("mixers", mixer).rows
    return {method: PublishedRun(mixer, **(body or {})) for method, body in rows.items()}


def repeated_row(record: RunRecord) -> PublishedRow | None:
    """Return the published row that a run repeats on its task; None if it repeats none."""
    runs = {} if record.has_own_code else published_runs(record.mixer)
    methods = [
        method
        for method, run in runs.items()
        if (run.preset, run.protocol) == (record.preset, record.protocol)
        and {*run.changes_on(record.task)} == {*write_changes(_changes_of_results(record))}
    ]
    rows = [row for row in published_rows() if row.method in methods]
    return next((row for row in rows if row.values.get(record.task) is not None), None)


def _changes_of_results(record: RunRecord) -> dict[str, Any]:
    """Return the changed settings of a run that can change its result."""
    return {name: value for name, value in record.changes.items() if name not in SPEED_ALONE}


def closest_row(record: RunRecord) -> tuple[PublishedRow, list[str]] | None:
    """Choose the published row that comes closest to a run on its task, and say how they differ.

    The row whose settings the run has comes first, then one of its preset and protocol, then the
    one that has the mixer's name, then the first one.
    """
    if record.has_own_code:
        return None  # a user's own, though it may have the name of one of ours
    changes = _changes_of_results(record)
    runs = published_runs(record.mixer)
    preset = record.preset if record.preset in published_presets() else PAPER
    candidates: list[tuple[tuple[bool, ...], PublishedRow, list[str]]] = []
    for row in published_rows():
        run = runs.get(row.method, PublishedRun(record.mixer, protocol=""))
        is_other_protocol = run.protocol != record.protocol
        differences = [f"protocol {run.protocol}"] if run.protocol and is_other_protocol else []
        if {*write_changes(changes)} != {*run.changes_on(record.task)}:
            differences.append("other settings")
        has_number = row.mixer == record.mixer and row.values.get(record.task) is not None
        if has_number and run.preset in (PAPER, preset):
            is_other_preset = run.preset != preset
            if is_other_preset:
                differences.append("preset paper")
            is_other = is_other_protocol or is_other_preset
            order = (
                is_other or bool(differences),
                is_other,
                row.split != "test",
                bool(row.other_name),
            )
            candidates.append((order, row, differences))
    return min(candidates, key=lambda candidate: candidate[0])[1:] if candidates else None


def describe_published(record: RunRecord) -> str:
    """Write the closest published accuracy, its source, and how its experiment differs from a run;
    the method where it is not named like the mixer. Empty without one.
    """
    if (closest := closest_row(record)) is None:
        return ""
    row, differences = closest
    parts = ["published"]
    if record.preset not in published_presets():
        parts.append("full size")
    parts += differences
    if record.data.source == "unofficial":
        parts.append("official data")
    source = read_sources()[row.source]
    cited = f"{source['authors']}, {source['year']}" if "authors" in source else row.source
    validation = " validation accuracy" if row.split == "val" else ""
    return f"{', '.join(parts)}: {row.other_name}{row.printed[record.task]} %{validation} ({cited})"
