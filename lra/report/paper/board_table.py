"""A board's table for a paper: what is equal of all numbers is said once, in the caption."""

from __future__ import annotations

import dataclasses
import statistics
import string
from collections import Counter
from collections.abc import Mapping, Sequence

from lra.record.run import RunRecord
from lra.report.boards.averages import AVERAGES, averages, mean_over
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell, is_at_chance
from lra.report.boards.ranking import ranks, rounded
from lra.report.boards.slugs import slugify
from lra.report.paper.choice import BASELINES
from lra.report.paper.table import DAGGER, Entry, Line, PaperTable
from lra.report.published.rows import FAIL, PublishedRow
from lra.report.tables.accuracy import caption_of

NOTHING = "--"
"""What the table shows where there is no number; LaTeX makes a dash of it."""
_AS_PRINTED = (
    "as printed by the sources, on their own hardware and protocol, not ranked; "
    f"{FAIL}: at chance, or not trained."
)


class _Notes:
    """Symbols of notes, given as they are asked for; a result at chance has the dagger."""

    def __init__(self) -> None:
        self.meanings: dict[str, str] = {}

    def symbol(self, text: str) -> str:
        """Return the symbol of a note."""
        known = {meaning: symbol for symbol, meaning in self.meanings.items()}
        letters = [c for c in string.ascii_letters if c not in self.meanings]
        chosen = known.get(text) or (DAGGER if text == "at chance" else letters[0])
        self.meanings[chosen] = text
        return chosen


def board_table(
    board: Board,
    columns: Sequence[str],
    precision: int,
    baselines: Mapping[str, Mapping[str, float]],
    published: Sequence[PublishedRow],
) -> PaperTable:
    """Tabulate a board's accuracies for a paper.

    Args:
        board: a board with the rows to show.
        columns: tasks and keys of AVERAGES.
        precision: decimal digits.
        baselines: accuracies of trivial baselines in percent, by name and then by task.
        published: published results to show beneath.
    """
    tasks = [name for name in columns if name not in AVERAGES]
    cells = {
        method: {task: found.get(task, Cell()) for task in tasks}
        for method, found in board.rows.items()
    }
    usual = _usual_seeds([cell for row in cells.values() for cell in row.values()])
    notes = _Notes()
    own = _own_lines(board, columns, precision, usual, notes)
    groups: dict[str, list[Line]] = {"": own}
    trivial = [
        Line(name, [Entry(_number(found.get(column), precision)) for column in columns])
        for name, found in baselines.items()
        if any(task in found for task in tasks)
    ]
    groups |= {f"trivial {BASELINES}": trivial} if trivial else {}
    groups |= {"published": published_lines(published, columns, precision)} if published else {}
    shown = dataclasses.replace(
        board, conditions={task: text for task, text in board.conditions.items() if task in tasks}
    )
    caption = f"{board.name}. {caption_of(shown, _seeds(usual, cells))}"
    return PaperTable(
        slug=f"accuracy-{slugify(board.preset)}-{slugify(board.protocol)}",
        caption=caption + (f" Published: {_AS_PRINTED}" if published else ""),
        columns=["mixer", *columns],
        groups=groups,
        notes=dict(sorted(notes.meanings.items(), key=lambda item: item[0] != DAGGER)),
    )


def published_table(
    rows: Sequence[PublishedRow], columns: Sequence[str], precision: int
) -> PaperTable:
    """Tabulate published results apart, for boards of presets that they do not compare with."""
    return PaperTable(
        slug="published",
        caption=f"Published test accuracy in percent on the full tasks, {_AS_PRINTED}",
        columns=["method", *columns],
        groups={"": published_lines(rows, columns, precision)},
        notes={},
    )


def published_lines(
    rows: Sequence[PublishedRow], columns: Sequence[str], precision: int
) -> list[Line]:
    """Write published rows, with no more digits than the source prints; averages are recomputed."""
    lines = []
    for row in rows:
        texts: dict[str, str] = {}
        for task, text in row.printed.items():
            digits = min(precision, len(text.partition(".")[2]))
            value = row.values[task]
            texts[task] = (text or NOTHING) if value is None else rounded(value, digits)
        for name, tasks in AVERAGES.items():
            texts[name] = _number(mean_over(tasks, row.values), precision)
        entries = [Entry(texts.get(column, NOTHING)) for column in columns]
        lines.append(Line(row.method, entries, row.source))
    return lines


def _own_lines(
    board: Board, columns: Sequence[str], precision: int, usual: int, notes: _Notes
) -> list[Line]:
    rows = {}
    for method, cells in board.rows.items():
        means = averages(cells)
        rows[method] = [
            means[name] if name in means else cells.get(name, Cell()).value for name in columns
        ]
    marks = [ranks(column, precision) for column in zip(*rows.values(), strict=True)]
    lines = []
    for i, (method, values) in enumerate(rows.items()):
        entries = [
            _entry(board.rows[method].get(name, Cell()), precision, usual, notes)
            if name not in AVERAGES
            else Entry(_number(value, precision))
            for name, value in zip(columns, values, strict=True)
        ]
        marked = [
            dataclasses.replace(entry, mark=marks[j].get(i, "")) for j, entry in enumerate(entries)
        ]
        lines.append(Line(method, marked))
    return lines


def _entry(cell: Cell[RunRecord], precision: int, usual: int, notes: _Notes) -> Entry:
    """Write a cell; whatever holds for it alone is a note."""
    if cell.mean is None:
        return Entry(NOTHING, notes="".join(map(notes.symbol, [*cell.words, *cell.faults])))
    lucky = sum(map(is_at_chance, cell.runs))
    said = ["at chance"] if cell.is_at_chance else [f"{lucky} at chance"] * bool(lucky)
    seeds = len(cell.accuracies)
    said += [_counted(seeds)] * (seeds != usual)
    return Entry(
        rounded(cell.mean, precision),
        "" if cell.deviation is None else rounded(cell.deviation, precision),
        "".join(map(notes.symbol, [*said, *cell.words, *cell.faults])),
    )


def _usual_seeds(cells: Sequence[Cell[RunRecord]]) -> int:
    """Return the number of seeds that most cells have; 0 if there are none."""
    counts = Counter(len(cell.accuracies) for cell in cells if cell.accuracies)
    return statistics.mode(sorted(counts.elements(), reverse=True)) if counts else 0


def _seeds(usual: int, cells: Mapping[str, Mapping[str, Cell[RunRecord]]]) -> str:
    """Say once how many seeds stand behind a number."""
    counts = {len(cell.accuracies) for row in cells.values() for cell in row.values()} - {0}
    if max(counts, default=1) == 1:
        return "of one seed each"
    where = " where not marked" if len(counts) > 1 else ""
    if usual == 1:
        return f"of one seed{where}, of more the mean ± standard deviation"
    return f"mean ± standard deviation over {_counted(usual)}{where}"


def _counted(seeds: int) -> str:
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def _number(value: float | None, precision: int) -> str:
    return NOTHING if value is None else rounded(value, precision)
