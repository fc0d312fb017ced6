"""The tables that report.py prints in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lra.config.request import DEFAULT_PROTOCOL
from lra.report.boards import Board, choose_from_grids, leading_board, rows_at_preset
from lra.report.data import Data
from lra.report.tables.probes import Probe, probe_table, probes
from lra.report.tables.results import accuracy_columns, position_table
from lra.report.tables.table import Table
from lra.report.tables.terminal import OWN_MARK, TerminalTable, fit_table, wrap


def summarize(data: Data, *, is_chosen: bool = False) -> str:
    """Write the boards that have runs of the user's own.

    Args:
        data: the records.
        is_chosen: whether a preset or a protocol was asked for. All of its main boards are printed
            if none has runs of the user's own.
    """
    found = probes(data)
    if not (data.boards or found):
        return wrap(f"There are no runs in {data.folder} yet.") + "\n"
    parts = [_describe_probe(probe) for probe in found if probe.own_rows]
    shown = [board for board in data.boards if board.own_rows]
    if data.boards and not (shown or parts):
        what = "these" if is_chosen else f"the runs in {data.folder}"
        parts.append(wrap(f"None of {what} is your own. All were shipped with the repository."))
        leading = data.leading_board or leading_board(data.boards) or data.boards[0]
        main = [board for board in data.boards if board.is_main]
        shown = main if is_chosen else [leading]
    parts += map(_describe_board, shown)
    parts += _describe_others(shown, [board for board in data.boards if board not in shown])
    return "\n\n".join(parts) + "\n"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _describe_probe(probe: Probe) -> str:
    table = probe_table(probe)
    fitted = fit_table(table, [table.headings[1]])
    return "\n\n".join([wrap(table.title), fitted.text, wrap(" ".join(fitted.legend))]).rstrip()


def _describe_board(board: Board) -> str:
    """Write a board in plain text: its own rows, and the mixers at the settings of its preset."""
    board = choose_from_grids(board)
    chosen = {*rows_at_preset(board), *board.own_rows}
    rows = {name: cells for name, cells in board.rows.items() if name in chosen} or board.rows
    table, required = _tabulate(replace(board, rows=rows))
    fitted = fit_table(table, required)
    sentences = _describe(fitted)
    if changed := len(board.rows) - len(rows):
        count = _count(changed, "shipped row")
        sentences.append(f"The report also has {count} with changed settings.")
    return "\n\n".join([wrap(table.title), fitted.text, wrap(" ".join(sentences))]).rstrip()


def _describe(fitted: TerminalTable) -> list[str]:
    """Explain the marks of a printed table, and name the columns that it lacks."""
    sentences = [f"{OWN_MARK} marks rows with runs of your own."] if fitted.marks_own else []
    sentences += fitted.legend
    if fitted.left_out:
        columns = ", ".join(fitted.left_out)
        sentences.append(f"A wider terminal also shows the columns: {columns}.")
    return sentences


def _tabulate(board: Board) -> tuple[Table, Sequence[str]]:
    """Make the table of a board that is printed, with the best rows first.

    Returns: the table, and the columns that it has to show whatever the terminal's width: those of
        the user's own runs or, without any, all of them.
    """
    measure = board.measures[0]
    title = f"{board.name}: {measure.name}"
    if board.of_positions:
        table = position_table(board.sorted_by(board.tasks[0]))
        return replace(table, title=f"{title}, best first"), [measure.name]
    cells = [(task, cell) for row in board.rows.values() for task, cell in row.items()]
    measured = {task for task, _ in cells}
    own = {task for task, cell in cells if cell.has_own}
    tasks = [task for task in board.tasks if task in (own or measured)]
    beneath = board.best_trivial_baseline()
    columns = accuracy_columns(board.sorted_by(tasks[0]), beneath)
    required = tasks if own else [column.name for column in columns]
    return Table("", f"{title}, best on {tasks[0]} first", "", columns, len(beneath)), required


def _describe_others(shown: Sequence[Board], others: Sequence[Board]) -> list[str]:
    """Name the boards that are not printed, and say how to see them; nothing if there are none."""
    if not others:
        return []
    main = [board for board in others if board.is_main]
    names = [", ".join(map(_short_name, main))] if main else []
    if count := len(others) - len(main):
        names.append(_count(count, "table") + " of runs on other data")
    line = f"The report also has results of {' and '.join(names)}."
    presets = {board.preset for board in shown}
    if new := [board.preset for board in main if board.preset not in presets]:
        line += f" To print those of a preset, add --preset {new[0]}."
    return [wrap(line)]


def _short_name(board: Board) -> str:
    protocol = [] if board.protocol == DEFAULT_PROTOCOL else [f"protocol {board.protocol}"]
    details = ", ".join([*(board.tasks if board.of_positions else []), *protocol])
    return f"{board.preset} ({details})" if details else board.preset
