"""LaTeX tables, PDF figures and a document with all of them: `report.py --paper`."""

from __future__ import annotations

import dataclasses
import io
import re
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from common.progress import progress
from lra.config.settings_files import published_presets
from lra.report.boards import Board, Cells, is_at_preset
from lra.report.data import Data
from lra.report.figures.bubbles import bubble_figures
from lra.report.figures.drawing import HEIGHT, WIDTH, ReportFigure, arrange, style
from lra.report.figures.lines import curve_figures, line_figures
from lra.report.names import complete, matching_names, slugify
from lra.report.page.page import files_before, write_files
from lra.report.published import FAIL, PublishedRow, choose_published, rows_of
from lra.report.scores import AVERAGES, average, mean_over, rounded
from lra.report.styles import styles_of_data
from lra.report.tables.evaluations import evaluation_tables
from lra.report.tables.latex import breakable, replace_unknown, write_table
from lra.report.tables.results import RANKS, accuracy_columns, conditions_of
from lra.report.tables.table import (
    Column,
    Entry,
    Table,
    name_column,
    number_entry,
    text_column,
)
from lra.report.tables.terminal import describe_seeds, seed_counts, usual_seeds
from lra.runtime.errors import UserError

MIXERS, VARIANTS, BASELINES, PUBLISHED = "mixers", "variants", "baselines", "published"
ROW_WORDS = (MIXERS, VARIANTS, BASELINES, PUBLISHED)
"""Words of `--rows` for all rows of a kind."""
TASKS, AVERAGE = "tasks", "average"
"""Words of `--columns` for all tasks with a result, and for the average that most rows have."""
ARTICLE_WIDTH = 345.0
"""Width of the text of `article` at 10 points, in points of TeX."""
WIDEST_OF_TWO = 250
"""Points up to which a column is taken for one of two, as in a paper of two columns."""
GAP = 20.0
"""Points between two columns."""
POINTS_AN_INCH = 72.27
FONT_SIZE = 8
"""Size of the letters in figures, in points."""
DOCUMENT, CONTENTS = "paper.tex", ".lra-paper"
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
    figures: Sequence[ReportFigure]
    left_out: Sequence[str]
    """A line for each reason why tables lack rows."""


def write_paper(data: Data, options: PaperOptions, out: Path) -> Paper:
    """Write tables, figures and a document with all of them into a folder.

    Raises: UserError for rows or columns that are not there, for runs without accuracies, and for
        a folder with a document of the user's own.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"--out: {out} is a file, expected a folder")
    if (out / DOCUMENT).exists() and DOCUMENT not in files_before(out / CONTENTS):
        raise UserError(f"--out: {out / DOCUMENT} is not this command's, and would be replaced")
    paper = make_paper(data, options)
    files = {f"tables/{slug}.tex": latex.encode() for slug, latex in paper.tables.items()}
    for figure in progress("drawing", paper.figures, unit="figures"):
        files[f"figures/{figure.slug}.pdf"] = pdf(figure, _width_of(figure, options.width))
    files[DOCUMENT] = _write_document(paper, options.width).encode()
    write_files(files, out, CONTENTS)
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
    words = read_rows(options.rows, boards)
    columns = read_columns(options.columns, boards)
    chosen = [(board, choose_rows(board, words, columns)) for board in boards]
    if not any(part.rows for _, part in chosen):
        changed = sum(not is_at_preset(cells) for board in boards for cells in board.rows.values())
        hint = f"; {changed} with changed settings are there, see --rows {VARIANTS}" * bool(changed)
        raise UserError(f"--rows {options.rows}: there are no runs of these{hint}")
    shown = [(board, *choose_columns(part, columns)) for board, part in chosen]
    shown = [(board, part, names) for board, part, names in shown if names and part.rows]
    if not shown:
        raise UserError(f"--columns {options.columns}: no result of --rows {options.rows} is there")
    mixers = {run.mixer for _, part, _ in shown for run in part.records}
    published = choose_published(options.published) if options.published is not None else []
    if options.published is None and PUBLISHED in words:
        published = rows_of(mixers)
    paper = Paper({}, [], [])
    figures: list[ReportFigure] = []
    left_out: list[str] = []
    for board, part, names in shown:
        # Published rows of full tasks never share a table with smaller ones.
        compared = published if board.preset in published_presets() else []
        trivial = part.trivial_baselines() if BASELINES in words else {}
        slug = _slug_of(board)
        paper.tables[slug] = _tabulate(part, names, options.precision, trivial, compared)
        figures += _make_figures(data, part, names)
        left_out += count_changed(board, part) if VARIANTS not in words else []
    if published and any(board.preset not in published_presets() for board, _, _ in shown):
        asked = [name for _, _, names in shown for name in names]
        paper.tables["published"] = _tabulate_published(
            published, list(dict.fromkeys(asked)), options.precision
        )
    return dataclasses.replace(paper, figures=figures, left_out=left_out)


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
        found = [mean for t in tasks if t in cells and (mean := cells[t].mean()) is not None]
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


def choose_columns(board: Board, words: Sequence[str]) -> tuple[Board, list[str]]:
    """Return the columns, and the board without the rows that have nothing in any of them."""
    rows = board.rows.values()
    with_result = [
        task for task in board.tasks if any(task in c and c[task].mean() is not None for c in rows)
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
    baselines: dict[str, dict[str, float]],
    published: Sequence[PublishedRow],
) -> str:
    """Tabulate a board's accuracies, trivial baselines and published results in LaTeX."""
    trivial = {n: found for n, found in baselines.items() if not found.keys().isdisjoint(names)}
    by_name = {column.name: column for column in accuracy_columns(board, trivial)}
    rows = [*board.rows, *trivial]
    columns = [by_name.get(name, text_column(name, [None] * len(rows))) for name in names]
    seeds = describe_seeds(usual_seeds(counts := seed_counts(columns)), counts)
    conditions = {task: text for task, text in board.conditions.items() if task in names}
    what = conditions_of(dataclasses.replace(board, conditions=conditions))
    caption = f"Test accuracy in percent. {seeds} {RANKS} {what}".strip()
    caption += f" Published: {_PUBLISHED_NOTE}" * bool(published)
    filled = [
        dataclasses.replace(
            one, entries=[*one.entries, *_published_entries(published, one.name, digits)],
            digits=digits,
        )
        for one in columns
    ]  # fmt: skip
    first = name_column("mixer", [*rows, *(row.method for row in published)])
    groups = {"": len(board.rows), "trivial baselines": len(trivial), PUBLISHED: len(published)}
    sources = {row.method: row.source for row in published}
    return write_table(
        Table(_slug_of(board), board.name, caption, [first, *filled]), groups, sources, digits
    )


