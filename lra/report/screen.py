"""The tables that report.py prints in the terminal."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lra.report.boards import Board, choose_from_grids, rows_at_preset
from lra.report.data import Data
from lra.report.tables.probes import probe_table, probes
from lra.report.tables.results import accuracy_columns, position_table
from lra.report.tables.table import Table
from lra.report.tables.terminal import wrap, write_table


def summarize(data: Data, *, is_chosen: bool = False) -> str:
    """Write the boards that have runs of the user's own.

    Without any it is the leading one or, where a preset or a protocol was chosen, all main ones.
    """
    found = probes(data)
    if not (data.boards or found):
        return wrap(f"There are no runs in {data.folder} yet.") + "\n"
    parts = [_write(probe_table(probe)) for probe in found if probe.own_rows]
    shown = [board for board in data.boards if board.own_rows]
    if data.boards and not (shown or parts):
        what = "these" if is_chosen else f"the runs in {data.folder}"
        parts.append(wrap(f"None of {what} is your own. All were shipped with the repository."))
        leading = data.leading_board or data.boards[0]
        main = [board for board in data.boards if board.is_main]
        shown = main if is_chosen else [leading]
    parts += map(_describe_board, shown)
    if left := len(data.boards) - len(shown):
        count = _count(left, "more table")
        parts.append(
            wrap(f"The report also has {count}. To print those of a preset, add --preset NAME.")
        )
    return "\n\n".join(parts) + "\n"


def _write(table: Table, *sentences: str, columns: Collection[str] = ()) -> str:
    """Write a table with its title and legend; of its columns all, or the first one and some."""
    first, *others = table.columns
    chosen = [column for column in others if not columns or column.name in columns]
    return write_table(replace(table, columns=[first, *chosen]), *sentences)


def _describe_board(board: Board) -> str:
    """Write a board in plain text: its own rows, and the mixers at the settings of its preset.

    The best rows come first. Columns are the tasks of the user's own runs or, without any, all.
    """
    board = choose_from_grids(board)
    chosen = {*rows_at_preset(board), *board.own_rows}
    rows = {name: cells for name, cells in board.rows.items() if name in chosen} or board.rows
    changed = len(board.rows) - len(rows)
    count = _count(changed, "shipped row")
    more = [f"The report also has {count} with changed settings."] if changed else []
    board, title = replace(board, rows=rows), f"{board.name}: {board.measures[0].name}"
    if board.of_positions:
        table = position_table(board.sorted_by(board.tasks[0]))
        return _write(replace(table, title=f"{title}, best first"), *more)
    cells = [(task, cell) for row in rows.values() for task, cell in row.items()]
    own = [task for task in board.tasks if any(t == task and cell.has_own for t, cell in cells)]
    first = (own or [task for task in board.tasks if any(t == task for t, _ in cells)])[0]
    beneath = board.best_trivial_baseline()
    columns = accuracy_columns(board.sorted_by(first), beneath)
    table = Table("", f"{title}, best on {first} first", "", columns, len(beneath))
    return _write(table, *more, columns=own)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
