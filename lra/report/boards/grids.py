"""Grids of settings that a user has tried: tables show one row of each, chosen by validation."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from lra.record.changes import select_sections
from lra.record.run import RunRecord
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell

Cells = Mapping[str, Cell[RunRecord]]
"""The cells of a row, by task."""


def choose_from_grids(board: Board) -> Board:
    """Join the user's own rows of each grid into one.

    Rows of a mixer are a grid if they differ in settings of training, or in the values of the same
    other settings. On each task the joined row has the cell with the best validation result.
    """
    grids: dict[Hashable, list[str]] = {}
    for name in board.own_rows:
        grids.setdefault(_grid_of(board.rows[name]), []).append(name)
    rows = dict(board.rows)
    for names in grids.values():
        if len(names) > 1:
            rows[_name_grid(names)] = _best_cells([rows.pop(name) for name in names])
    return replace(board, rows=dict(sorted(rows.items())))


def _grid_of(cells: Cells) -> Hashable:
    run = next(iter(cells.values())).runs[0]
    changed = frozenset(select_sections(run.changes, "mixer", "model", "pretrain"))
    return run.mixer, run.mixer_code, run.label, changed


def _best_cells(rows: Sequence[Cells]) -> Cells:
    tasks = sorted({task for cells in rows for task in cells})
    return {
        task: max((cells[task] for cells in rows if task in cells), key=lambda cell: cell.merit)
        for task in tasks
    }


def _name_grid(names: Sequence[str]) -> str:
    """Name a grid: "tnn (best of 3 by validation)", with the details that all names have."""
    start, *_ = names[0].partition(" (")
    details = [name.partition(" (")[2].removesuffix(")").split(", ") for name in names]
    common = [text for text in details[0] if text and all(text in texts for texts in details)]
    return f"{start} ({', '.join([*common, f'best of {len(names)} by validation'])})"
