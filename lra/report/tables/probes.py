"""Results on probes: of each mixer the best attempt, and how many attempts succeed.

A probe is a task of one preset and protocol. Its columns are variants: languages, groups, numbers
of pairs. Runs on the same data that had more or less training are variants of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from lra.record.run import RunRecord
from lra.record.schema import select_sections
from lra.report.boards import Board
from lra.report.data import Data
from lra.report.names import RowNames, natural_order, slugify, without_training
from lra.report.scores import ACCURACY, Cell, cell_of
from lra.report.tables.results import OVER_N_SEEDS, RANKS
from lra.report.tables.table import Entry, Table, result_columns
from tasks.base import PROBES

SUCCESS = 90.0
"""Test accuracy in percent from which an attempt counts as a success."""
DEFAULT = "default"
"""Name of the variant whose options are those of the preset."""
_BASELINES = ("chance", "random value of the sequence")
"""Names of trivial baselines; a table shows the first one that is known."""
_SIZES = ("task.train", "task.val", "task.test")
_BUDGET = {
    "train.steps": "{:,} steps",
    "train.epochs": "{:,} epochs",
    "train.minutes": "{:g} minutes",
    "train.batch_size": "batch size {}",
}
"""Settings of training that say how much of it there is, and how they are written."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Probe(Board):
    """The results on one task of a preset and protocol; its columns are variants of the task.

    A cell has the best attempt of a row: the settings of training whose validation accuracy is
    best.
    """

    task: str = ""
    attempts: Mapping[tuple[str, str], Sequence[RunRecord]] = field(default_factory=dict)
    """By row and variant, the runs of all settings of training that were tried."""
    differing: str = ""
    """The task's options that distinguish variants; empty where there is one variant."""

    @property
    def tasks(self) -> list[str]:
        """The variants."""
        return [*self.conditions]

    @property
    def name(self) -> str:
        """The task, with preset and protocol."""
        return f"{self.task}, preset {self.preset}, protocol {self.protocol}"

    @property
    def slug(self) -> str:
        """The name of the probe in files and links."""
        return slugify(self.task, self.preset, self.protocol)


def probes(data: Data) -> list[Probe]:
    """Sort the results on probes by task, preset and protocol, and then by variant."""
    records = [record for record in data.records if record.task in PROBES]
    rows = _name_rows(data, records)
    groups = _group(records, lambda run: (PROBES.index(run.task), run.preset, run.protocol))
    return [_make_probe(data, runs, rows) for _, runs in sorted(groups.items())]


def _make_probe(data: Data, runs: Sequence[RunRecord], names: Mapping[Path, str]) -> Probe:
    by_data = _group(runs, lambda run: (run.data.source, run.data.fingerprint))
    written, differing = _name_variants([group[0] for group in by_data.values()])
    variants = {
        ", ".join(filter(None, [name, budget])) or "accuracy": group
        for name, same_data in zip(written, by_data.values(), strict=True)
        for budget, group in _by_budget(same_data).items()
    }
    rows: dict[str, dict[str, Cell[RunRecord]]] = {name: {} for name in sorted(names.values())}
    attempts: dict[tuple[str, str], list[RunRecord]] = {}
    for variant, found in variants.items():
        for row, group in _group(found, lambda run: names[data.path(run)]).items():
            tried = _group(group, lambda run: (run.config_hash, run.overrides))
            cells = [cell_of(same, data.is_own) for same in tried.values()]
            rows[row][variant] = max(cells, key=lambda cell: cell.merit)
            attempts[row, variant] = [run for cell in cells for run in cell.runs]
    return Probe(
        runs[0].preset,
        runs[0].protocol,
        {row: cells for row, cells in rows.items() if cells},
        {
            name: f"{variants[name][0].data.source} data"
            for name in sorted(variants, key=natural_order)
        },
        task=runs[0].task,
        attempts=attempts,
        differing=differing,
    )


