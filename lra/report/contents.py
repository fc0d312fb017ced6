"""The list of what the report shows: chapters, their tables and figures, and where each appears.

A new table or figure takes a function that makes it, and a line in a list here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lra.report.boards.board import Board
from lra.report.boards.comparison import Comparisons
from lra.report.boards.evaluations import EvaluationBoard, evaluation_boards
from lra.report.boards.grids import choose_from_grids
from lra.report.boards.position_bits import Windows, windows_of
from lra.report.boards.probes import Probe
from lra.report.boards.speeds import SpeedBoard
from lra.report.chapters import PAGE, README, ChapterKind, Content, ReportData
from lra.report.figures.breakdown import breakdown_figures
from lra.report.figures.bubbles import bubble_figures
from lra.report.figures.curves import curve_figures
from lra.report.figures.drawing import ReportFigure
from lra.report.figures.kernels import kernel_figures
from lra.report.figures.layers import layer_figures
from lra.report.figures.leaderboard import leaderboard_figures
from lra.report.figures.next_tokens import by_position_figures, perplexity_figures
from lra.report.figures.out_of_distribution import evaluation_figures
from lra.report.figures.probes import probe_figures
from lra.report.figures.scaling import scaling_figures
from lra.report.published.rows import published_rows
from lra.report.tables.accuracy import accuracy_table
from lra.report.tables.benchmarks import against_reference, benchmark_tables
from lra.report.tables.comparison import comparison_table
from lra.report.tables.equal_time import equal_time_table
from lra.report.tables.leaderboard import leaderboard
from lra.report.tables.next_tokens import position_table
from lra.report.tables.out_of_distribution import evaluation_tables
from lra.report.tables.position_bits import metadata_tables, position_tables
from lra.report.tables.probes import probe_tables
from lra.report.tables.published import perplexity_table, published_table, suite_table
from lra.report.tables.speed import speed_and_memory_tables
from lra.report.tables.table import Table
from lra.report.tables.training_speed import training_speed_table

BENCHMARKS = "Benchmarks"
"""Heading under which the page folds the chapters of measurements."""


def _preset(board: Board) -> str:
    return f"Preset {board.preset}"


def _evaluated(data: ReportData, board: Board) -> list[EvaluationBoard]:
    return evaluation_boards(data.results, board)


def _windows(data: ReportData, board: Board) -> list[Windows]:
    return windows_of(board, _evaluated(data, board))


def _make_leaderboard(data: ReportData, board: Board, _: str) -> list[Table]:
    if board is not data.leading_board:
        return []
    return [leaderboard(board, data.speeds_at_preset(board))]


def _make_leaderboard_figures(data: ReportData, board: Board, _: str) -> list[ReportFigure]:
    if board is not data.leading_board:
        return []
    from lra.report.published.closest import closest_mean

    return leaderboard_figures(board, data.speeds_at_preset(board), data.styles, closest_mean)


def _make_training_speed_table(data: ReportData, board: Board, _: str) -> list[Table]:
    if board is not data.leading_board:
        return []
    speeds = data.speeds_at_preset(board)
    return [training_speed_table(speeds, board.preset)] if speeds.by_mixer else []


def _make_equal_time_table(data: ReportData, board: Board, _: str) -> list[Table]:
    table = equal_time_table(data.results, board, data.speeds_at_preset(board))
    return [] if table is None else [table]


def _make_evaluation_figures(data: ReportData, board: Board, slug: str) -> list[ReportFigure]:
    return [
        figure
        for evaluated in _evaluated(data, board)
        for figure in evaluation_figures(evaluated, data.styles, slug)
    ]


def _make_perplexity_figures(data: ReportData, board: Board, slug: str) -> list[ReportFigure]:
    return [
        figure
        for evaluated in _evaluated(data, board)
        for figure in perplexity_figures(evaluated, data.styles, slug)
    ]


def _make_speed_tables(data: ReportData, found: Sequence[SpeedBoard], _: str) -> list[Table]:
    return [t for board in found for t in speed_and_memory_tables(board, data.relative_to)]


def _make_perplexity_table(data: ReportData, _: str, __: str) -> list[Table]:
    tasks = {task for board in data.position_boards for task in board.tasks}
    table = None if data.options.published is not None else perplexity_table(tasks)
    return [] if table is None else [table]


def _make_reproduce_table(data: ReportData, _: str, __: str) -> list[Table]:
    from lra.report.tables.reproduce import reproduce_table

    return [reproduce_table(data.results)]


def _make_settings_table(_: ReportData, __: str, ___: str) -> list[Table]:
    from lra.report.tables.settings import differences_table

    return [differences_table()]


_COMPARISON: ChapterKind[Comparisons] = ChapterKind(
    lambda data: [] if data.comparisons is None else [data.comparisons],
    lambda _: "Comparison",
    lambda _: "comparison",
    [
        Content("compare", PAGE, lambda _, made, __: [comparison_table(made, "compare")]),
    ],
)  # fmt: skip

_ACCURACY: ChapterKind[Board] = ChapterKind(
    lambda data: data.boards,
    lambda board: board.name,
    lambda board: board.slug,
    [
        Content("leaderboard", README, _make_leaderboard),
        Content("leaderboard-figure", README, _make_leaderboard_figures),
        Content("equal-time", PAGE | README, _make_equal_time_table),
        Content("accuracy", PAGE | README, lambda _, board, slug: [
            accuracy_table(choose_from_grids(board), f"accuracy-{slug}")
        ]),
        Content("out-of-distribution", PAGE | README, lambda data, board, slug: (
            evaluation_tables(data.results, board, slug)
        )),
        Content("training-speed", README, _make_training_speed_table),
        Content("bubbles", PAGE, lambda data, board, slug: (
            bubble_figures(board, data.relative_to, data.styles, slug)
        )),
        Content("curves", PAGE, lambda data, board, slug: (
            curve_figures(data.results, board, data.styles, slug)
        )),
        Content("breakdown", PAGE, lambda data, board, slug: (
            breakdown_figures(data.results, board, data.styles, slug)
        )),
        Content("out-of-distribution-figures", PAGE, _make_evaluation_figures),
        Content("first-out-of-distribution-figure", README, lambda data, board, slug: (
            _make_evaluation_figures(data, board, slug)[:1]
        )),
        Content("kernels", PAGE, lambda data, board, slug: (
            kernel_figures(data.results, board, slug)
        )),
    ],
    tab=_preset,
    is_main=lambda board: board.is_main,
)  # fmt: skip
"""Boards of results whose targets are examples."""

_NEXT_TOKENS: ChapterKind[Board] = ChapterKind(
    lambda data: data.position_boards,
    lambda board: board.name,
    lambda board: board.slug,
    [
        Content("bits", PAGE | README, lambda _, board, slug: [
            position_table(choose_from_grids(board), slug)
        ]),
        Content("out-of-distribution-bits", PAGE | README, lambda data, board, slug: (
            evaluation_tables(data.results, board, slug)
        )),
        Content("bits-by-position", PAGE, lambda data, board, slug: (
            position_tables(board, _windows(data, board), slug)
        )),
        Content("bits-by-metadata", PAGE | README, lambda data, board, slug: (
            metadata_tables(board, _windows(data, board)[0], slug)
        )),
        Content("perplexity", PAGE | README, _make_perplexity_figures),
        Content("by-position", PAGE, lambda data, board, slug: (
            by_position_figures(board, _windows(data, board), data.styles, slug)
        )),
        Content("by-position-in-longest-windows", README, lambda data, board, slug: (
            by_position_figures(board, _windows(data, board)[1:], data.styles, slug)
        )),
        Content("bubbles-of-next-tokens", PAGE, lambda data, board, slug: (
            bubble_figures(board, data.relative_to, data.styles, slug)
        )),
        Content("curves-of-next-tokens", PAGE, lambda data, board, slug: (
            curve_figures(data.results, board, data.styles, slug)
        )),
        Content("kernels-of-next-tokens", PAGE, lambda data, board, slug: (
            kernel_figures(data.results, board, slug)
        )),
    ],
    prefix="next-tokens",
    tab=_preset,
    is_main=lambda board: board.is_main,
)  # fmt: skip

_PROBES: ChapterKind[Probe] = ChapterKind(
    lambda data: data.probes,
    lambda probe: probe.name,
    lambda probe: probe.slug,
    [
        Content("probes", PAGE | README, lambda data, probe, _: probe_tables(data.results, probe)),
        Content("figures-of-probes", PAGE | README, lambda data, probe, _: (
            probe_figures(data.results, probe, data.styles)
        )),
    ],
    prefix="probe",
    tab=lambda _: "Probes",
)  # fmt: skip
"""Tasks that each ask for one ability, apart from the benchmark."""

_SPEED: ChapterKind[Sequence[SpeedBoard]] = ChapterKind(
    lambda data: [data.speed_boards] if data.speed_boards else [],
    lambda _: "Speed and memory",
    lambda _: "speed",
    [
        Content("speed-and-memory", PAGE, _make_speed_tables),
        Content("speed-over-length", PAGE, lambda data, found, _: [
            figure for board in found for figure in scaling_figures(board, data.styles)
        ]),
    ],
)  # fmt: skip

_AGAINST_REFERENCE: ChapterKind[Table] = ChapterKind(
    lambda data: [t] if (t := against_reference(data.results.bench, data.names)) else [],
    lambda table: table.title,
    lambda _: "benchmarks",
    [Content("against-reference", PAGE | README, lambda _, table, __: [table])],
    folded_under=BENCHMARKS,
)

_LAYERS: ChapterKind[Sequence[ReportFigure]] = ChapterKind(
    lambda data: [f] if (f := layer_figures(data.results.bench, data.names, data.styles)) else [],
    lambda _: "Speed over a setting",
    lambda _: "pretraining",
    [Content("layers", PAGE, lambda _, figures, __: figures)],
    folded_under=BENCHMARKS,
)

_BENCHMARKS: ChapterKind[SpeedBoard] = ChapterKind(
    lambda data: data.bench_boards,
    lambda board: f"{board.title}, {board.device}",
    lambda board: board.slug,
    [
        Content("benchmark", PAGE, lambda data, board, _: (
            benchmark_tables(board, data.relative_to)
        )),
        Content("benchmark-over-length", PAGE, lambda data, board, _: (
            scaling_figures(board, data.styles)
        )),
        Content("mixing-over-length", README, lambda data, board, _: (
            scaling_figures(board, data.styles)[:1] if board is data.mixing_board else []
        )),
    ],
    folded_under=BENCHMARKS,
)  # fmt: skip

_PUBLISHED: ChapterKind[str] = ChapterKind(
    lambda data: ["published-results"] if data.published else [],
    lambda _: "Published",
    lambda slug: slug,
    [
        Content("published", PAGE, lambda data, _, __: [published_table(data.published)]),
        Content("published-perplexities", PAGE, _make_perplexity_table),
        Content("published-of-the-suite", README, lambda _, __, ___: [
            suite_table([row for row in published_rows() if row.mixer])
        ]),
        Content("reproduce", README, _make_reproduce_table),
        Content("settings", README, _make_settings_table),
    ],
)  # fmt: skip

CHAPTERS: Sequence[ChapterKind[Any]] = (
    _COMPARISON, _ACCURACY, _NEXT_TOKENS, _PROBES, _SPEED, _AGAINST_REFERENCE, _LAYERS, _BENCHMARKS,
    _PUBLISHED,
)  # fmt: skip
"""The chapters of the report, in their order."""
