"""The published result that comes closest to a run, and how their settings differ."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from common.strict_yaml import parse_yaml
from common.untrusted import read_text
from lra.config.request import PAPER, can_change_a_result
from lra.config.settings_files import published_presets
from lra.record.changes import write_changes
from lra.record.run import RunRecord
from lra.report.boards.averages import FIVE, mean_over
from lra.report.published.rows import PUBLISHED, PublishedRow, rows_of
from lra.report.published.settings import PublishedRun, published_runs

SOURCES = PUBLISHED.with_name("sources.yaml")


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
    if record.task_code is not None or record.mixer_code is not None:
        return None  # a user's own, though it may have the name of one of ours
    rows = [row for row in rows_of({record.mixer}) if row.values.get(record.task) is not None]
    runs = {method: run for method, run in published_runs().items() if run.mixer == record.mixer}
    known = [row for row in rows if _is_of_preset(runs.get(row.method), record)]
    if not known:
        return None
    row = min(known, key=lambda row: _distance(row, runs.get(row.method), record))
    differences = _differences(row, runs.get(row.method), record)
    return ClosestResult(row, row.printed[record.task], differences, record.mixer)


def closest_mean(record: RunRecord) -> float | None:
    """Return the mean over five tasks in percent of the row that comes closest to a run.

    Returns: None if no row is of its mixer, or if the row lacks a task.
    """
    closest = closest_result(record)
    return None if closest is None else mean_over(FIVE, closest.row.values)


def _is_of_preset(run: PublishedRun | None, record: RunRecord) -> bool:
    """Whether a row is of the mixer's main settings, or of the preset of the run."""
    return run is None or run.preset in (PAPER, record.preset)


def _distance(row: PublishedRow, run: PublishedRun | None, record: RunRecord) -> tuple[bool, ...]:
    """Order rows by how little they have in common with a run, the closest first."""
    is_other_method = _letters(row.method) != _letters(record.mixer)
    if run is None:
        return True, True, True, is_other_method
    is_other_protocol = run.protocol != record.protocol
    has_changes = set(run.changes_on(record.task)) != _changes(record)
    is_other_preset = run.preset != record.preset
    return has_changes or is_other_protocol, is_other_protocol, is_other_preset, is_other_method


def _differences(row: PublishedRow, run: PublishedRun | None, record: RunRecord) -> list[str]:
    found: list[str] = []
    if record.preset not in published_presets():
        found.append("full size")
    if run is not None and run.protocol != record.protocol:
        found.append(f"protocol {run.protocol}")
    own = set(run.changes_on(record.task)) if run else set[str]()
    if own != _changes(record):
        found.append("other settings")
    if record.data.source == "unofficial":
        found.append("official data")
    return found


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
