"""How far a mixer has to see: short convolutions beside full mixers, and permuted pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from lra.record.run import RunRecord
from lra.report.boards.cells import Cell
from lra.report.boards.results import Results
from tasks.base import BENCHMARK

CONVOLUTION = "conv"
"""The mixer whose width bounds what a model can see."""


@dataclass
class TaskLocality:
    """Test accuracies in percent on one task, with pixels in their own and in another order."""

    task: str
    convolutions: dict[int, float] = field(default_factory=dict)
    """By the width of the filters, in positions."""
    mixers: dict[str, float] = field(default_factory=dict)
    permuted_convolutions: dict[int, float] = field(default_factory=dict)
    permuted_mixers: dict[str, float] = field(default_factory=dict)
    best: tuple[str, float] | None = None
    """The best row of the leaderboard, and its accuracy."""


def read_locality(
    results: Results, shipped: Results, rows: Mapping[str, Mapping[str, Cell[RunRecord]]]
) -> list[TaskLocality]:
    """Sort the runs of the finding by task, with the numbers of the leaderboard beside them.

    Args:
        results: convolutions of other widths, and runs with task.permutation.
        shipped: the results that have the leaderboard's runs.
        rows: the rows of the leaderboard.
    """
    compared = {CONVOLUTION, *(run.mixer for run in results.records)}
    found = {task: TaskLocality(task) for task in BENCHMARK}
    for task, one in found.items():
        cells = {name: row[task] for name, row in rows.items() if task in row}
        for cell in cells.values():
            if cell.mean is not None and cell.runs[0].mixer in compared:
                _add(one, cell.runs[0], cell.mean, shipped)
        values = [(name, cell.value) for name, cell in cells.items() if cell.value is not None]
        one.best = max(values, key=itemgetter(1), default=None)
    for run in results.records:
        if run.task in found and run.test_accuracy is not None:
            _add(found[run.task], run, run.test_accuracy, results)
    return [one for one in found.values() if one.convolutions]


def _add(found: TaskLocality, run: RunRecord, accuracy: float, results: Results) -> None:
    is_permuted = "task.permutation" in run.changes
    if run.mixer == CONVOLUTION:
        width = run.settings.get("mixer.width")
        if isinstance(width, int):
            by_width = found.permuted_convolutions if is_permuted else found.convolutions
            by_width[width] = accuracy
    else:
        by_mixer = found.permuted_mixers if is_permuted else found.mixers
        by_mixer[run.mixer] = accuracy
