"""Results on probes: of each mixer the best attempt, how many attempts succeed, and how far.

A probe is a task of one preset and protocol. Its columns are variants: languages, groups, numbers
of pairs. Runs on the same data that had more or less training are variants of their own.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from lra.record.changes import select_sections
from lra.record.run import NO_PREDICTION, RunRecord
from lra.report.boards import Board
from lra.report.data import Data
from lra.report.names import RowNames, natural_order, slugify, without_training
from lra.report.scores import ACCURACY, Cell, cell_of
from lra.report.tables.results import OVER_N_SEEDS, RANKS
from lra.report.tables.table import (
    Column,
    Entry,
    Table,
    name_column,
    number_entry,
    result_column,
    result_entry,
    text_column,
)
from tasks.base import PROBES

SUCCESS = 90.0
"""Test accuracy in percent from which an attempt counts as a success."""
DEFAULT = "default"
"""Name of the variant whose options are those of the preset."""
CHANCE = "chance"
"""Name of the trivial baseline that answers at random."""
_BASELINES = (CHANCE, "random value of the sequence")
"""Names of trivial baselines; a table shows the first one that is known."""
_LEAST_CHANCE = 10.0
"""Chance in percent from which accuracy is also tabulated scaled."""
_SIZES = ("task.train", "task.val", "task.test")
_BUDGET = {
    "train.steps": "{:,} steps",
    "train.epochs": "{:,} epochs",
    "train.minutes": "{:g} minutes",
    "train.batch_size": "batch size {}",
}
"""Settings of training that say how much of it there is, and how they are written."""
_BEST = (
    "Of the learning rates and other settings of training that were tried, a row shows those with "
    "the best validation accuracy."
)

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Variant:
    """What the mixers score on one variant of a probe."""

    name: str
    board: Board
    """The best attempt of each row: the settings of training whose validation accuracy is best."""
    attempts: Mapping[str, Sequence[RunRecord]]
    """By row, the runs of all settings of training that were tried."""

    @property
    def heading(self) -> str:
        """The name of the variant's column."""
        return self.name or "accuracy"

    def cell(self, row: str) -> Cell[RunRecord]:
        """Return the best attempt of a row; without runs if there is no attempt."""
        return next(iter(self.board.rows.get(row, {}).values()), Cell())

    def successes(self, row: str) -> str:
        """Write how many attempts of a row succeed, such as "3 of 12"."""
        runs = self.attempts[row]
        count = sum((run.test_accuracy or 0.0) >= SUCCESS for run in runs)
        return f"{count} of {len(runs)}"

    def baseline(self, name: str = CHANCE) -> float | None:
        """Return the accuracy of a trivial baseline in percent, if it is known."""
        found = [run.baselines[name] for run in self.board.records if name in run.baselines]
        return found[0] if found else None


@dataclass(frozen=True)
class Probe:
    """The results on one task of a preset and protocol, by variant of the task."""

    task: str
    preset: str
    protocol: str
    variants: Sequence[Variant]
    differing: str
    """The task's options that tell variants apart; empty where there is one variant."""

    @property
    def name(self) -> str:
        """The task, with preset and protocol."""
        return f"{self.task}, preset {self.preset}, protocol {self.protocol}"

    @property
    def slug(self) -> str:
        """The name of the probe in files and links."""
        return slugify(self.task, self.preset, self.protocol)

    @property
    def rows(self) -> list[str]:
        """The rows of all variants."""
        return sorted({row for variant in self.variants for row in variant.board.rows})

    @property
    def own_rows(self) -> list[str]:
        """The rows in which any run is the user's own, rather than a shipped one."""
        return sorted({row for variant in self.variants for row in variant.board.own_rows})


def probes(data: Data) -> list[Probe]:
    """Sort the results on probes by task, preset and protocol, and then by variant."""
    records = [record for record in data.records if record.task in PROBES]
    rows = _name_rows(data, records)
    found: list[Probe] = []
    groups = _group(records, lambda run: (PROBES.index(run.task), run.preset, run.protocol))
    for _, runs in sorted(groups.items()):
        by_data = _group(runs, lambda run: (run.data.source, run.data.fingerprint))
        names, differing = _name_variants([group[0] for group in by_data.values()])
        variants = [
            _variant(data, ", ".join(filter(None, [name, budget])), group, rows)
            for name, same_data in zip(names, by_data.values(), strict=True)
            for budget, group in _by_budget(same_data).items()
        ]
        variants.sort(key=lambda variant: natural_order(variant.name))
        found.append(Probe(runs[0].task, runs[0].preset, runs[0].protocol, variants, differing))
    return found


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


