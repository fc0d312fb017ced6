"""Results on probes: of each mixer the best attempt, and how many attempts succeed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

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
_SIZES = ("train", "val", "test")
_WIDTH = "model.dim="
_BUDGET = {
    "steps": "{:,} steps",
    "epochs": "{:,} epochs",
    "minutes": "{:g} minutes",
    "batch_size": "batch size {}",
}
"""Settings of training that say how much of it there is, and how they are written."""
_WHAT_IS_COMPARED = ("mixer.", "model.")
"""Settings in which rows differ. Others, such as the learning rate, are attempts of one row."""

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
    settings = {results.path(run): results.settings(run) for run in records}
    rows, families = _name_rows(results, records), _name_rows(results, records, _WIDTH)
    found: list[Probe] = []
    groups = _group(records, lambda run: (PROBES.index(run.task), run.preset, run.protocol))
    for _, runs in sorted(groups.items()):
        task, preset, protocol = runs[0].task, runs[0].preset, runs[0].protocol
        by_data = _group(runs, lambda run: (run.data.source, run.data.fingerprint))
        options = [settings[results.path(group[0])] for group in by_data.values()]
        changed = [group[0].overrides for group in by_data.values()]
        names, differing = _name_variants(options, changed, [key[1] for key in by_data])
        variants = [
            _variant(results, ", ".join(filter(None, [name, budget])), group, rows)
            for name, same_data in zip(names, by_data.values(), strict=True)
            for budget, group in _by_budget(results, same_data, settings).items()
        ]
        found.append(
            Probe(
                task,
                preset,
                protocol,
                sorted(variants, key=lambda variant: natural_order(variant.name)),
                differing,
                {rows[path]: families[path] for path in map(results.path, runs)},
                {
                    rows[path]: settings[path].get("config.model.dim", 0)
                    for path in map(results.path, runs)
                },
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
                "overrides": [
                    text
                    for text in run.overrides
                    if text.startswith(_WHAT_IS_COMPARED) and not text.startswith(left_out)
                ],
                "config_hash": "",
            }
        )
        for run in records
    ]
    names = RowNames(compared)
    return {results.path(run): names.of(run) for run in compared}


def _name_variants(
    settings: Sequence[Mapping[str, Any]],
    overrides: Sequence[Sequence[str]],
    fingerprints: Sequence[str],
) -> tuple[list[str], str]:
    """Name variants by the options in which they differ, or by their data if there is none.

    Args:
        settings: all settings of a run of each variant, by dotted key.
        overrides: what the command of this run changed, such as "task.length=128".
        fingerprints: of the data of each variant.
    Returns: the names, and the options.
    """
    start = "config.task."
    options = [
        {key.removeprefix(start): value for key, value in one.items() if key.startswith(start)}
        for one in settings
    ]
    keys = sorted({key for one in options for key in one})
    differing = [key for key in keys if len({str(one.get(key)) for one in options}) > 1]
    for chosen in ([key for key in differing if key not in _SIZES], differing):
        names = [
            _write_options(one, chosen, changed)
            for one, changed in zip(options, overrides, strict=True)
        ]
        if len(set(names)) == len(names):
            return names, ", ".join(chosen)
    return [f"data {fingerprint[:8]}" for fingerprint in fingerprints], "data"


def _write_options(
    options: Mapping[str, Any], keys: Sequence[str], overrides: Sequence[str]
) -> str:
    """Write the value of a single option, or which of several options the command changed."""
    if len(keys) == 1:
        return str(options.get(keys[0]))
    changed = [key for key in keys if any(text.startswith(f"task.{key}=") for text in overrides)]
    written = (key if options[key] is True else f"{key} {options[key]}" for key in changed)
    return ", ".join(written) or (DEFAULT if keys else "")


def _by_budget(
    results: Results, runs: Sequence[RunRecord], settings: Mapping[Path, Mapping[str, Any]]
) -> dict[str, list[RunRecord]]:
    """Group runs on the same data by how much training they had, "" where all had as much."""

    def budget_of(run: RunRecord) -> list[Any]:
        found = settings[results.path(run)]
        return [found.get(f"config.train.{key}") for key in _BUDGET]

    budgets = [budget_of(run) for run in runs]
    differs = [len({values[k] for values in budgets}) > 1 for k in range(len(_BUDGET))]
    return _group(
        runs,
        lambda run: ", ".join(
            text.format(value)
            for text, value, is_named in zip(_BUDGET.values(), budget_of(run), differs, strict=True)
            if is_named and value is not None
        ),
    )


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
