"""The rows and columns that a paper shows, and why others are left out."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from lra.record.run import RunRecord
from lra.report.boards.averages import AVERAGES, averages
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.row_names import changes_of, complete, matching_names, mixer_of
from lra.report.figures.bubble_panels import Panel
from lra.report.figures.drawing import ReportFigure

MIXERS, VARIANTS, BASELINES, PUBLISHED = "mixers", "variants", "baselines", "published"
ROW_WORDS = (MIXERS, VARIANTS, BASELINES, PUBLISHED)
"""Words of `--rows` for all rows of a kind."""
TASKS, AVERAGE = "tasks", "average"
"""Words of `--columns` for all tasks with a result, and for the average that most rows have."""

Cells = Mapping[str, Cell[RunRecord]]
"""The results of a row by task."""


def read_rows(text: str, boards: Sequence[Board]) -> list[str]:
    """Read `--rows`: names of rows, beginnings of names, and ROW_WORDS.

    Raises: UserError for a name that no board has.
    """
    known = dict.fromkeys(name for board in boards for name in board.rows)
    names = [*known, *ROW_WORDS]
    return [
        # The row that begins so may differ from board to board.
        word if matching_names(word, known) else complete(word, names, "row", "--rows")
        for word in _split_words(text)
    ]


def read_columns(text: str, boards: Sequence[Board]) -> list[str]:
    """Read `--columns`: tasks and averages, beginnings of their names, TASKS and AVERAGE.

    Raises: UserError for a name that no board has, or that several begin with.
    """
    tasks = dict.fromkeys(task for board in boards for task in board.tasks)
    known = [*tasks, *AVERAGES, TASKS, AVERAGE]
    return [complete(word, known, "column", "--columns") for word in _split_words(text)]


def _split_words(text: str) -> list[str]:
    outside_brackets = r",(?![^(\[]*[)\]])"
    return list(dict.fromkeys(word.strip() for word in re.split(outside_brackets, text)))


def choose_rows(board: Board, words: Sequence[str], columns: Sequence[str] = ()) -> Board:
    """Keep the rows of a board that the words of `--rows` stand for, in their order.

    The mixers of one word are sorted by their mean over the tasks among the columns, or over all.

    Raises: UserError for a word that several rows begin with.
    """
    tasks = [task for task in columns if task in board.tasks] or board.tasks

    def order(name: str) -> tuple[object, ...]:
        cells = board.rows[name]
        found = [mean for task in tasks if task in cells and (mean := cells[task].mean) is not None]
        return -len(found), -sum(found), name

    with_task = [name for name, cells in board.rows.items() if not cells.keys().isdisjoint(tasks)]
    names: list[str] = []
    for word in words:
        if word == MIXERS:
            usual = [name for name, cells in board.rows.items() if is_at_preset(cells)]
            names += sorted(usual, key=order)
        elif word == VARIANTS:
            names += [name for name, cells in board.rows.items() if not is_at_preset(cells)]
        elif word not in ROW_WORDS and matching_names(word, board.rows):
            # A row without any of the columns is not in the way of one that begins so.
            rows = with_task if matching_names(word, with_task) else [*board.rows]
            names.append(complete(word, rows, "row", "--rows"))
    return dataclasses.replace(board, rows={name: board.rows[name] for name in names})


def is_at_preset(cells: Cells) -> bool:
    """Whether the runs of a row have the settings of their preset."""
    return not any(changes_of(run) for cell in cells.values() for run in cell.runs)


def choose_columns(board: Board, words: Sequence[str]) -> tuple[Board, list[str]]:
    """Return the columns, and the board without the rows that have nothing in any of them."""
    rows = board.rows.values()
    with_result = [
        task for task in board.tasks if any(task in c and c[task].mean is not None for c in rows)
    ]
    counts = {name: sum(averages(c)[name] is not None for c in rows) for name in AVERAGES}
    usual = max(AVERAGES, key=lambda name: (counts[name], len(AVERAGES[name])))
    by_word = {TASKS: with_result, AVERAGE: [usual] if counts[usual] else []}
    names = list(dict.fromkeys(name for word in words for name in by_word.get(word, [word])))
    kept = {
        row: cells
        for row, cells in board.rows.items()
        if any(name in cells or averages(cells).get(name) is not None for name in names)
    }
    return dataclasses.replace(board, rows=kept), names


def describe_left_out(
    board: Board,
    shown: Board,
    figures: Sequence[ReportFigure],
    words: Sequence[str],
    *,
    boards: Sequence[Board],
    relative_to: str,
) -> list[str]:
    """Write a line for each reason why the table or the bubble plots of a board lack rows.

    Args:
        board: all rows.
        shown: those in the table.
        figures: the figures of the board.
        words: what `--rows` asks for.
        boards: all boards, main ones and others.
        relative_to: the mixer that bubble plots are relative to.
    """
    reasons: dict[str, list[str]] = {}
    asked = [word for word in words if word not in ROW_WORDS]
    mixers = {mixer_of(name) for name in shown.rows}
    if MIXERS in words:
        asked += [
            name
            for other in boards
            for name, cells in other.rows.items()
            if is_at_preset(cells) and mixer_of(name) not in mixers
        ]
    for name in dict.fromkeys(asked):
        if not matching_names(name, shown.rows):
            reasons.setdefault(_reason_without_row(boards, board, name), []).append(name)
    for name in _rows_without_bubble(shown, figures):
        reason = _reason_without_bubble(shown, name, relative_to)
        reasons.setdefault(f"not in the bubble plots, because {reason}", []).append(name)
    changed = sum(not is_at_preset(board.rows[name]) for name in board.rows.keys() - shown.rows)
    start = f"Preset {board.preset}, protocol {board.protocol}"
    lines = [f"{start}, {reason}: {'; '.join(names)}" for reason, names in reasons.items()]
    if changed and MIXERS in words and VARIANTS not in words:
        lines.append(f"{start}: {changed} with changed settings (--rows {MIXERS},{VARIANTS})")
    return lines


def _reason_without_row(boards: Sequence[Board], board: Board, name: str) -> str:
    if matching_names(name, board.rows):
        return "no results in these columns"
    for other in boards:
        is_same = (other.preset, other.protocol) == (board.preset, board.protocol)
        if is_same and matching_names(name, other.rows):
            return f"results on other data only ({other.reason})"
    return "no results at this preset and protocol"


def panels_of(figure: ReportFigure) -> list[Panel]:
    """Return the panels of a bubble plot; none for another figure."""
    first = figure.draw.args[0] if figure.draw.args else ()
    return [one for one in first if isinstance(one, Panel)] if isinstance(first, list) else []


def _rows_without_bubble(shown: Board, figures: Sequence[ReportFigure]) -> list[str]:
    panels = [panel for figure in figures for panel in panels_of(figure)]
    drawn = {bubble.method for panel in panels for bubble in panel.bubbles}
    return [row for row in shown.rows if row not in drawn] if drawn else []


def _reason_without_bubble(board: Board, row: str, relative_to: str) -> str:
    """Say why a row has no bubble: it needs a result, a speed, and another row on its device."""
    if all(cell.value is None for cell in board.rows[row].values()):
        return "no result is better than chance"
    measured = _measured(board.rows[row])
    if not measured:
        return "no training speed is known where the result is better than chance"
    devices = " and ".join(sorted({device for _, device in measured}))
    if relative_to == row or relative_to not in board.rows:
        others = [_measured(cells) for name, cells in board.rows.items() if name != row]
        if not any(measured & other for other in others):
            return f"no other row was measured on the same task and device ({devices})"
    elif not measured & _measured(board.rows[relative_to]):
        return f"they ran on {devices}, and {relative_to} has no result to compare with there"
    return "figures draw the best rows only, as their captions say"


def _measured(cells: Cells) -> set[tuple[str, str]]:
    """List the tasks and devices on which a row has a result better than chance and a speed."""
    return {
        (task, run.device)
        for task, cell in cells.items()
        if cell.value is not None
        for run in cell.runs
        if run.steps_per_second is not None
    }