def _variant(data: Data, name: str, runs: Sequence[RunRecord], rows: Mapping[Path, str]) -> Variant:
    best: dict[str, dict[str, Cell[RunRecord]]] = {}
    attempts: dict[str, list[RunRecord]] = {}
    for row, group in sorted(_group(runs, lambda run: rows[data.path(run)]).items()):
        tried = _group(group, lambda run: (run.config_hash, run.overrides))
        cells = [cell_of(same, data.is_own) for same in tried.values()]
        best[row] = {runs[0].task: max(cells, key=lambda cell: cell.merit)}
        attempts[row] = [run for cell in cells for run in cell.runs]
    kind = f"{runs[0].data.source} data"
    board = Board(runs[0].preset, runs[0].protocol, best, {runs[0].task: kind}, name or kind)
    return Variant(name, board, attempts)


def probe_tables(data: Data, probe: Probe) -> list[Table]:
    """Tabulate the accuracy on each variant of a probe, and what else its papers print."""
    return [probe_table(probe), *_scaled_table(probe), *_length_table(data, probe)]


def probe_table(probe: Probe) -> Table:
    """Tabulate the accuracy on each variant of a probe, and how many runs succeed."""
    known = [name for name in _BASELINES if any(v.baseline(name) for v in probe.variants)][:1]
    below = [f"trivial baseline: {name}" for name in known]
    columns = [name_column("mixer", [*probe.rows, *below], probe.own_rows)]
    for variant in probe.variants:
        entries = [_entry(variant, row) for row in probe.rows]
        baselines = [variant.baseline(name) for name in known]
        columns.append(result_column(variant.heading, ACCURACY, entries, baselines))
    return Table(
        f"accuracy-{probe.slug}",
        f"{probe.name}: accuracy",
        f'Test accuracy in percent{_columns_of(probe)}. {_BEST} {OVER_N_SEEDS} "2 of '
        f'4" means that 2 of the 4 runs of all these settings reach {SUCCESS:.0f} %. {RANKS}',
        columns,
        len(below),
    )


def _entry(variant: Variant, row: str) -> Entry:
    entry = result_entry(variant.cell(row), ACCURACY)
    if entry.value is None:
        return entry
    successes = variant.successes(row)
    remarks = [*entry.remarks, f"{successes} succeed"]
    return dataclasses.replace(entry, text=f"{entry.text}, {successes}", remarks=remarks)


def _scaled_table(probe: Probe) -> list[Table]:
    """Tabulate the scaled accuracy of probes whose chance is high; elsewhere it says nothing."""
    if not any((variant.baseline() or 0.0) >= _LEAST_CHANCE for variant in probe.variants):
        return []
    columns = [name_column("mixer", probe.rows, probe.own_rows)]
    for variant in probe.variants:
        cells, chance = map(variant.cell, probe.rows), variant.baseline()
        texts = [_write_scaled(cell.mean(), chance) for cell in cells]
        columns.append(text_column(variant.heading, texts))
    caption = "(Accuracy - chance) / (100 % - chance), the mean over seeds"
    return [
        Table(
            f"scaled-accuracy-{probe.slug}",
            f"{probe.name}: scaled accuracy",
            f"{caption}{_columns_of(probe)}. {_BEST}",
            columns,
        )
    ]


def _write_scaled(mean: float | None, chance: float | None) -> str | None:
    if mean is None or chance is None:
        return None
    return f"{round((mean - chance) / (100.0 - chance), 3) + 0.0:.3f}"  # never -0.000


def _length_table(data: Data, probe: Probe) -> list[Table]:
    """Tabulate the longest right answers, where every position has a label."""
    columns = [name_column("mixer", probe.rows, probe.own_rows)]
    for variant in probe.variants:
        lengths = [longest_right(data, variant.cell(row)) for row in probe.rows]
        entries = [number_entry(length, digits=0, is_ranked=True) for length in lengths]
        columns.append(Column(variant.name or "positions", entries, digits=0))
    if all(column.is_empty for column in columns[1:]):
        return []
    caption = (
        f"Positions up to which {SUCCESS:.0f} % of the test sequences have no wrong answer"
        f"{_columns_of(probe)}. {_BEST} Of several seeds, the mean. {RANKS}"
    )
    slug, title = f"longest-length-{probe.slug}", f"{probe.name}: longest length"
    return [Table(slug, title, caption, columns)]


def longest_right(data: Data, cell: Cell[RunRecord]) -> float | None:
    """Return the length up to which SUCCESS percent of the test sequences have no wrong answer.

    Returns: the mean over the runs of a cell; None where not every position has a label.
    """
    found: list[float] = []
    for run in cell.runs:
        made = data.predictions(run)
        if made is None or made.first_wrong is None or not made.are_all_positions_scored:
            continue
        is_right = made.first_wrong == NO_PREDICTION
        wrong = np.where(is_right, made.metadata["length"], made.first_wrong)
        # That many sequences may be wrong earlier.
        found.append(float(np.sort(wrong)[int(len(wrong) * (100.0 - SUCCESS) / 100.0)]))
    return statistics.mean(found) if found else None


def _columns_of(probe: Probe) -> str:
    if not probe.differing:
        return ""
    has_default = any(variant.name == DEFAULT for variant in probe.variants)
    explained = f' ("{DEFAULT}" is the task of the preset)' if has_default else ""
    return f", by {probe.differing}{explained}"
