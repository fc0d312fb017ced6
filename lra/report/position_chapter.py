"""The chapter of a board whose targets are positions, and what of it stands in README files."""

from __future__ import annotations

from lra.report.boards import Board
from lra.report.bubbles import bubble_figures
from lra.report.curves import curve_figures
from lra.report.drawing import Looks, slugify
from lra.report.kernels import kernel_figures
from lra.report.out_of_distribution import evaluation_boards, evaluation_tables
from lra.report.page import Chapter
from lra.report.position_figures import by_position_figures, perplexity_figures
from lra.report.position_parts import metadata_tables, position_tables, windows_of
from lra.report.positions import position_table
from lra.report.results import Results


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
