"""The leaderboard: one board at a glance."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.row_names import changes_of
from lra.report.tables.accuracy import accuracy_table, caption_of
from lra.report.tables.table import Table
from lra.runtime.console import MISSING


def leaderboard(board: Board, *, with_changes: bool = False) -> Table:
    """Tabulate the mixers of a board at the settings of its preset, and the best trivial baseline.

    Columns without any number are left out and named in the caption.

    Args:
        board: the results.
        with_changes: whether mixers at other settings than the preset's, and rows that a label
            sets apart from one of the mixer without, are there, too.
    """
    rows = board.rows if with_changes else _of_the_preset(board)
    own = dataclasses.replace(board, rows=rows)
    table = accuracy_table(own, "leaderboard")
    is_empty = {
        name: all(row[j] == MISSING for row in table.rows) for j, name in enumerate(table.columns)
    }
    table = table.with_columns([name for name in table.columns if not is_empty[name]])
    caption = caption_of(own)
    counts = {len(cell.accuracies) for cells in rows.values() for cell in cells.values()}
    texts = table.rows
    if counts <= {0, 1}:
        caption = caption_of(own, "of one seed each")
        texts = [[text.replace(" (n=1)", "") for text in row] for row in table.rows]
    missing = [task for task in own.tasks if is_empty[task]]
    if missing:
        caption += f" No results for: {', '.join(missing)}."
    trivial = texts[len(rows) :]
    best = [_best(column) for column in list(zip(*trivial, strict=True))[1:]]
    texts = [*texts[: len(rows)], *([["best trivial baseline", *best]] if trivial else [])]
    title = f"Leaderboard: preset {board.preset}, protocol {board.protocol}"
    return dataclasses.replace(table, title=title, caption=caption, rows=texts)


def _of_the_preset(board: Board) -> dict[str, Mapping[str, Cell]]:
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


def _best(column: Sequence[str]) -> str:
    """Choose the highest number of a column of text."""
    return max((text for text in column if text != MISSING), key=float, default=MISSING)
