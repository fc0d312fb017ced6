"""The leaderboard: one board at a glance."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.row_names import changes_of
from lra.report.tables.accuracy import OVER_N_SEEDS, accuracy_columns, caption_of
from lra.report.tables.notes import describe_seeds
from lra.report.tables.table import Table


def leaderboard(board: Board) -> Table:
    """Tabulate the mixers of a board at the settings of its preset, and the best trivial baseline.

    Columns without any number are left out and named in the caption.
    """
    rows = rows_at_preset(board)
    own = dataclasses.replace(board, rows=rows)
    counts = {len(cell.accuracies) for cells in rows.values() for cell in cells.values()}
    is_of_one_seed = counts <= {0, 1}
    columns = accuracy_columns(own, best_trivial_baseline(own), shows_seeds=not is_of_one_seed)
    caption = caption_of(own, describe_seeds(1, [1]) if is_of_one_seed else OVER_N_SEEDS)
    missing = [c.name for c in columns if c.is_empty and c.name in own.tasks]
    if missing:
        caption += f" There are no results for {', '.join(missing)}."
    return Table(
        slug="leaderboard",
        title=f"Leaderboard: preset {board.preset}, protocol {board.protocol}",
        caption=caption,
        columns=columns,
    ).without_empty_columns()


def best_trivial_baseline(board: Board) -> dict[str, dict[str, float]]:
    """Return the accuracy of the best trivial baseline of each task, as a row; none without any."""
    best: dict[str, float] = {}
    for by_task in board.trivial_baselines().values():
        best |= {task: max(value, best.get(task, value)) for task, value in by_task.items()}
    return {"best trivial baseline": best} if best else {}


def rows_at_preset(board: Board) -> dict[str, Mapping[str, Cell]]:
    """Choose the rows of the preset's settings; of a mixer those without a label, if it has any."""
    runs = {
        method: [run for cell in cells.values() for run in cell.runs]
        for method, cells in board.rows.items()
    }
    plain = {method: found for method, found in runs.items() if not any(map(changes_of, found))}
    unlabelled = {run.mixer for found in plain.values() for run in found if run.label is None}
    return {
        method: board.rows[method]
        for method, found in plain.items()
        if all(run.label is None or run.mixer not in unlabelled for run in found)
    }
