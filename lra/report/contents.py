"""The tables and figures of the blocks in README files, by the name that a block has for them.

A new one takes a function that makes it, and a line in SECTIONS.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lra.report.boards.board import Board
from lra.report.boards.evaluations import evaluation_boards
from lra.report.boards.grids import choose_from_grids
from lra.report.boards.position_bits import Windows, windows_of
from lra.report.boards.probes import Probe
from lra.report.data import ReportData
from lra.report.figures.drawing import ReportFigure
from lra.report.figures.leaderboard import leaderboard_figures
from lra.report.figures.next_tokens import by_position_figures, perplexity_figures
from lra.report.figures.out_of_distribution import evaluation_figures
from lra.report.figures.probes import probe_figures
from lra.report.figures.scaling import scaling_figures
from lra.report.published.rows import published_rows
from lra.report.tables.accuracy import accuracy_table
from lra.report.tables.benchmarks import against_reference
from lra.report.tables.leaderboard import leaderboard
from lra.report.tables.next_tokens import position_table
from lra.report.tables.out_of_distribution import evaluation_tables
from lra.report.tables.position_bits import metadata_tables
from lra.report.tables.probes import probe_tables
from lra.report.tables.published import suite_table
from lra.report.tables.table import Table
from lra.report.tables.training_speed import training_speed_table

Item = Table | ReportFigure
Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Section(Generic[Subject]):
    """Tables and figures of each subject of one kind, such as a board of results."""

    subjects: Callable[[ReportData], Sequence[Subject]]
    contents: Mapping[str, Callable[[ReportData, Subject], Sequence[Item]]]
    """Functions that make tables or figures, by their name in blocks."""

    def make(self, data: ReportData, names: Collection[str]) -> Iterator[Item]:
        """Make the tables and figures of some names; figures are still to be drawn."""
        chosen = [make for name, make in self.contents.items() if name in names]
        for subject in self.subjects(data) if chosen else ():
            for make in chosen:
                yield from make(data, subject)


def _leaderboard(data: ReportData, board: Board) -> list[Table]:
    if board is not data.leading_board:
        return []
    return [leaderboard(board, data.speeds_at_preset(board))]


def _leaderboard_figure(data: ReportData, board: Board) -> list[ReportFigure]:
    if board is not data.leading_board:
        return []
    from lra.report.published.closest import closest_mean

    return leaderboard_figures(board, data.speeds_at_preset(board), data.styles, closest_mean)


def _accuracy(_: ReportData, board: Board) -> list[Table]:
    return [accuracy_table(choose_from_grids(board), f"accuracy-{board.slug}")]


def _evaluations(data: ReportData, board: Board) -> list[Table]:
    return evaluation_tables(data.results, board, board.slug)


def _training_speed(data: ReportData, board: Board) -> list[Table]:
    speeds = data.speeds_at_preset(board)
    is_shown = board is data.leading_board and speeds.by_mixer
    return [training_speed_table(speeds, board.preset)] if is_shown else []


def _first_evaluation_figure(data: ReportData, board: Board) -> list[ReportFigure]:
    boards = evaluation_boards(data.results, board)
    return [f for one in boards for f in evaluation_figures(one, data.styles, board.slug)][:1]


def _bits(_: ReportData, board: Board) -> list[Table]:
    return [position_table(choose_from_grids(board), board.slug)]


def _windows(data: ReportData, board: Board) -> list[Windows]:
    return windows_of(board, evaluation_boards(data.results, board))


def _bits_by_metadata(data: ReportData, board: Board) -> list[Table]:
    return metadata_tables(board, _windows(data, board)[0], board.slug)


def _perplexity_figures(data: ReportData, board: Board) -> list[ReportFigure]:
    boards = evaluation_boards(data.results, board)
    return [f for one in boards for f in perplexity_figures(one, data.styles, board.slug)]


def _position_figures(data: ReportData, board: Board) -> list[ReportFigure]:
    return by_position_figures(board, _windows(data, board)[1:], data.styles, board.slug)


def _probes(data: ReportData, probe: Probe) -> list[Table]:
    return probe_tables(data.results, probe)


def _probe_figures(data: ReportData, probe: Probe) -> list[ReportFigure]:
    return probe_figures(data.results, probe, data.styles)


def _against_reference(_: ReportData, table: Table) -> list[Table]:
    return [table]


def _mixing_over_length(data: ReportData, _: None) -> list[ReportFigure]:
    board = data.mixing_board
    return [] if board is None else scaling_figures(board, data.styles)[:1]


def _published_of_the_suite(_: ReportData, __: None) -> list[Table]:
    return [suite_table([row for row in published_rows() if row.mixer])]


def _reproduce(data: ReportData, _: None) -> list[Table]:
    from lra.report.tables.reproduce import reproduce_table

    return [reproduce_table(data.results)]


def _settings(_: ReportData, __: None) -> list[Table]:
    from lra.report.tables.settings import differences_table

    return [differences_table()]


def _main_boards(data: ReportData) -> list[Board]:
    return [board for board in data.boards if board.is_main]


def _main_position_boards(data: ReportData) -> list[Board]:
    return [board for board in data.position_boards if board.is_main]


def _compared_with_reference(data: ReportData) -> list[Table]:
    table = against_reference(data.results.bench, data.names)
    return [] if table is None else [table]


SECTIONS = (
    Section(_main_boards, {
        "leaderboard": _leaderboard,
        "leaderboard-figure": _leaderboard_figure,
        "accuracy": _accuracy,
        "out-of-distribution": _evaluations,
        "training-speed": _training_speed,
        "first-out-of-distribution-figure": _first_evaluation_figure,
    }),
    Section(_main_position_boards, {
        "bits": _bits,
        "out-of-distribution-bits": _evaluations,
        "bits-by-metadata": _bits_by_metadata,
        "perplexity": _perplexity_figures,
        "by-position-in-longest-windows": _position_figures,
    }),
    Section(lambda data: data.probes, {
        "probes": _probes,
        "figures-of-probes": _probe_figures,
    }),
    Section(_compared_with_reference, {"against-reference": _against_reference}),
    Section(lambda _: [None], {
        "mixing-over-length": _mixing_over_length,
        "published-of-the-suite": _published_of_the_suite,
        "reproduce": _reproduce,
        "settings": _settings,
    }),
)  # fmt: skip
"""What blocks may have, in the order in which a block has it."""


def make_items(data: ReportData, names: Collection[str]) -> list[Item]:
    """Make the tables and figures of a block, by their names."""
    return [item for section in SECTIONS for item in section.make(data, names)]


def item_names() -> list[str]:
    """List the names of all tables and figures that a block may have."""
    return [name for section in SECTIONS for name in section.contents]
