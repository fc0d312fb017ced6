"""The report for a paper: LaTeX tables and PDF figures of one column's width, and a document.

`report.py --paper` writes them; `paper.tex`, which shows them all, compiles as it is.
"""

from __future__ import annotations

import dataclasses
import io
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from common.progress import progress
from lra.config.settings_files import published_presets
from lra.report.boards.averages import AVERAGES
from lra.report.boards.board import Board
from lra.report.boards.results import Results
from lra.report.chapters import PAPER, ReportData, ReportOptions
from lra.report.contents import ACCURACY
from lra.report.figures.bubble_names import name_bubbles
from lra.report.figures.drawing import HEIGHT, WIDTH, ReportFigure, arrange, style
from lra.report.page.write import files_before, write_files
from lra.report.paper.board_table import tabulate_board, tabulate_published
from lra.report.paper.choice import (
    AVERAGE,
    BASELINES,
    MIXERS,
    TASKS,
    VARIANTS,
    Choice,
    choose,
    is_at_preset,
)
from lra.report.paper.labels import shorten_legend
from lra.report.paper.left_out import panels_of, rows_left_out
from lra.report.paper.table import PaperTable
from lra.report.tables.latex import breakable, replace_unknown
from lra.runtime.errors import UserError
from tasks.base import BENCHMARK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN = 345.0
"""Width of a column of `article` at 10 points, in points of TeX."""
POINTS_AN_INCH = 72.27
FONT_SIZE = 8
"""Size of the letters in figures, in points."""
DOCUMENT, CONTENTS = "paper.tex", ".lra-paper"
_SLACK = 0.2
"""Points that figures stay below the width of the column."""


@dataclass(frozen=True, kw_only=True)
class PaperOptions:
    """What the report for a paper is to show."""

    rows: str = MIXERS
    columns: str = f"{TASKS},{AVERAGE}"
    precision: int = 1
    """Decimal digits of accuracies."""
    width: float = COLUMN
    """Width of a column, in points of TeX."""
    published: str | None = None
    relative_to: str | None = None
    """Mixer that bubble plots are relative to; None: tnn, if it is shown."""


@dataclass(frozen=True)
class Paper:
    """What the report for a paper has."""

    tables: Sequence[PaperTable]
    figures: Sequence[ReportFigure]
    left_out: Sequence[str]
    """The rows that tables or figures leave out, a line for each reason."""


def write_paper(results: Results, options: PaperOptions, out: Path) -> Paper:
    """Write tables, figures and a document with all of them into a folder.

    Raises: UserError for rows or columns that are not there, for runs whose targets are positions
        alone, and for a folder that holds a document of another origin.
    """
    _check_folder(out)
    data = ReportData(results, ReportOptions(relative_to=options.relative_to))
    main = [board for board in data.boards if board.is_main]
    if not main and results.records:
        tasks = ", ".join(sorted({record.task for record in results.records}))
        raise UserError(
            f"--paper: its tables are of accuracies, and all runs are of {tasks}, whose targets "
            f"are positions; python report.py without it shows them"
        )
    main.sort(key=lambda board: board is not data.leading_board)
    choice = choose(main, options.rows, options.columns, options.published)
    shown = {i: choice.board(board) for i, board in enumerate(main)}
    columns = {i: choice.shown_columns(board) for i, board in shown.items() if board.rows}
    if not columns:
        raise UserError(f"--rows {options.rows}: there are no runs of these{_hint(main)}")
    columns = {i: names for i, names in columns.items() if names}
    if not columns:
        raise UserError(f"--columns {options.columns}: no result of --rows {options.rows} is there")
    tables = _tables(main, shown, columns, choice, options)
    figures: list[ReportFigure] = []
    left_out: list[str] = []
    for i, names in columns.items():
        drawn = _figures(data, shown[i], names)
        left_out += rows_left_out(
            data.boards, main[i], shown[i], columns=names, figures=drawn, choice=choice
        )
        figures += drawn
    files = {f"tables/{table.slug}.tex": table.latex(options.width).encode() for table in tables}
    for figure in progress("drawing", figures, unit="figures"):
        files[f"figures/{figure.slug}.pdf"] = pdf(figure, options.width)
    paper = Paper(tables, figures, left_out)
    files[DOCUMENT] = _document(paper, options.width).encode()
    write_files(files, out, CONTENTS)
    return paper


