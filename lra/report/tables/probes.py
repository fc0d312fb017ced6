"""Results on probes: of each mixer the best attempt, and how many attempts succeed.

A probe is a task of one preset and protocol. Its columns are variants: languages, groups, numbers
of pairs. Runs on the same data that had more or less training are variants of their own.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lra.record.run import RunRecord
from lra.record.schema import select_sections
from lra.report.boards import Board, Cells, arrange, is_probe
from lra.report.data import Data
from lra.report.names import RowNames, natural_order, slugify, without_training
from lra.report.scores import Cell, Entry, group_by
from lra.report.tables.results import OVER_N_SEEDS, RANKS
from lra.report.tables.table import Column, Table, fill_columns
from lra.tasks.base import PROBES

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


@dataclass(frozen=True)
class Probe(Board):
    """The results on one task of a preset and protocol; its columns are variants of the task.

    A cell has the best attempt of a row: the settings of training whose validation accuracy is
    best.
    """

    task: str = ""
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
    records = [record for record in data.records if is_probe(record)]
    # Attempts of one row differ in settings of training, such as the learning rate.
    names = RowNames([*map(without_training, records)])
    groups = group_by(
        records, lambda run: (PROBES.index(run.task), names.of_preset(run), run.protocol)
    )
    return [_make_probe(data, runs, names) for _, runs in sorted(groups.items())]


def _make_probe(data: Data, runs: Sequence[RunRecord], names: RowNames) -> Probe:
    by_data = group_by(runs, _data_of)
    written, differing = _name_variants([group[0] for group in by_data.values()])
    variants: dict[str, Sequence[RunRecord]] = {}
    for name, same_data in zip(written, by_data.values(), strict=True):
        for budget, group in group_by(same_data, _budget_of(same_data)).items():
            variant = ", ".join(filter(None, [name, budget])) or "accuracy"
            while variant in variants:  # texts of different settings or data may be equal
                variant += f" ({group[0].data.source})"
            variants[variant] = group
    variant_of = {data.path(run): name for name, group in variants.items() for run in group}
    rows = arrange(
        runs,
        lambda run: names.of(without_training(run)),
        lambda run: variant_of[data.path(run)],
        data.is_own,
    )
    order = sorted(variants, key=natural_order)
    conditions = {name: f"{variants[name][0].data.source} data" for name in order}
    first = runs[0]
    return Probe(
        names.of_preset(first),
        first.protocol,
        rows,
        conditions,
        task=first.task,
        differing=differing,
    )


def _data_of(run: RunRecord) -> tuple[str, ...]:
    return run.task, run.data.source, run.data.fingerprint


def _name_variants(runs: Sequence[RunRecord]) -> tuple[list[str], str]:
    """Name the variants of runs by the options in which they differ, or else by their data.

    Returns: the names, and the options.
    """
    options = [select_sections(run.settings, "task") for run in runs]
    names = sorted({name for values in options for name in values})
    differing = [name for name in names if len({str(values.get(name)) for values in options}) > 1]
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


def _budget_of(runs: Sequence[RunRecord]) -> Callable[[RunRecord], str]:
    """Describe how much training a run had, "" where all runs had as much."""
    budgets = {name: {run.settings.get(name) for run in runs} for name in _BUDGET}
    differing = [name for name, values in budgets.items() if len(values) > 1]

    def describe(run: RunRecord) -> str:
        values = {name: run.settings.get(name) for name in differing}
        return ", ".join(_BUDGET[n].format(v) for n, v in values.items() if v is not None)

    return describe


def ability_table(data: Data, probes: Sequence[Probe]) -> Table:
    """Tabulate mixers by ability: by the data of each task's fullest probe that several have."""
    names: dict[tuple[str, ...], str] = {}
    runs: list[RunRecord] = []
    for task, same in group_by(probes, lambda probe: probe.task).items():
        fullest = max(same, key=lambda probe: sum(map(len, probe.rows.values())))
        cells = [cell for row in fullest.rows.values() for cell in row.values()]
        by_data = group_by([run for cell in cells for run in cell.tried], _data_of)
        variants, _ = _name_variants([group[0] for group in by_data.values()])
        written = [", ".join(filter(None, [task, v.removeprefix(DEFAULT)])) for v in variants]
        names |= dict(zip(by_data, written, strict=True))
        runs += [run for group in by_data.values() for run in group]
    rows = arrange(runs, data.names.of_mixer, lambda run: names[_data_of(run)], data.is_own)
    counts = {name: sum(name in cells for cells in rows.values()) for name in names.values()}
    columns = [Column(name) for name, count in counts.items() if count > 1]
    entries = {row: {name: c.entry() for name, c in cells.items()} for row, cells in rows.items()}
    beneath = _baselines_of(rows)
    return Table(
        "abilities",
        "Mixer by ability",
        "Test accuracy in percent on the data that several mixers were trained on; a task alone "
        "is that of the preset. Each number is of the attempt with the best validation accuracy, "
        "whatever options of the mixer and training budget it has: select the number to see them. "
        f"{OVER_N_SEEDS} {RANKS}",
        fill_columns(columns, entries, beneath),
        len(beneath),
    )


def probe_table(probe: Probe) -> Table:
    """Tabulate the accuracy on each variant of a probe, and how many runs succeed."""
    beneath = _baselines_of(probe.rows)
    rows = {
        row: {variant: _count_successes(cell) for variant, cell in variants.items()}
        for row, variants in probe.rows.items()
    }
    columns = fill_columns([*map(Column, probe.tasks)], rows, beneath)
    by = f", by {probe.differing}" if probe.differing else ""
    by += f' ("{DEFAULT}" is the task of the preset)' if DEFAULT in probe.tasks else ""
    return Table(
        f"accuracy-{probe.slug}",
        f"{probe.name}: accuracy",
        f"Test accuracy in percent{by}. A row has the settings of training with the best "
        f'validation accuracy of all that were tried. {OVER_N_SEEDS} "2 of 4": 2 of the 4 runs of '
        f"all these settings reach {SUCCESS:.0f} %. {RANKS}",
        columns,
        len(beneath),
    )


def _baselines_of(rows: Mapping[str, Cells]) -> dict[str, dict[str, float]]:
    """Return the trivial accuracies in percent by column, as one row; no row without any."""
    cells = [item for row in rows.values() for item in row.items()]
    known = {
        name: {
            v: run.result.trivial_scores[name]
            for v, c in cells
            for run in c.runs
            if name in run.result.trivial_scores
        }
        for name in _BASELINES
    }
    beneath = {f"trivial baseline: {name}": numbers for name, numbers in known.items() if numbers}
    return dict([*beneath.items()][:1])


def _count_successes(cell: Cell) -> Entry:
    entry = cell.entry()
    if entry.value is None:
        return entry
    count = sum((run.test_accuracy or 0.0) >= SUCCESS for run in cell.tried)
    successes = f"{count} of {len(cell.tried)}"
    remarks = [*entry.remarks, f"{successes} succeed"]
    return dataclasses.replace(entry, text=f"{entry.text}, {successes}", remarks=remarks)
