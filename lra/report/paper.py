"""LaTeX tables, PDF figures and a document with all of them: `report.py --paper`."""

from __future__ import annotations

import dataclasses
import io
import warnings
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from common.progress import progress
from lra.config.settings_files import published_presets
from lra.report.boards.averages import AVERAGES
from lra.report.boards.board import Board
from lra.report.boards.evaluations import evaluation_boards
from lra.report.boards.results import Results
from lra.report.data import ReportData, ReportOptions
from lra.report.figures.best_rows import rank, rank_in_turn
from lra.report.figures.bubble_names import bubbles_of, centre_of, name_bubbles
from lra.report.figures.bubbles import bubble_figures
from lra.report.figures.curves import curve_figures
from lra.report.figures.drawing import HEIGHT, WIDTH, ReportFigure, arrange, style
from lra.report.figures.out_of_distribution import evaluation_figures
from lra.report.page.write import files_before, write_files
from lra.report.paper_rows import (
    AVERAGE,
    BASELINES,
    MIXERS,
    PUBLISHED,
    TASKS,
    VARIANTS,
    choose_columns,
    choose_rows,
    describe_left_out,
    is_at_preset,
    panels_of,
    read_columns,
    read_rows,
)
from lra.report.published.rows import PublishedRow, choose_published, rows_of
from lra.report.tables.latex import breakable, replace_unknown
from lra.report.tables.paper_table import PaperTable, tabulate_board, tabulate_published
from lra.runtime.errors import UserError
from tasks.base import BENCHMARK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARTICLE_WIDTH = 345.0
"""Width of the text of `article` at 10 points, in points of TeX."""
WIDEST_OF_TWO = 250
"""Points up to which a column is taken for one of two, as in a paper of two columns."""
GAP = 20.0
"""Points between two columns."""
POINTS_AN_INCH = 72.27
FONT_SIZE = 8
"""Size of the letters in figures, in points."""
MOST_LABELS = 8
"""Most bubbles of a figure that have labels; the legend names the others."""
DOCUMENT, CONTENTS = "paper.tex", ".lra-paper"


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
    relative_to: str | None = None
    """Mixer that bubble plots are relative to; None: tnn, if it is shown."""


@dataclass(frozen=True)
class Paper:
    """The tables and figures that were made."""

    tables: Sequence[PaperTable]
    figures: Sequence[ReportFigure]
    left_out: Sequence[str]
    """A line for each reason why tables or figures lack rows."""


def write_paper(results: Results, options: PaperOptions, out: Path) -> Paper:
    """Write tables, figures and a document with all of them into a folder.

    Raises: UserError for rows or columns that are not there, for runs without accuracies, and for
        a folder with a document of the user's own.
    """
    _check_folder(out)
    data = ReportData(results, ReportOptions(relative_to=options.relative_to))
    boards = [board for board in data.boards if board.is_main]
    if not boards and results.records:
        tasks = ", ".join(sorted({record.task for record in results.records}))
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
        hint = (
            f"; {changed} with changed settings are there, see --rows {VARIANTS}" if changed else ""
        )
        raise UserError(f"--rows {options.rows}: there are no runs of these{hint}")
    shown = [(board, *choose_columns(part, columns)) for board, part in chosen]
    shown = [(board, part, names) for board, part, names in shown if names and part.rows]
    if not shown:
        raise UserError(f"--columns {options.columns}: no result of --rows {options.rows} is there")
    published = _published_rows(options.published, words, [part for _, part, _ in shown])
    tables = _make_tables([(p, names) for _, p, names in shown], words, options, published)
    figures: list[ReportFigure] = []
    left_out: list[str] = []
    for board, part, names in shown:
        drawn = _make_figures(data, part, names)
        left_out += describe_left_out(
            board, part, drawn, words, boards=data.boards, relative_to=data.relative_to
        )
        figures += drawn
    paper = Paper(tables, figures, left_out)
    files = {f"tables/{table.slug}.tex": table.latex.encode() for table in tables}
    for figure in progress("drawing", figures, unit="figures"):
        files[f"figures/{figure.slug}.pdf"] = pdf(figure, _width_of(figure, options.width))
    files[DOCUMENT] = _write_document(paper, options.width).encode()
    write_files(files, out, CONTENTS)
    return paper


