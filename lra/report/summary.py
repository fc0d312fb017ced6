"""The tables that report.py prints: the results of the user's own runs first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lra.config.request import DEFAULT_PROTOCOL
from lra.report.boards.board import Board, leading_board
from lra.report.boards.cells import Cell
from lra.report.boards.grids import choose_from_grids
from lra.report.boards.probes import Probe
from lra.report.data import ReportData
from lra.report.tables.accuracy import accuracy_columns
from lra.report.tables.leaderboard import best_trivial_baseline, rows_at_preset
from lra.report.tables.next_tokens import position_table
from lra.report.tables.probes import probe_table
from lra.report.tables.table import Table
from lra.report.tables.terminal import OWN_MARK, fit_table, wrap


def summarize(data: ReportData, *, is_chosen: bool = False) -> str:
    """Write the boards that have runs of the user's own.

    Args:
        data: what the report is made from.
        is_chosen: whether a preset or a protocol was asked for. All of its main boards are printed
            if none has runs of the user's own.
    """
    return "\n\n".join(_describe_boards(data, is_chosen=is_chosen)) + "\n"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _describe_boards(data: ReportData, *, is_chosen: bool) -> list[str]:
    every = [*data.boards, *data.position_boards]
    if not (every or data.probes):
        return [wrap(f"There are no runs in {data.results.folder} yet.")]
    parts = [_describe_probe(probe) for probe in data.probes if probe.own_rows]
    shown = [board for board in every if board.own_rows]
    if every and not (shown or parts):
        what = "these" if is_chosen else f"the runs in {data.results.folder}"
        parts.append(wrap(f"None of {what} is your own. All were shipped with the repository."))
        leading = data.leading_board or leading_board(data.position_boards) or every[0]
        shown = [board for board in every if board.is_main] if is_chosen else [leading]
    parts += [_describe_board(board) for board in shown]
    return [*parts, *_describe_others(shown, [board for board in every if board not in shown])]


def _describe_probe(probe: Probe) -> str:
    """Write the accuracies of a probe in plain text."""
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
    sentences = [f"{OWN_MARK} marks rows with runs of your own."] if fitted.marks_own else []
    sentences += fitted.legend
    left_out = [f"the columns {'; '.join(fitted.left_out)}"] if fitted.left_out else []
    if changed := len(board.rows) - len(rows):
        left_out.append(f"{_count(changed, 'shipped row')} with changed settings")
    if left_out:
        sentences.append(f"The report also has {' and '.join(left_out)}.")
    return "\n\n".join([wrap(table.title), fitted.text, *[wrap(" ".join(sentences))]]).rstrip()


def _tabulate(board: Board) -> tuple[Table, Sequence[str]]:
    """Make the table of a board that is printed, with the best rows first.

    Returns: the table, and the columns that it has to show whatever the terminal's width: those of
        the user's own runs or, without any, all of them.
    """
    measure = board.measures[0]
    title = f"{board.name}: {measure.name}"
    if board.of_positions:
        table = position_table(_sort_rows(board, board.tasks[0]), "summary")
        return replace(table, title=f"{title}, best first"), [measure.name]
    cells = [(task, cell) for row in board.rows.values() for task, cell in row.items()]
    measured = {task for task, _ in cells}
    own = {task for task, cell in cells if cell.has_own}
    tasks = [task for task in board.tasks if task in (own or measured)]
    board = _sort_rows(board, tasks[0])
    columns = accuracy_columns(board, best_trivial_baseline(board))
    required = tasks if own else [column.name for column in columns]
    return Table("summary", f"{title}, best on {tasks[0]} first", "", columns), required


def _sort_rows(board: Board, task: str) -> Board:
    """Sort the rows of a board by their results on one task, the best first."""
    measure = board.measures[0]

    def key(item: tuple[str, Mapping[str, Cell]]) -> tuple[bool, bool, float]:
        cell = item[1].get(task, Cell())
        value, mean = cell.value_of(measure), cell.mean_of(measure)
        sign = 1 if measure.lowest_is_best else -1
        return value is None, mean is None, sign * (mean or 0.0)

    return replace(board, rows=dict(sorted(board.rows.items(), key=key)))


def _describe_others(shown: Sequence[Board], others: Sequence[Board]) -> list[str]:
    """Name the boards that are not printed, and say how to see them; nothing if there are none."""
    if not others:
        return []
    main = [board for board in others if board.is_main]
    names = [", ".join(map(_short_name, main))] if main else []
    if apart := len(others) - len(main):
        names.append(_count(apart, "table") + " of runs on other data")
    line = f"The report also has results of {' and '.join(names)}."
    presets = [board.preset for board in main]
    if new := [preset for preset in presets if preset not in {board.preset for board in shown}]:
        line += f" To print those of a preset, add --preset {new[0]}."
    return [wrap(line)]


def _short_name(board: Board) -> str:
    protocol = [] if board.protocol == DEFAULT_PROTOCOL else [f"protocol {board.protocol}"]
    task = board.tasks if board.of_positions else []
    details = ", ".join([*task, *protocol])
    return f"{board.preset} ({details})" if details else board.preset
