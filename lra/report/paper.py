"""LaTeX tables and PDF figures for a paper: `report.py --paper`."""

import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path

from lra.common.errors import UserError
from lra.common.files import write_atomically
from lra.common.progress import progress
from lra.config.layers import published_presets
from lra.report.boards import Board, is_at_preset, is_probe
from lra.report.charts import bubbles_of_board
from lra.report.data import Data
from lra.report.drawing import Figure, figures_of_table
from lra.report.names import complete, mixer_of
from lra.report.published import FAIL, PublishedRow, published_rows
from lra.report.scores import AVERAGES, mean_over
from lra.report.styles import styles_of_data
from lra.report.tables.evaluations import distance_tables, evaluation_tables
from lra.report.tables.latex import write_table
from lra.report.tables.results import RANKS, accuracy_columns, conditions_of, measures_table
from lra.report.tables.table import Column, Entry, Table, number_entry, text_column
from lra.report.tables.terminal import Notes
from lra.runtime.tables import rounded

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


def write_paper(
    data: Data,
    out: Path,
    *,
    rows: str = MIXERS,
    columns: str = f"{TASKS},{AVERAGE}",
    precision: int = 1,
    width: float = ARTICLE_WIDTH,
    published: Sequence[PublishedRow] | None = None,
) -> list[str]:
    """Write tables and figures as the flags of report.py say; return what to tell the user.

    The width is in points of TeX. Without published rows, they are those of the mixers shown.

    Raises: UserError for rows or columns that are not there, and for runs of probes alone.
    """
    boards, probes = data.boards, sorted({r.task for r in data.records if is_probe(r)})
    if not boards and probes:
        raise UserError(
            f"--paper writes no tables of probes, and all runs are of {', '.join(probes)}; python "
            f"report.py without --paper shows them"
        )
    methods = {name for board in boards for name in board.rows}
    tasks = {task for board in boards for task in board.tasks}
    row_words = _read_words(rows, [*methods, *ROW_WORDS], "row", "--rows")
    column_words = _read_words(columns, [*tasks, *AVERAGES, TASKS, AVERAGE], "column", "--columns")
    files: dict[str, bytes] = {}
    figures: list[Figure] = []
    left_out: list[str] = []
    for board in boards:
        if not (board.is_main or board.own_rows):
            left_out.append(f"  {board.name}: {', '.join(board.rows)} (not your own)")
            continue
        shown = _choose_rows(board, row_words, column_words)
        if board.is_of_accuracy:
            latex, shown = _tabulate(
                shown, row_words, column_words, digits=precision, published=published
            )
        elif shown.rows and {TASKS, *board.tasks} & {*column_words}:
            latex = _tabulate_measures(shown, row_words)
        else:
            continue
        if shown.rows:
            kind = "accuracy" if board.is_of_accuracy else "results"
            files[f"tables/{kind}-{board.slug}.tex"] = latex.encode()
            figures += _make_figures(data, shown)
        changed = [row for row, cells in board.rows.items() if not is_at_preset(cells)]
        if number := len({*changed} - shown.rows.keys()) * (VARIANTS not in row_words):
            flag = f"--rows {MIXERS},{VARIANTS}"
            left_out.append(f"  {board.name}: {number} with changed settings ({flag})")
    if not files:
        raise UserError(
            f"--columns {columns}: no result of --rows {rows} is there; --rows {VARIANTS} chooses "
            f"rows with changed settings"
        )
    left_out += [f"  Probes: {', '.join(probes)}"] if probes else []
    lines = [
        *(["Left out:", *left_out] if left_out else []),
        f"Saved to {out}: tables in LaTeX ({len(files)}), figures in PDF ({len(figures)}).",
        "To include a table: \\usepackage{booktabs,graphicx} and \\input{tables/NAME.tex}",
    ]
    for figure in progress("drawing", figures, unit="figures"):
        files[f"figures/{figure.slug}.pdf"] = figure.pdf(SHRINKING * width)
    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out / name, content)
    return lines


def _read_words(text: str, known: Sequence[str], kind: str, flag: str) -> list[str]:
    """Read names or their beginnings, separated by commas that are not within brackets.

    Raises: UserError for a name that is not known, or that several begin with.
    """
    words = re.split(r",(?![^(\[]*[)\]])", text)
    return list(dict.fromkeys(complete(word.strip(), known, kind, flag) for word in words))


