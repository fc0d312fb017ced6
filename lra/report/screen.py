"""The tables that report.py prints in the terminal."""

from dataclasses import replace

from lra.report.boards import Board, choose_from_grids, rows_at_preset
from lra.report.data import Data
from lra.report.tables.probes import probe_table, probes
from lra.report.tables.results import accuracy_columns, measures_table
from lra.report.tables.table import Table
from lra.report.tables.terminal import wrap, write_table
from lra.runtime.tables import count_nouns


def summarize(data: Data, *, is_chosen: bool = False) -> str:
    """Write the boards that have runs of the user's own.

    Without any it is the leading one or, where a preset or a protocol was chosen, all main ones.
    """
    probe_boards = probes(data)
    if not (data.boards or probe_boards):
        return wrap(f"There are no runs in {data.folder} yet.") + "\n"
    parts = [write_table(probe_table(probe)) for probe in probe_boards if probe.own_rows]
    shown = [board for board in data.boards if board.own_rows]
    if data.boards and not (shown or parts):
        what = "these" if is_chosen else f"the runs in {data.folder}"
        parts.append(wrap(f"None of {what} is your own. All were shipped with the repository."))
        main = [board for board in data.boards if board.is_main]
        shown = main if is_chosen else [data.leading_board or data.boards[0]]
    parts += map(_describe_board, shown)
    if left := len(data.boards) - len(shown):
        more = f"The report also has {count_nouns(left, 'more table')}."
        parts.append(wrap(f"{more} To print those of a preset, add --preset NAME."))
    return "\n\n".join(parts) + "\n"


def _describe_board(board: Board) -> str:
    """Write a board in plain text: its own rows, and the mixers at the settings of its preset.

    The best rows come first. Columns are the tasks of the user's own runs or, without any, all.
    """
    board = choose_from_grids(board)
    chosen = {*rows_at_preset(board), *board.own_rows}
    rows = {name: cells for name, cells in board.rows.items() if name in chosen} or board.rows
    more: list[str] = []
    if changed := len(board.rows) - len(rows):
        count = count_nouns(changed, "shipped row")
        more.append(f"The report also has {count} with changed settings.")
    board, title = replace(board, rows=rows), f"{board.name}: {board.measures[0].name}"
    if not board.is_of_accuracy:
        table = measures_table(board.sorted_by(board.tasks[0]))
        return write_table(replace(table, title=f"{title}, best first"), *more)
    every = rows.values()
    own = [task for task in board.tasks if any(task in c and c[task].has_own for c in every)]
    first = (own or [task for task in board.tasks if any(task in c for c in every)])[0]
    beneath = board.best_trivial_baseline()
    names, *columns = accuracy_columns(board.sorted_by(first), beneath)
    columns = [names, *(column for column in columns if not own or column.name in own)]
    # An own task has no results of the shipped mixers.
    shown = [i for i in range(len(names.entries)) if any(c.entries[i].text for c in columns[1:])]
    below = len(names.entries) - len(rows)
    table = Table("", f"{title}, best on {first} first", "", columns, below)
    return write_table(table.with_rows(shown), *more)
