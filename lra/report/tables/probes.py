"""The tables of probes: accuracy, scaled accuracy, and the length up to which answers hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lra.record.run import NO_PREDICTION
from lra.report.boards.cells import Cell
from lra.report.boards.measures import ACCURACY
from lra.report.boards.probes import DEFAULT, SUCCESS, Probe, Variant
from lra.report.boards.results import Results
from lra.report.tables.accuracy import OVER_N_SEEDS, RANKS
from lra.report.tables.result_columns import result_column, result_entry
from lra.report.tables.table import Column, Entry, Table, name_column, number_entry, text_column

CHANCE = "chance"
"""Name of the trivial baseline that answers at random."""
BASELINES = (CHANCE, "random value of the sequence")
"""Names of trivial baselines; a table shows the first one that is known."""
_LEAST_CHANCE = 10.0
"""Chance in percent from which accuracy is also tabulated scaled."""

_BEST = (
    "Of the learning rates and other settings of training that were tried, a row shows those with "
    "the best validation accuracy."
)


def probe_tables(results: Results, probe: Probe) -> list[Table]:
    """Tabulate the accuracy on each variant of a probe, and what else its papers print."""
    return [
        probe_table(probe),
        *_scaled_table(probe),
        *_length_table(results, probe),
    ]


def probe_table(probe: Probe) -> Table:
    """Tabulate the accuracy on each variant of a probe, and how many runs succeed."""
    known = [name for name in BASELINES if any(_baseline(v, name) for v in probe.variants)][:1]
    below = [f"trivial baseline: {name}" for name in known]
    columns = [name_column("mixer", [*probe.rows, *below], probe.own_rows)]
    for variant in probe.variants:
        entries = [_entry(probe, variant, row) for row in probe.rows]
        baselines = [_baseline(variant, name) for name in known]
        columns.append(result_column(_heading(variant), ACCURACY, entries, baselines))
    return Table(
        f"accuracy-{probe.slug}",
        f"{probe.name}: accuracy",
        f'Test accuracy in percent{_columns_of(probe)}. {_BEST} {OVER_N_SEEDS} "2 of '
        f'4" means that 2 of the 4 runs of all these settings reach {SUCCESS:.0f} %. {RANKS}',
        columns,
        [
            {
                "task": probe.task,
                "preset": probe.preset,
                "protocol": probe.protocol,
                "variant": variant.name,
                "mixer": row,
                "mean_percent": cell.mean,
                "deviation_percent": cell.deviation_of(ACCURACY),
                "seeds_done": len(cell.accuracies),
                "successes": variant.successes(row),
                "runs": " ".join(run.run_id for run in cell.runs),
            }
            for variant in probe.variants
            for row in probe.rows
            if (cell := probe.cell(row, variant)) is not None
        ],
    )


def _entry(probe: Probe, variant: Variant, row: str) -> Entry:
    entry = result_entry(probe.cell(row, variant), ACCURACY)
    if entry.value is None:
        return entry
    return replace(entry, text=f"{entry.text}, {variant.successes(row)}")


def _scaled_table(probe: Probe) -> list[Table]:
    """Tabulate the scaled accuracy of probes whose chance is high; elsewhere it says nothing."""
    if not any((_baseline(variant) or 0.0) >= _LEAST_CHANCE for variant in probe.variants):
        return []

    def entries(variant: Variant) -> list[str | None]:
        cells = [probe.cell(row, variant) for row in probe.rows]
        return [_write_scaled(cell, _baseline(variant)) for cell in cells]

    return [
        Table(
            f"scaled-accuracy-{probe.slug}",
            f"{probe.name}: scaled accuracy",
            f"(Accuracy - chance) / (100 % - chance), the mean over seeds{_columns_of(probe)}. "
            f"{_BEST}",
            _text_columns(probe, entries),
        )
    ]


def _length_table(results: Results, probe: Probe) -> list[Table]:
    """Tabulate the longest right answers, where every position has a label."""
    longest = {
        (row, variant.name): found
        for variant in probe.variants
        for row in probe.rows
        if (found := longest_right(results, probe.cell(row, variant))) is not None
    }
    if not longest:
        return []
    columns = [name_column("mixer", probe.rows, probe.own_rows)]
    for variant in probe.variants:
        entries = [
            number_entry(longest.get((row, variant.name)), digits=0, is_ranked=True)
            for row in probe.rows
        ]
        columns.append(Column(variant.name or "positions", entries, digits=0))
    return [
        Table(
            f"longest-length-{probe.slug}",
            f"{probe.name}: longest length",
            f"Positions up to which {SUCCESS:.0f} % of the test sequences have no wrong answer"
            f"{_columns_of(probe)}. {_BEST} Of several seeds, the mean. {RANKS}",
            columns,
        )
    ]


def longest_right(results: Results, cell: Cell | None) -> float | None:
    """Return the length up to which SUCCESS percent of the test sequences have no wrong answer.

    Returns: the mean over the runs of a cell; None where not every position has a label.
    """
    found: list[float] = []
    for run in cell.runs if cell is not None else ():
        made = results.predictions(run)
        if made is None or made.first_wrong is None or not made.are_all_positions_scored:
            continue
        wrong = np.where(
            made.first_wrong == NO_PREDICTION, made.metadata["length"], made.first_wrong
        )
        # That many sequences may be wrong earlier.
        found.append(float(np.sort(wrong)[int(len(wrong) * (100.0 - SUCCESS) / 100.0)]))
    return float(np.mean(found)) if found else None


def _text_columns(probe: Probe, entries: Callable[[Variant], list[str | None]]) -> list[Column]:
    columns = [text_column(_heading(variant), entries(variant)) for variant in probe.variants]
    return [name_column("mixer", probe.rows, probe.own_rows), *columns]


def _write_scaled(cell: Cell | None, chance: float | None) -> str | None:
    if cell is None or cell.mean is None or chance is None:
        return None
    return f"{round((cell.mean - chance) / (100.0 - chance), 3) + 0.0:.3f}"  # never -0.000


def _baseline(variant: Variant, name: str = CHANCE) -> float | None:
    found = [run.baselines[name] for run in variant.board.records if name in run.baselines]
    return found[0] if found else None


def _heading(variant: Variant) -> str:
    return variant.name or "accuracy"


def _columns_of(probe: Probe) -> str:
    if not probe.differing:
        return ""
    has_default = any(variant.name == DEFAULT for variant in probe.variants)
    explained = f' ("{DEFAULT}" is the task of the preset)' if has_default else ""
    return f", by {probe.differing}{explained}"