def _choose_rows(board: Board, words: Sequence[str], columns: Sequence[str]) -> Board:
    """Keep the rows of a board that the words of `--rows` stand for, in their order.

    The mixers of one word are sorted by their mean over the tasks among the columns, or over all.
    """
    tasks = [task for task in columns if task in board.tasks] or board.tasks

    measure = board.measures[0]
    sign = 1 if measure.lowest_is_best else -1

    def order(name: str) -> tuple[object, ...]:
        cells = [cell for task, cell in board.rows[name].items() if task in tasks]
        known = [mean for cell in cells if (mean := cell.entry(measure).value) is not None]
        return -len(known), sign * math.fsum(known), name

    usual = [name for name, cells in board.rows.items() if is_at_preset(cells)]
    changed = [name for name in board.rows if name not in usual]
    of_word = {MIXERS: sorted(usual, key=order), VARIANTS: changed}
    names = [name for word in words for name in of_word.get(word, [word]) if name in board.rows]
    return dataclasses.replace(board, rows={name: board.rows[name] for name in names})


def _choose_columns(board: Board, columns: Sequence[Column], words: Sequence[str]) -> list[Column]:
    """Choose what the words of `--columns` stand for, in their order."""
    counts = {
        column.name: sum(entry.value is not None for entry in column.entries[: len(board.rows)])
        for column in columns
    }
    usual = max(AVERAGES, key=lambda name: (counts.get(name, 0), len(AVERAGES[name])))
    of_word = {
        TASKS: [task for task in board.tasks if counts[task]],
        AVERAGE: [usual] if counts.get(usual) else [],
    }
    names = dict.fromkeys(name for word in words for name in of_word.get(word, [word]))
    return [column for name in names for column in columns if column.name == name]


def _tabulate(
    board: Board,
    row_words: Sequence[str],
    column_words: Sequence[str],
    *,
    digits: int,
    published: Sequence[PublishedRow] | None,
) -> tuple[str, Board]:
    """Tabulate accuracies, trivial baselines and published results in LaTeX.

    Returns: the table, and the results of the board that it shows: those in any of its columns.
    """
    trivial = board.trivial_baselines() if BASELINES in row_words else {}
    names, *results = accuracy_columns(board, trivial)
    columns = _choose_columns(board, results, column_words)
    chosen = {column.name for column in columns}
    kept = {
        name: i
        for i, name in enumerate(names.texts)
        if any(column.entries[i].text is not None for column in columns)
    }
    rows = {
        row: {task: cell for task, cell in cells.items() if task in chosen}
        for row, cells in board.rows.items()
        if row in kept
    }
    shown = board.with_rows(rows)
    if published is None:
        mixers = [mixer_of(row) for row in rows if PUBLISHED in row_words]
        tested = [row for row in published_rows() if row.split == "test"]
        published = [row for row in tested if row.mixer in mixers]
    # Published rows of full tasks never share a table with smaller ones.
    published = published if board.preset in published_presets() else []
    columns = [
        dataclasses.replace(
            column,
            entries=[
                *(column.entries[i] for i in kept.values()),
                *(_published_entry(row, column.name, digits) for row in published),
            ],
            digits=digits,
        )
        for column in columns
    ]
    seeds = Notes(columns).seeds
    caption = f"Test accuracy in percent. {seeds} {RANKS} {conditions_of(shown)}".strip()
    if published:
        caption += f" Published: {_PUBLISHED_NOTE}"
    first = text_column("mixer", [*kept, *(row.method for row in published)])
    groups = {"": len(rows), "trivial baselines": len(kept) - len(rows), PUBLISHED: len(published)}
    sources = {row.method: row.source for row in published}
    table = Table(f"accuracy-{board.slug}", board.name, caption, [first, *columns])
    return write_table(table, groups, sources), shown


def _tabulate_measures(board: Board, row_words: Sequence[str]) -> str:
    """Tabulate what results are measured by that are no accuracies, with trivial baselines."""
    table, count = measures_table(board, has_costs=False), len(board.rows)
    if BASELINES not in row_words:
        table = table.with_rows(range(count))
    return write_table(table, {"": count, "trivial baselines and bounds": table.beneath}, {})


def _published_entry(row: PublishedRow, name: str, digits: int) -> Entry:
    """Write a published result, with no more digits than the source prints; or an average."""
    if name in AVERAGES:
        return number_entry(mean_over(AVERAGES[name], row.values))
    text, value = row.printed.get(name) or None, row.values.get(name)
    if text is not None and value is not None:
        text = rounded(value, min(digits, len(text.partition(".")[2])))
    return Entry(text)


def _make_figures(data: Data, board: Board) -> list[Figure]:
    """Make the figures of the results that a table shows."""
    styles, bubbles = styles_of_data(data), bubbles_of_board(data, board)
    titles = [field.title for field in bubbles.fields if field.name in bubbles.axes.values()]
    what = (
        f"{board.name}. Axes and area of circles: {'; '.join(titles)}. Bars: standard deviations "
        f"over seeds or, for a single seed, 95 % intervals."
    )
    figures = [Figure(f"bubbles-{board.slug}", bubbles.title, what, bubbles, styles)]
    for table in (*evaluation_tables(data, board), *distance_tables(board)):
        figures += figures_of_table(table, styles)
    return [figure for figure in figures if len({p["row"] for p in figure.drawn_points}) > 1]
