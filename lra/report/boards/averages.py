"""The averages over tasks that tables of accuracies show."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from lra.report.boards.cells import Cell
from lra.report.boards.measures import ACCURACY
from tasks.base import BENCHMARK

FIVE = BENCHMARK[:-1]
"""The tasks of the average without Path-X."""
AVERAGES = {"mean of 5": FIVE, "mean of 6": BENCHMARK}
"""Tasks of each average: without Path-X, and with it."""


def mean_over(tasks: Sequence[str], values: Mapping[str, float | None]) -> float | None:
    """Average a row over tasks; None if any is missing."""
    found = [value for task in tasks if (value := values.get(task)) is not None]
    return statistics.mean(found) if len(found) == len(tasks) else None


def averages(cells: Mapping[str, Cell]) -> dict[str, float | None]:
    """Compute each average of a row, in which results at chance count; None if a task has none."""
    values = {task: cell.number_of(ACCURACY) for task, cell in cells.items()}
    return {name: mean_over(tasks, values) for name, tasks in AVERAGES.items()}
