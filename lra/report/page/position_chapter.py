"""The chapter of a board whose targets are positions, and what of it stands in README files."""

from __future__ import annotations

from lra.report.boards.board import Board
from lra.report.boards.evaluations import evaluation_boards
from lra.report.boards.position_bits import windows_of
from lra.report.boards.results import Results
from lra.report.boards.slugs import slugify
from lra.report.figures.bubbles import bubble_figures
from lra.report.figures.curves import curve_figures
from lra.report.figures.drawing import Looks
from lra.report.figures.kernels import kernel_figures
from lra.report.figures.next_tokens import by_position_figures, perplexity_figures
from lra.report.page.page import Chapter
from lra.report.tables.next_tokens import position_table
from lra.report.tables.out_of_distribution import evaluation_tables
from lra.report.tables.position_bits import metadata_tables, position_tables


def position_chapter(results: Results, board: Board, relative_to: str, looks: Looks) -> Chapter:
    """Make all tables and figures of a board; figures are still to be drawn."""
    slug = slugify(board.preset, board.protocol, board.reason)
    evaluated = evaluation_boards(results, board)
    windows = windows_of(board, evaluated)
    return Chapter(
        slugify("next-tokens", *board.tasks, slug),
        board.name,
        [
            position_table(board, slug),
            *evaluation_tables(results, board, slug),
            *position_tables(board, windows, slug),
            *metadata_tables(board, windows[0], slug),
        ],
        [
            *(figure for one in evaluated for figure in perplexity_figures(one, looks, slug)),
            *by_position_figures(board, windows, looks, slug),
            *bubble_figures(board, relative_to, looks, slug),
            *curve_figures(results, board, looks, slug),
            *kernel_figures(results, board, slug),
        ],
    )