def _hint(main: Sequence[Board]) -> str:
    """Name the rows that there are, if all have changed settings."""
    rows = [cells for board in main for cells in board.rows.values()]
    changed = [cells for cells in rows if not is_at_preset(cells)]
    return f"; {len(changed)} rows have changed settings, see --rows {VARIANTS}" if changed else ""


def _check_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UserError(f"--out: {out} is a file, expected a folder")
    if (out / DOCUMENT).exists() and DOCUMENT not in files_before(out / CONTENTS):
        raise UserError(f"--out: {out / DOCUMENT} is not this command's, and would be replaced")


def _tables(
    main: Sequence[Board],
    shown: dict[int, Board],
    columns: dict[int, list[str]],
    choice: Choice,
    options: PaperOptions,
) -> list[PaperTable]:
    published = choice.published_rows([shown[i] for i in columns])
    tables = []
    for i, names in columns.items():
        trivial = main[i].trivial_baselines() if BASELINES in choice.rows else {}
        compared = published if shown[i].preset in published_presets() else []
        tables.append(tabulate_board(shown[i], names, options.precision, trivial, compared))
    asked = {name for names in columns.values() for name in names}
    names = [name for name in (*BENCHMARK, *AVERAGES) if name in asked]
    has_reduced = any(shown[i].preset not in published_presets() for i in columns)
    if published and names and has_reduced:
        tables.append(tabulate_published(published, names, options.precision))
    return tables


def _figures(data: ReportData, board: Board, columns: Sequence[str]) -> list[ReportFigure]:
    """Make the figures of what a board's table shows: of its rows, and of its tasks."""
    tasks = [task for task in board.conditions if task in columns]
    rows = {
        method: {task: cell for task, cell in cells.items() if task in tasks}
        for method, cells in board.rows.items()
    }
    same = dataclasses.replace(
        board, rows=rows, conditions={task: board.conditions[task] for task in tasks}
    )
    slug = f"{board.preset}-{board.protocol}"
    made = [
        item
        for content in ACCURACY.contents
        if PAPER in content.outputs
        for item in content.make(data, same, slug)
    ]
    return [item for item in made if isinstance(item, ReportFigure)]


def column_style(width: float) -> AbstractContextManager[None]:
    """Return the context that figures of a column are drawn in, its width in points of TeX."""
    inches = (width - _SLACK) / POINTS_AN_INCH
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
    labels = shorten_legend(drawn) if panels_of(figure) else []
    arrange(drawn)
    name_bubbles(drawn, labels)
    return drawn


def pdf(figure: ReportFigure, width: float) -> bytes:
    """Draw a figure as PDF with TrueType fonts, the same bytes for the same data.

    Args:
        figure: the figure.
        width: in points of TeX.
    """
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    buffer = io.BytesIO()
    with column_style(width), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        FigureCanvasPdf(draw_for_column(figure)).print_pdf(
            buffer, metadata={"CreationDate": None, "Creator": None}
        )
    return buffer.getvalue()


def _document(paper: Paper, width: float) -> str:
    parts = [
        "% `report.py --paper` made this document and will write it again. Include its tables and",
        "% figures in a document of your own. To compile it: pdflatex paper.tex",
        *(f"% Left out: {replace_unknown(line)}" for line in paper.left_out),
        "\\documentclass{article}",
        "\\usepackage{booktabs}",
        "\\usepackage{graphicx}",
        f"\\setlength{{\\textwidth}}{{{width:g}pt}}",
        "\\begin{document}",
        *(f"\\input{{tables/{table.slug}.tex}}" for table in paper.tables),
    ]
    for figure in paper.figures:
        parts += [
            "\\begin{figure}[tbp]",
            "\\centering",
            "\\setlength{\\emergencystretch}{3em}",
            f"\\includegraphics{{figures/{figure.slug}.pdf}}",
            f"\\caption{{{breakable(f'{figure.title}. {figure.caption}')}}}",
            "\\end{figure}",
            "\\clearpage" if figure is paper.figures[-1] else "",
        ]
    return "\n".join([*filter(None, parts), "\\end{document}", ""])
