"""Results on probes: of each mixer the best attempt, and how many attempts succeed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from lra.record.changes import select_sections
from lra.record.run import RunRecord
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell, cell_of
from lra.report.boards.results import Results
from lra.report.boards.row_names import RowNames
from lra.report.boards.slugs import natural_order, slugify
from tasks.base import PROBES

SUCCESS = 90.0
"""Test accuracy in percent from which an attempt counts as a success."""

DEFAULT = "default"
"""Name of the variant whose options are those of the preset."""
_SIZES = ("task.train", "task.val", "task.test")
_WIDTH = "model.dim"
_BUDGET = {
    "train.steps": "{:,} steps",
    "train.epochs": "{:,} epochs",
    "train.minutes": "{:g} minutes",
    "train.batch_size": "batch size {}",
}
"""Settings of training that say how much of it there is, and how they are written."""
_WHAT_IS_COMPARED = ("mixer", "model")
"""Sections of settings in which rows differ. In others, such as the learning rate, attempts of one
row differ."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Variant:
    """What the mixers score on one variant of a probe: a language, a group, a number of pairs.

    Runs on the same data that had more or less training are variants of their own.
    """

    name: str
    board: Board
    """The best attempt of each row: the settings of training whose validation accuracy is best."""
    attempts: Mapping[str, Sequence[RunRecord]]
    """By row, the runs of all settings of training that were tried."""

    def successes(self, row: str) -> str:
        """Write how many attempts of a row succeed, such as "3 of 12"."""
        runs = self.attempts[row]
        count = sum((run.test_accuracy or 0.0) >= SUCCESS for run in runs)
        return f"{count} of {len(runs)}"


@dataclass(frozen=True)
class Probe:
    """The results on one task of a preset and protocol, by variant of the task."""

    task: str
    preset: str
    protocol: str
    variants: Sequence[Variant]
    differing: str
    """The task's options that tell variants apart; empty where there is one variant."""
    families: Mapping[str, str] = field(default_factory=dict)
    """By row, its name apart from the width of the model."""
    widths: Mapping[str, int] = field(default_factory=dict)
    """Channels of the model, by row."""

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

    def cell(self, row: str, variant: Variant) -> Cell[RunRecord] | None:
        """Return the best attempt of a row on a variant; None if there is no attempt."""
        return variant.board.rows.get(row, {}).get(self.task)


def probes(results: Results) -> list[Probe]:
    """Sort the results on probes by task, preset and protocol, and then by variant."""
    records = [record for record in results.records if record.task in PROBES]
    rows, families = _name_rows(results, records), _name_rows(results, records, _WIDTH)
    found: list[Probe] = []
    groups = _group(records, lambda run: (PROBES.index(run.task), run.preset, run.protocol))
    for _, runs in sorted(groups.items()):
        task, preset, protocol = runs[0].task, runs[0].preset, runs[0].protocol
        by_data = _group(runs, lambda run: (run.data.source, run.data.fingerprint))
        names, differing = _name_variants([group[0] for group in by_data.values()])
        variants = [
            _variant(results, ", ".join(filter(None, [name, budget])), group, rows)
            for name, same_data in zip(names, by_data.values(), strict=True)
            for budget, group in _by_budget(same_data).items()
        ]
        found.append(
            Probe(
                task,
                preset,
                protocol,
                sorted(variants, key=lambda variant: natural_order(variant.name)),
                differing,
                {rows[path]: families[path] for path in map(results.path, runs)},
                {rows[results.path(run)]: run.settings.get("model.dim", 0) for run in runs},
            )
        )
    return found


def _group(
    runs: Iterable[RunRecord], key: Callable[[RunRecord], Key]
) -> dict[Key, list[RunRecord]]:
    groups: dict[Key, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def _name_rows(results: Results, records: Sequence[RunRecord], *left_out: str) -> dict[Path, str]:
    """Name the rows of runs, by folder, from the settings of mixers and models not left out."""
    compared = [
        run.model_copy(
            update={
                "changed": [
                    name
                    for name in select_sections(run.changes, *_WHAT_IS_COMPARED)
                    if name not in left_out
                ],
                "config_hash": "",
            }
        )
        for run in records
    ]
    names = RowNames(compared)
    return {results.path(run): names.of(run) for run in compared}


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
            return written, ", ".join(map(_option_of, chosen))
    return [f"data {run.data.fingerprint[:8]}" for run in runs], "data"


def _write_options(run: RunRecord, names: Sequence[str]) -> str:
    """Write the value of a single option, or which of several options the command changed."""
    if len(names) == 1:
        return str(run.settings.get(names[0]))
    changed = {_option_of(name): run.settings[name] for name in names if name in run.changed}
    written = (name if value is True else f"{name} {value}" for name, value in changed.items())
    return ", ".join(written) or (DEFAULT if names else "")


def _option_of(name: str) -> str:
    return name.partition(".")[2]


def _by_budget(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Group runs on the same data by how much training they had, "" where all had as much."""
    budgets = {name: {run.settings.get(name) for run in runs} for name in _BUDGET}
    differing = [name for name, values in budgets.items() if len(values) > 1]

    def describe(run: RunRecord) -> str:
        values = {name: run.settings.get(name) for name in differing}
        return ", ".join(_BUDGET[n].format(v) for n, v in values.items() if v is not None)

    return _group(runs, describe)


def _variant(
    results: Results, name: str, runs: Sequence[RunRecord], rows: Mapping[Path, str]
) -> Variant:
    best: dict[str, dict[str, Cell[RunRecord]]] = {}
    attempts: dict[str, list[RunRecord]] = {}
    task = runs[0].task
    for row, group in sorted(_group(runs, lambda run: rows[results.path(run)]).items()):
        tried = _group(group, lambda run: (run.config_hash, tuple(run.overrides)))
        cells = [cell_of(same, results.is_own) for same in tried.values()]
        best[row] = {task: max(cells, key=lambda cell: cell.merit)}
        attempts[row] = [run for cell in cells for run in cell.runs]
    data = f"{runs[0].data.source} data"
    board = Board(runs[0].preset, runs[0].protocol, best, {task: data}, name or data)
    return Variant(name, board, attempts)
