"""LaTeX tables and PDF figures for a paper: `report.py --paper`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from common.files import write_atomically
from common.progress import progress
from lra.config.settings_files import published_presets
from lra.report.boards import Board, Cells, is_at_preset
from lra.report.charts import bubbles_of_board
from lra.report.data import Data
from lra.report.drawing import Figure, figures_of_table
from lra.report.names import complete, slugify
from lra.report.published import FAIL, PublishedRow, choose_published, rows_of
from lra.report.scores import AVERAGES, average, mean_over, rounded
from lra.report.styles import styles_of_data
from lra.report.tables.evaluations import evaluation_tables
from lra.report.tables.latex import write_table
from lra.report.tables.results import RANKS, accuracy_columns, conditions_of
from lra.report.tables.table import (
    Entry,
    Table,
    number_entry,
    text_column,
)
from lra.report.tables.terminal import Notes

MIXERS, VARIANTS, BASELINES, PUBLISHED = "mixers", "variants", "baselines", "published"
ROW_WORDS = (MIXERS, VARIANTS, BASELINES, PUBLISHED)
"""Words of `--rows` for all rows of a kind."""
TASKS, AVERAGE = "tasks", "average"
"""Words of `--columns` for all tasks with a result, and for the average that most rows have."""
ARTICLE_WIDTH = 345.0
"""Width of the text of `article` at 10 points, in points of TeX."""
SHRINKING = 1.5
"""How many times as wide as in the paper figures are drawn: their letters then have 8 points."""
_PUBLISHED_NOTE = (
    "as printed by the sources, on their own hardware and protocol, not ranked; "
    f"{FAIL}: at chance, or not trained."
)


@dataclass(frozen=True, kw_only=True)
class PaperOptions:
    """What to show; see the flags of report.py."""

    rows: str = MIXERS
    columns: str = f"{TASKS},{AVERAGE}"
    precision: int = 1
    """Decimal digits of accuracies."""
    width: float = ARTICLE_WIDTH
    """Width of a column of text, in points of TeX."""
    published: str | None = None


@dataclass(frozen=True)
class Paper:
    """The tables and figures that were made."""

    tables: dict[str, str]
    """LaTeX by name."""
    figures: list[Figure]
    left_out: list[str]
    """A line for each reason why tables lack rows."""


def write_paper(data: Data, options: PaperOptions, out: Path) -> Paper:
    """Write tables and figures into a folder.

    Raises: UserError for rows or columns that are not there, and for runs without accuracies.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"--out: {out} is a file, expected a folder")
    paper = make_paper(data, options)
    files = {f"tables/{slug}.tex": latex.encode() for slug, latex in paper.tables.items()}
    for figure in progress("drawing", paper.figures, unit="figures"):
        files[f"figures/{figure.slug}.pdf"] = figure.pdf(SHRINKING * options.width)
    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out / name, content)
    return paper


def make_paper(data: Data, options: PaperOptions) -> Paper:
    """Make the tables and figures of a paper; figures are still to be drawn.

    Raises: UserError, see `write_paper`.
    """
    boards = [board for board in data.boards if board.is_main and not board.of_positions]
    if not boards and data.records:
        tasks = ", ".join(sorted({record.task for record in data.records}))
        raise UserError(
            f"--paper writes tables of accuracies, and the runs of {tasks} have none; "
            f"python report.py without --paper shows them"
        )
    boards.sort(key=lambda board: board is not data.leading_board)
    rows = dict.fromkeys(name for board in boards for name in board.rows)
    tasks = dict.fromkeys(task for board in boards for task in board.tasks)
    words = _read_words(options.rows, [*rows, *ROW_WORDS], "row", "--rows")
    columns = _read_words(
        options.columns, [*tasks, *AVERAGES, TASKS, AVERAGE], "column", "--columns"
    )
    paper = Paper({}, [], [])
    named = options.published is not None
    published = choose_published(options.published) if named else []
    for board in boards:
        part, names = choose_columns(choose_rows(board, words, columns), columns)
        if not part.rows:
            continue
        if PUBLISHED in words and not named:
            published = rows_of({run.mixer for run in part.records})
        trivial = part.trivial_baselines() if BASELINES in words else {}
        # Published rows of full tasks never share a table with smaller ones.
        compared = published if board.preset in published_presets() else []
        latex = _tabulate(part, names, options.precision, trivial, compared)
        paper.tables[_slug_of(board)] = latex
        paper.figures.extend(_make_figures(data, part, names))
        paper.left_out.extend(count_changed(board, part) if VARIANTS not in words else [])
    if not paper.tables:
        changed = sum(not is_at_preset(cells) for board in boards for cells in board.rows.values())
        hint = f"; {changed} rows with changed settings are there, see --rows {VARIANTS}"
        raise UserError(
            f"--columns {options.columns}: no result of --rows {options.rows} is there"
            f"{hint * bool(changed)}"
        )
    return paper


def _read_words(text: str, known: Sequence[str], kind: str, flag: str) -> list[str]:
    """Read names or their beginnings, separated by commas that are not within brackets.

    Raises: UserError for a name that is not known, or that several begin with.
    """
    words = re.split(r",(?![^(\[]*[)\]])", text)
    return list(dict.fromkeys(complete(word.strip(), known, kind, flag) for word in words))


