"""What a paper's tables show: rows and columns chosen by name, by beginning of name or by kind."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lra.record.run import RunRecord
from lra.report.boards.averages import AVERAGES, averages
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.row_names import changes_of, complete, matching_names
from lra.report.published.rows import PublishedRow, choose_published, rows_of

MIXERS, VARIANTS, BASELINES, PUBLISHED = "mixers", "variants", "baselines", "published"
ROW_KINDS = {
    MIXERS: "every mixer at the settings of its preset",
    VARIANTS: "rows with changed settings, of the mixers named or, if none is, of all",
    BASELINES: "trivial baselines",
    PUBLISHED: "published results of the mixers shown, or those named by --published",
}
"""Words for kinds of rows, and what they stand for."""
TASKS, AVERAGE = "tasks", "average"
COLUMN_KINDS = {
    TASKS: "every task with a result",
    AVERAGE: "the average over five or six tasks that most rows have, if any",
}
"""Words for kinds of columns, and what they stand for."""


@dataclass(frozen=True)
class Choice:
    """The rows and columns that `--rows`, `--columns` and `--published` ask for."""

    rows: Sequence[str]
    """Rows' names and keys of ROW_KINDS."""
    columns: Sequence[str]
    """Tasks, keys of AVERAGES and keys of COLUMN_KINDS."""
    published: str | None
    """The value of --published."""

    def board(self, board: Board) -> Board:
        """Keep the rows chosen, in the order asked for."""
        known = {name: cells for name, cells in board.rows.items() if self._concerns(cells)}
        chosen = (name for word in self.rows for name in _rows_meant(known, word, self.rows))
        rows = {name: board.rows[name] for name in chosen}
        return dataclasses.replace(board, rows=rows)

    def _concerns(self, cells: Mapping[str, Cell[RunRecord]]) -> bool:
        """Whether a row has runs of the tasks that are named, if only tasks are."""
        is_open = any(word in COLUMN_KINDS or word in AVERAGES for word in self.columns)
        return is_open or any(task in cells for task in self.columns)

    def shown_columns(self, board: Board) -> list[str]:
        """Return the columns of a board that has the rows chosen already."""
        with_result = [task for task in board.tasks if _has_result(board, task)]
        by_kind = {TASKS: with_result, AVERAGE: usual_average(board)}
        columns = [name for word in self.columns for name in by_kind.get(word, [word])]
        return list(dict.fromkeys(columns))

    def published_rows(self, boards: Sequence[Board]) -> list[PublishedRow]:
        """Return the published rows asked for, all boards having the rows chosen already.

        Raises: UserError for a method that is not there.
        """
        if self.published is not None:
            return choose_published(self.published)
        if PUBLISHED not in self.rows:
            return []
        mixers = {run.mixer for board in boards for run in board.records}
        return rows_of(mixers)


def choose(boards: Sequence[Board], rows: str, columns: str, published: str | None) -> Choice:
    """Read `--rows` and `--columns`.

    Args:
        boards: boards whose rows and tasks may be named.
        rows: names separated by commas, those in brackets apart.
        columns: names separated by commas.
        published: the value of --published.
    Raises: UserError for a name that no board has, or that begins several names.
    """
    methods = dict.fromkeys(name for board in boards for name in board.rows)
    tasks = dict.fromkeys(task for board in boards for task in board.tasks)
    places = [*tasks, *AVERAGES, *COLUMN_KINDS]
    return Choice(
        rows=[
            # Which row it is that begins so may differ from board to board.
            word
            if matching_names(word, methods)
            else complete(word, [*methods, *ROW_KINDS], "row", "--rows")
            for word in _words(rows)
        ],
        columns=[complete(word, places, "column", "--columns") for word in _words(columns)],
        published=published,
    )


def _words(text: str) -> list[str]:
    outside_brackets = r",(?![^(\[]*[)\]])"
    return list(dict.fromkeys(word.strip() for word in re.split(outside_brackets, text)))


def _rows_meant(
    rows: Mapping[str, Mapping[str, Cell[RunRecord]]], word: str, words: Sequence[str]
) -> list[str]:
    """List the rows of a board that a word of `--rows` stands for.

    Raises: UserError for a name that several of them begin with.
    """
    if word not in ROW_KINDS:
        return [complete(word, rows, "row", "--rows")] if matching_names(word, rows) else []
    usual = [name for name, cells in rows.items() if is_at_preset(cells)]
    named = {
        mixer
        for other in words
        for name in matching_names(other, rows)
        for mixer in _mixers(rows[name])
    }
    changed = [
        name
        for name, cells in rows.items()
        if name not in usual and (not named or not named.isdisjoint(_mixers(cells)))
    ]
    return {MIXERS: usual, VARIANTS: changed}.get(word, [])


def _mixers(cells: Mapping[str, Cell[RunRecord]]) -> set[str]:
    return {run.mixer for cell in cells.values() for run in cell.runs}


def is_at_preset(cells: Mapping[str, Cell[RunRecord]]) -> bool:
    """Whether the runs of a row have the settings of their preset."""
    return not any(changes_of(run) for cell in cells.values() for run in cell.runs)


def _has_result(board: Board, task: str) -> bool:
    return any(cells.get(task, Cell()).mean is not None for cells in board.rows.values())


def usual_average(board: Board) -> list[str]:
    """Choose the average that most rows have, of equals the one over more tasks; none if none."""
    means = [averages(cells) for cells in board.rows.values()]
    counts = {name: sum(row[name] is not None for row in means) for name in AVERAGES}
    best = max(AVERAGES, key=lambda name: (counts[name], len(AVERAGES[name])))
    return [best] if counts[best] else []
