"""What papers report: their results, the settings that repeat them, and where ours differ.

results/published.csv has the results. The settings files hold each published value with its source,
and ours with the reason where it differs (`lra.config.settings_files`).
"""

from __future__ import annotations

import csv
import functools
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from common.strict_yaml import parse_yaml
from common.untrusted import read_text
from lra.config.request import (
    DEFAULT_PROTOCOL,
    PAPER,
    RunRequest,
    can_change_a_result,
    parse_changes,
)
from lra.config.settings_files import (
    ALL,
    CONFIGS,
    STARTS,
    Entry,
    list_files,
    published_presets,
)
from lra.record.changes import write_changes
from lra.record.run import RunRecord
from lra.report.scores import FIVE, mean_over
from lra.runtime.console import MISSING
from lra.runtime.errors import UnknownName, UserError
from tasks.base import BENCHMARK

if TYPE_CHECKING:
    from lra.config.schema import RunConfig

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "published.csv"
PERPLEXITIES = PUBLISHED.with_name("published_perplexities.csv")
SOURCES = PUBLISHED.with_name("sources.yaml")
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
            t: float(text) if text not in ("", FAIL) else None for t, text in self.printed.items()
        }

    @property
    def average_text(self) -> str:
        """The printed average with its rule or, if that is WRONG, with the row's real average."""
        if not self.printed_average:
            return MISSING
        if self.average_rule != WRONG:
            return f"{self.printed_average} ({self.average_rule or 'not checked'})"
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


def _by_task(changes: Any) -> Any:
    return {ALL: changes} if isinstance(changes, list) else changes


class PublishedRun(BaseModel):
    """The run that repeats a row of results/published.csv."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    mixer: str
    protocol: str = DEFAULT_PROTOCOL
    preset: str = PAPER
    changes: Annotated[Mapping[str, list[str]], BeforeValidator(_by_task)] = {ALL: []}
    """Changed settings, as for --set, by task or for `ALL` others."""

    def changes_on(self, task: str) -> list[str]:
        """Return the changed settings on a task."""
        return self.changes.get(task, self.changes.get(ALL, []))


def published_runs(configs: Path = CONFIGS) -> dict[str, PublishedRun]:
    """Read the runs that repeat published rows, by the method of the row.

    Raises: UserError for a row that is not of that form.
    """
    found: dict[str, PublishedRun] = {}
    for mixer, file in list_files("mixers", configs).items():
        for method, body in file.rows.items():
            try:
                found[method] = PublishedRun.model_validate({"mixer": mixer, **(body or {})})
            except (TypeError, ValidationError) as error:
                said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
                raise UserError(f"{file.shown}: rows: {method}: {said}") from None
    return found


@dataclass(frozen=True)
class Repeat:
    """A published result on one task, and the settings that repeat it."""

    row: PublishedRow
    task: str
    config: RunConfig
    overrides: Sequence[str]

    def command(self, task: str | None = None) -> str:
        """Write the command that makes the run, with a word in place of the task."""
        line = ["python", "run_task.py", "--task", task or self.task]
        line += ["--mixer", self.config.mixer_name]
        if self.config.protocol != DEFAULT_PROTOCOL:
            line += ["--protocol", self.config.protocol]
        if self.config.preset != PAPER:
            line += ["--preset", self.config.preset]
        return shlex.join([*line, *(part for text in self.overrides for part in ("--set", text))])


def repeats() -> Iterator[Repeat]:
    """List the published results that the suite has the settings of, FAIL apart."""
    from lra.config.compose import compose

    by_method = {row.method: row for row in published_rows()}
    for method, run in published_runs().items():
        for task in BENCHMARK:
            if by_method[method].values[task] is not None:
                overrides = run.changes_on(task)
                request = RunRequest(
                    task=task, mixer=run.mixer, preset=run.preset, protocol=run.protocol,
                    changes=parse_changes(overrides),
                )  # fmt: skip
                yield Repeat(by_method[method], task, compose(request), overrides)


@dataclass(frozen=True)
class Difference:
    """A setting that is not what its source states, or parameters that start in another way."""

    owner: str
    """Mixer or task."""
    setting: str
    where: str
    """Tasks, protocol or preset that the setting is for; empty for all."""
    entry: Entry


def list_differences(configs: Path = CONFIGS) -> Iterator[Difference]:
    """List where our settings differ from what their sources state, tasks before mixers."""
    files = {**list_files("tasks", configs), **list_files("mixers", configs)}
    for owner, file in files.items():
        groups: dict[Entry, list[str]] = {}
        for one in file.entries:
            if one.has_other:
                same = replace(one, origin="", source="", task=ALL)
                groups.setdefault(same, []).append(one.task)
        for entry, tasks in groups.items():
            kind = "initial " if entry.section == STARTS else f"{entry.section}."
            limits = (("preset", entry.preset), ("protocol", entry.protocol))
            where = [task for task in tasks if task != ALL]
            where += [f"{of} {name}" for of, name in limits if name not in (None, PAPER)]
            yield Difference(owner, f"{kind}{entry.key}", ", ".join(where), entry)


@dataclass(frozen=True)
class ClosestResult:
    """A published accuracy of a run's mixer on its task."""

    row: PublishedRow
    accuracy: str
    """Percent, as printed."""
    differences: list[str]
    """How the published experiment differs from the run: "full size" for one."""
    mixer: str

    @property
    def text(self) -> str:
        """The accuracy with its source, and the method where it is not named like the mixer."""
        has_name = _letters(self.row.method) == _letters(self.mixer)
        method = "" if has_name else f"{self.row.method} "
        return f"{method}{self.accuracy} % ({cite(self.row.source)})"