def choose_rows(board: Board, words: Sequence[str], columns: Sequence[str] = ()) -> Board:
    """Keep the rows of a board that the words of `--rows` stand for, in their order.

    The mixers of one word are sorted by their mean over the tasks among the columns, or over all.
    """
    tasks = [task for task in columns if task in board.tasks] or board.tasks

    def order(name: str) -> tuple[object, ...]:
        cells = board.rows[name]
        found = [mean for t in tasks if t in cells and (mean := cells[t].entry().value) is not None]
        return -len(found), -sum(found), name

    usual = [name for name, cells in board.rows.items() if is_at_preset(cells)]
    changed = [name for name in board.rows if name not in usual]
    of_word = {MIXERS: sorted(usual, key=order), VARIANTS: changed}
    names = [name for word in words for name in of_word.get(word, [word]) if name in board.rows]
    return dataclasses.replace(board, rows={name: board.rows[name] for name in names})


def choose_columns(board: Board, words: Sequence[str]) -> tuple[Board, list[str]]:
    """Return the columns, and the board without the rows that have nothing in any of them."""
    rows = board.rows.values()
    with_result = [
        task
        for task in board.tasks
        if any(task in c and c[task].entry().value is not None for c in rows)
    ]
    counts = {n: sum(average(c, tasks) is not None for c in rows) for n, tasks in AVERAGES.items()}
    usual = max(AVERAGES, key=lambda name: (counts[name], len(AVERAGES[name])))
    by_word = {TASKS: with_result, AVERAGE: [usual] if counts[usual] else []}
    names = list(dict.fromkeys(name for word in words for name in by_word.get(word, [word])))

    def has_any(cells: Cells) -> bool:
        return any(
            average(cells, AVERAGES[name]) is not None if name in AVERAGES else name in cells
            for name in names
        )

    kept = {row: cells for row, cells in board.rows.items() if has_any(cells)}
    return dataclasses.replace(board, rows=kept), names


def count_changed(board: Board, shown: Board) -> list[str]:
    """Say how many rows of changed settings the table of a board leaves out, if it does."""
    left_out = board.rows.keys() - shown.rows
    changed = sum(not is_at_preset(board.rows[name]) for name in left_out)
    name = f"Preset {board.preset}, protocol {board.protocol}"
    words = f"--rows {MIXERS},{VARIANTS}"
    return [f"{name}: {changed} with changed settings ({words})"] if changed else []


def _slug_of(board: Board) -> str:
    return slugify("accuracy", board.preset, board.protocol)


def _tabulate(
    board: Board,
    names: Sequence[str],
    digits: int,
    baselines: Mapping[str, Mapping[str, float]],
    published: Sequence[PublishedRow],
) -> str:
    """Tabulate a board's accuracies, trivial baselines and published results in LaTeX."""
    trivial = {n: found for n, found in baselines.items() if not found.keys().isdisjoint(names)}
    rows = [*board.rows, *trivial]
    by_name = {column.name: column for column in accuracy_columns(board, trivial)}
    columns = [by_name.get(name, text_column(name, [None] * len(rows))) for name in names]
    conditions = {task: text for task, text in board.conditions.items() if task in names}
    what = conditions_of(dataclasses.replace(board, conditions=conditions))
    caption = f"Test accuracy in percent. {Notes(columns).seeds} {RANKS} {what}".strip()
    caption += f" Published: {_PUBLISHED_NOTE}" * bool(published)
    filled = [
        dataclasses.replace(
            one, entries=[*one.entries, *_published_entries(published, one.name, digits)],
            digits=digits, margin=None,
        )
        for one in columns
    ]  # fmt: skip
    first = text_column("mixer", [*rows, *(row.method for row in published)])
    groups = {"": len(board.rows), "trivial baselines": len(trivial), PUBLISHED: len(published)}
    sources = {row.method: row.source for row in published}
    table = Table(_slug_of(board), board.name, caption, [first, *filled])
    return write_table(table, groups, sources, digits)


def _published_entries(rows: Sequence[PublishedRow], name: str, digits: int) -> list[Entry]:
    """Write published results, with no more digits than the source prints; recompute averages."""
    if name in AVERAGES:
        return [number_entry(mean_over(AVERAGES[name], row.values)) for row in rows]
    entries: list[Entry] = []
    for row in rows:
        text, value = row.printed.get(name) or None, row.values.get(name)
        if text is not None and value is not None:
            text = rounded(value, min(digits, len(text.partition(".")[2])))
        entries.append(Entry(text))
    return entries


def _make_figures(data: Data, board: Board, columns: Sequence[str]) -> list[Figure]:
    """Make the figures of a board: of the rows and tasks of its table."""
    rows = {
        name: {task: cell for task, cell in cells.items() if task in columns}
        for name, cells in board.rows.items()
    }
    part, styles = board.with_rows(rows), styles_of_data(data)
    bubbles = bubbles_of_board(data, part)
    titles = [one.title for one in bubbles.fields if one.name in bubbles.axes.values()]
    what = (
        f"{board.name}. Axes and area of circles: {'; '.join(titles)}. Bars: standard deviations "
        f"over seeds or, for a single seed, 95 % intervals."
    )
    figures = [Figure(f"bubbles-{board.slug}", "Accuracy over its cost", what, bubbles, styles)]
    for table in evaluation_tables(data, part):
        figures += figures_of_table(table, styles)
    return [one for one in figures if len({point["row"] for point in one.drawn_points}) > 1]