def _tabulate_published(rows: Sequence[PublishedRow], names: Sequence[str], digits: int) -> str:
    """Tabulate published results alone, for boards of presets that they do not compare with."""
    columns = [Column(name, _published_entries(rows, name, digits), digits) for name in names]
    first = name_column("method", [row.method for row in rows])
    title = "Published test accuracy in percent on the full tasks"
    caption = _PUBLISHED_NOTE[:1].upper() + _PUBLISHED_NOTE[1:]
    table = Table("published", title, caption, [first, *columns])
    return write_table(table, {"": len(rows)}, {row.method: row.source for row in rows}, digits)


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


def _make_figures(data: Data, board: Board, columns: Sequence[str]) -> list[ReportFigure]:
    """Make the figures of a board: of the rows and tasks of its table."""
    rows = {
        name: {task: cell for task, cell in cells.items() if task in columns}
        for name, cells in board.rows.items()
    }
    part, styles = board.with_rows(rows), styles_of_data(data)
    evaluated = [f for t in evaluation_tables(data, part) for f in line_figures(t, styles)]
    return [*bubble_figures(data, part, styles), *curve_figures(data, part, styles), *evaluated]


def column_style(width: float) -> AbstractContextManager[None]:
    """Return the context that figures of a column are drawn in, its width in points of TeX."""
    inches = (width - 0.2) / POINTS_AN_INCH  # a little less, so that rounding makes no box overfull
    return style(
        {
            "figure.figsize": (inches, inches * HEIGHT / WIDTH),
            "font.size": FONT_SIZE,
            "pdf.fonttype": 42,  # publishers refuse matplotlib's usual Type 3
        }
    )


def pdf(figure: ReportFigure, width: float) -> bytes:
    """Draw a figure as PDF with TrueType fonts, the same bytes for the same data."""
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    buffer = io.BytesIO()
    with column_style(width), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        drawn = figure.draw()
        arrange(drawn)
        FigureCanvasPdf(drawn).print_pdf(buffer, metadata={"CreationDate": None, "Creator": None})
    return buffer.getvalue()


def _has_two_columns(width: float) -> bool:
    return width <= WIDEST_OF_TWO


def _width_of(figure: ReportFigure, width: float) -> float:
    """Return the width of a figure: a column's or, of several panels, that of both columns."""
    return 2 * width + GAP if figure.is_wide and _has_two_columns(width) else width


def _write_document(paper: Paper, width: float) -> str:
    has_two = _has_two_columns(width)
    text = 2 * width + GAP if has_two else width
    wide = [figure for figure in paper.figures if _width_of(figure, width) > width]
    parts = [
        "% `report.py --paper` made this document and will write it again. Include its tables and",
        "% figures in a document of your own. To compile it: pdflatex paper.tex",
        *(f"% Left out: {replace_unknown(line)}" for line in paper.left_out),
        f"\\documentclass{'[twocolumn]' if has_two else ''}{{article}}",
        f"\\usepackage[papersize={{{max(614.0, text + 140):g}pt,795pt}},textwidth={text:g}pt,"
        "textheight=640pt]{geometry}",
        "\\usepackage{booktabs,graphicx,float}",
        f"\\setlength{{\\columnsep}}{{{GAP:g}pt}}\\setlength{{\\emergencystretch}}{{3em}}\\raggedbottom",
        "\\makeatletter\\setlength{\\@fptop}{0pt}\\setlength{\\@dblfptop}{0pt}\\makeatother",
        "\\begin{document}",
        *(f"\\input{{tables/{slug}.tex}}" for slug in paper.tables),
        "\\clearpage",
        *(f"{_include(figure, 'figure*', 'tp')}\\clearpage" for figure in wide),
        *(_include(figure, "figure", "H") for figure in paper.figures if figure not in wide),
    ]
    return "\n".join([*parts, "\\end{document}", ""])


def _include(figure: ReportFigure, environment: str, place: str) -> str:
    return (
        f"\\begin{{{environment}}}[{place}]\\centering\n"
        f"\\includegraphics{{figures/{figure.slug}.pdf}}\n"
        f"\\caption{{{breakable(f'{figure.title}. {figure.caption}')}}}\n\\end{{{environment}}}"
    )