def closest_result(record: RunRecord) -> ClosestResult | None:
    """Choose the published accuracy that comes closest to a run; None if none is of its mixer.

    The row whose settings the run has comes first, then the one that has the mixer's name, then
    the first one.
    """
    if record.has_own_code:
        return None  # a user's own, though it may have the name of one of ours
    runs = {method: run for method, run in published_runs().items() if run.mixer == record.mixer}
    rows = [
        row
        for row in rows_of({record.mixer})
        if row.values.get(record.task) is not None
        and (row.method not in runs or runs[row.method].preset in (PAPER, record.preset))
    ]
    if not rows:
        return None
    row = min(rows, key=lambda row: _distance(row, runs.get(row.method), record))
    differences = _differences(runs.get(row.method), record)
    return ClosestResult(row, row.printed[record.task], differences, record.mixer)


def closest_mean(record: RunRecord) -> float | None:
    """Return the mean over five tasks in percent of the row that comes closest to a run.

    Returns: None if no row is of its mixer, or if the row lacks a task.
    """
    closest = closest_result(record)
    return None if closest is None else mean_over(FIVE, closest.row.values)


def _distance(row: PublishedRow, run: PublishedRun | None, record: RunRecord) -> tuple[bool, ...]:
    """Order rows by how little they have in common with a run, the closest first."""
    is_other_method = _letters(row.method) != _letters(record.mixer)
    if run is None:
        return True, True, True, is_other_method
    is_other_protocol = run.protocol != record.protocol
    has_changes = set(run.changes_on(record.task)) != _changes(record)
    is_other_preset = run.preset != record.preset
    return has_changes or is_other_protocol, is_other_protocol, is_other_preset, is_other_method


def _differences(run: PublishedRun | None, record: RunRecord) -> list[str]:
    found = [] if record.preset in published_presets() else ["full size"]
    if run is not None and run.protocol != record.protocol:
        found.append(f"protocol {run.protocol}")
    if set(run.changes_on(record.task) if run else ()) != _changes(record):
        found.append("other settings")
    return found + ["official data"] * (record.data.source == "unofficial")


def _changes(record: RunRecord) -> set[str]:
    changes = {name: value for name, value in record.changes.items() if can_change_a_result(name)}
    return set(write_changes(changes))


def cite(source: str) -> str:
    """Name the authors and the year of a key of sources.yaml; the key where they are not known."""
    entry = _sources().get(source, {})
    return f"{entry['authors']}, {entry['year']}" if "authors" in entry else source


@functools.cache
def _sources() -> dict[str, dict[str, str]]:
    return parse_yaml(read_text(SOURCES), SOURCES.name)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