def _group(
    runs: Iterable[RunRecord], key: Callable[[RunRecord], Key]
) -> dict[Key, list[RunRecord]]:
    groups: dict[Key, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def _name_rows(data: Data, records: Sequence[RunRecord]) -> dict[Path, str]:
    """Name the rows of runs, by folder, from the settings of mixers and models.

    Attempts of one row differ in other settings, such as the learning rate.
    """
    compared = [without_training(run) for run in records]
    names = RowNames(compared)
    return {data.path(run): names.of(run) for run in compared}


def _name_variants(runs: Sequence[RunRecord]) -> tuple[list[str], str]:
    """Name variants by the options in which they differ, or by their data if there is none.

    Args:
        runs: a run of each variant.
    Returns: the names, and the options.
    """
    options = [select_sections(run.settings, "task") for run in runs]
    names = sorted({name for one in options for name in one})
    differing = [name for name in names if len({str(one.get(name)) for one in options}) > 1]
    for chosen in ([name for name in differing if name not in _SIZES], differing):
        written = [_write_options(run, chosen) for run in runs]
        if len(set(written)) == len(written):
            return written, ", ".join(name.partition(".")[2] for name in chosen)
    return [f"data {run.data.fingerprint[:8]}" for run in runs], "data"


def _write_options(run: RunRecord, names: Sequence[str]) -> str:
    """Write the value of a single option, or which of several options the command changed."""
    if len(names) == 1:
        return str(run.settings.get(names[0]))
    changed = {n.partition(".")[2]: run.settings[n] for n in names if n in run.changed}
    written = (name if value is True else f"{name} {value}" for name, value in changed.items())
    return ", ".join(written) or (DEFAULT if names else "")


def _by_budget(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Group runs on the same data by how much training they had, "" where all had as much."""
    budgets = {name: {run.settings.get(name) for run in runs} for name in _BUDGET}
    differing = [name for name, values in budgets.items() if len(values) > 1]

    def describe(run: RunRecord) -> str:
        values = {name: run.settings.get(name) for name in differing}
        return ", ".join(_BUDGET[n].format(v) for n, v in values.items() if v is not None)

    return _group(runs, describe)


def probe_table(probe: Probe) -> Table:
    """Tabulate the accuracy on each variant of a probe, and how many runs succeed."""
    beneath: dict[str, dict[str, float]] = {}
    cells = [found for row in probe.rows.values() for found in row.items()]
    for name in _BASELINES:
        found = {
            variant: run.baselines[name]
            for variant, cell in cells
            for run in cell.runs
            if name in run.baselines
        }
        if found and not beneath:
            beneath[f"trivial baseline: {name}"] = found
    names, *columns = result_columns(probe.rows, probe.tasks, ACCURACY, beneath)
    rows = [*probe.rows, *beneath]
    columns = [
        dataclasses.replace(
            column,
            entries=[
                _add_successes(entry, probe.attempts.get((row, column.name), ()))
                for row, entry in zip(rows, column.entries, strict=True)
            ],
        )
        for column in columns
    ]
    by = f", by {probe.differing}" if probe.differing else ""
    by += f' ("{DEFAULT}" is the task of the preset)' if DEFAULT in probe.tasks else ""
    return Table(
        f"accuracy-{probe.slug}",
        f"{probe.name}: accuracy",
        f"Test accuracy in percent{by}. Of the learning rates and other settings of training that "
        f"were tried, a row shows those with the best validation accuracy. {OVER_N_SEEDS} "
        f'"2 of 4" means that 2 of the 4 runs of all these settings reach {SUCCESS:.0f} %. {RANKS}',
        [names, *columns],
        len(beneath),
    )


def _add_successes(entry: Entry, attempts: Sequence[RunRecord]) -> Entry:
    if entry.value is None or not attempts:
        return entry
    count = sum((run.test_accuracy or 0.0) >= SUCCESS for run in attempts)
    successes = f"{count} of {len(attempts)}"
    remarks = [*entry.remarks, f"{successes} succeed"]
    return dataclasses.replace(entry, text=f"{entry.text}, {successes}", remarks=remarks)