def _check_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UserError(f"--out: {out} is a file, expected a folder")
    if (out / DOCUMENT).exists() and DOCUMENT not in files_before(out / CONTENTS):
        raise UserError(f"--out: {out / DOCUMENT} is not this command's, and would be replaced")


def _published_rows(
    named: str | None, words: Sequence[str], boards: Iterable[Board]
) -> list[PublishedRow]:
    if named is not None:
        return choose_published(named)
    mixers = {run.mixer for board in boards for run in board.records}
    return rows_of(mixers) if PUBLISHED in words else []


def _make_tables(
    shown: Sequence[tuple[Board, Sequence[str]]],
    words: Sequence[str],
    options: PaperOptions,
    published: Sequence[PublishedRow],
) -> list[PaperTable]:
    """Tabulate each board; published rows of full tasks never share a table with smaller ones."""
    tables = []
    for board, names in shown:
        trivial = board.trivial_baselines() if BASELINES in words else {}
        compared = published if board.preset in published_presets() else []
        tables.append(tabulate_board(board, names, options.precision, trivial, compared))
    asked = {name for _, names in shown for name in names}
    names = [name for name in (*BENCHMARK, *AVERAGES) if name in asked]
    if published and names and any(b.preset not in published_presets() for b, _ in shown):
        tables.append(tabulate_published(published, names, options.precision))
    return tables


def _make_figures(data: ReportData, board: Board, columns: Sequence[str]) -> list[ReportFigure]:
    """Make the figures of a board: of the rows and tasks of its table."""
    conditions = {task: text for task, text in board.conditions.items() if task in columns}
    rows = {
        name: {task: cell for task, cell in cells.items() if task in conditions}
        for name, cells in board.rows.items()
    }
    part = dataclasses.replace(board, rows=rows, conditions=conditions)
    slug = f"{board.preset}-{board.protocol}"
    return [
        *bubble_figures(part, data.relative_to, data.styles, slug),
        *curve_figures(data.results, part, data.styles, slug),
        *(
            figure
            for evaluated in evaluation_boards(data.results, part)
            for figure in evaluation_figures(evaluated, data.styles, slug)
        ),
    ]


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


def draw_for_column(figure: ReportFigure) -> Figure:
    """Draw a figure in the style of a column; bubble plots have labels and a short legend."""
    drawn = figure.draw()
    labels = _shorten_legend(drawn) if panels_of(figure) else []
    arrange(drawn)
    name_bubbles(drawn, labels)
    return drawn


def _shorten_legend(figure: Figure) -> list[str]:
    """Take the best rows of each panel, and the ring, out of the legend; return their names."""
    panels = [bubbles_of(axes) for axes in figure.axes]
    rings = [n for panel in panels for n, b in panel.items() if not len(b.get_facecolor())]
    heights = [rank({n: centre_of(b)[1] for n, b in panel.items()}, "") for panel in panels]
    best = rank_in_turn([rank(dict.fromkeys(rings, 0.0), ""), *heights], "").best_first
    chosen = list(best[:MOST_LABELS])
    legend = figure.legends[0]
    names = [text.get_text() for text in legend.get_texts()]
    others = [(h, n) for h, n in zip(legend.legend_handles, names, strict=True) if n not in chosen]
    legend.remove()
    if others:
        figure.legend(*zip(*others, strict=True), loc="outside right upper")
    return chosen


def pdf(figure: ReportFigure, width: float) -> bytes:
    """Draw a figure as PDF with TrueType fonts, the same bytes for the same data."""
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    buffer = io.BytesIO()
    with column_style(width), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        FigureCanvasPdf(draw_for_column(figure)).print_pdf(
            buffer, metadata={"CreationDate": None, "Creator": None}
        )
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
        *(f"\\input{{tables/{table.slug}.tex}}" for table in paper.tables),
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
