"""Which rows the tables and figures of a paper leave out, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lra.record.run import RunRecord
from lra.report.boards.averages import AVERAGES
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.measures import ACCURACY
from lra.report.boards.row_names import matching_names
from lra.report.figures.bubble_panels import Panel
from lra.report.figures.drawing import ReportFigure
from lra.report.paper.choice import MIXERS, ROW_KINDS, VARIANTS, Choice, is_at_preset


def rows_left_out(
    boards: Sequence[Board],
    board: Board,
    shown: Board,
    *,
    columns: Sequence[str],
    figures: Sequence[ReportFigure],
    choice: Choice,
) -> list[str]:
    """List the rows that the table or the bubble plots of a board leave out, by reason.

    Args:
        boards: all boards of accuracies.
        board: the board with all of its rows.
        shown: the board with the rows of the table.
        columns: the columns of the table.
        figures: the figures of the board.
        choice: what was asked for.
    Returns: a line for each reason; rows that nobody asked for are not listed.
    """
    reasons = [
        *_not_chosen(boards, board, shown, choice),
        *_without_average(shown, columns),
        (
            "not in the bubble plots, as no task has both a result better than chance and a speed",
            _without_bubble(shown, figures),
        ),
    ]
    setting = f"Preset {board.preset}, protocol {board.protocol}"
    return [
        f"{setting}, {reason}: {'; '.join(dict.fromkeys(names))}"
        for reason, names in reasons
        if names
    ]


def _not_chosen(
    boards: Sequence[Board], board: Board, shown: Board, choice: Choice
) -> Iterator[tuple[str, list[str]]]:
    """List the rows that the table lacks: named ones, and mixers if the table is to have them."""
    missing = [
        word
        for word in choice.rows
        if word not in ROW_KINDS and not matching_names(word, shown.rows)
    ]
    if MIXERS in choice.rows:
        here = _mixers(board.rows.values())
        on_other_data: dict[str, list[str]] = {}
        for other in boards:
            for name, cells in other.rows.items():
                if name in board.rows or not is_at_preset(cells) or _mixers([cells]) & here:
                    continue
                is_same = (other.preset, other.protocol) == (board.preset, board.protocol)
                found = on_other_data.setdefault(other.reason, []) if is_same else missing
                found.append(name)
        for reason, names in on_other_data.items():
            yield f"results on other data only ({reason})", names
            missing = [name for name in missing if name not in names]
        if VARIANTS not in choice.rows:
            yield (
                f"changed settings (shown by --rows {MIXERS},{VARIANTS})",
                [name for name in board.rows if name not in shown.rows],
            )
    yield "no results at this preset", missing


def _mixers(rows: Iterable[Mapping[str, Cell[RunRecord]]]) -> set[str]:
    return {run.mixer for cells in rows for cell in cells.values() for run in cell.runs}


def _without_average(shown: Board, columns: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """List the rows of a table that have no average, by the tasks that it lacks."""
    for name in (name for name in columns if name in AVERAGES):
        reasons: dict[str, list[str]] = {}
        for row, cells in shown.rows.items():
            numbers = {task: cell.number_of(ACCURACY) for task, cell in cells.items()}
            missing = [task for task in AVERAGES[name] if numbers.get(task) is None]
            if missing:
                reasons.setdefault(", ".join(missing), []).append(row)
        for tasks, rows in reasons.items():
            yield f"no {name}, as there is no result, or a failed seed, on {tasks}", rows


def panels_of(figure: ReportFigure) -> list[Panel]:
    """Return the panels of a bubble plot; none for another figure."""
    first = figure.draw.args[0] if figure.draw.args else ()
    return [one for one in first if isinstance(one, Panel)] if isinstance(first, list) else []


def _without_bubble(shown: Board, figures: Sequence[ReportFigure]) -> list[str]:
    """List the rows of a table that no bubble plot draws, if there are bubble plots."""
    panels = [panel for figure in figures for panel in panels_of(figure)]
    drawn = {bubble.method for panel in panels for bubble in panel.bubbles}
    return [row for row in shown.rows if row not in drawn] if drawn else []
