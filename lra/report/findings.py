"""The chapters of the findings in results/README.md and of repeated rows in docs/reproduce.md.

Most are made from a results folder of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lra.record.run import RunRecord
from lra.report.boards.cells import Cell
from lra.report.boards.finding_runs import (
    Conditions,
    beside_leaderboard,
    by_pretraining,
    finding_attempts,
    finding_results,
)
from lra.report.boards.locality import TaskLocality, read_locality
from lra.report.boards.rate_search import RateSearch, shipped_rate_searches
from lra.report.boards.results import Results
from lra.report.chapters import README, ChapterKind, Content, ReportData
from lra.report.figures.conditions import condition_figure
from lra.report.figures.drawing import ReportFigure
from lra.report.figures.learning_rates import rate_figure
from lra.report.figures.locality import locality_figure
from lra.report.figures.repeated_row import Attempt, repeated_row_figure
from lra.report.figures.seeds import seed_figure
from lra.report.tables.leaderboard import rows_at_preset
from lra.report.tables.learning_rates import rate_table

FEWEST_SEEDS = 3
"""Fewest seeds of a mixer that are compared with each other."""


def _by_task(found: Sequence[RateSearch]) -> Iterator[tuple[str, Iterator[RateSearch]]]:
    return itertools.groupby(found, lambda search: search.task)


_LEARNING_RATES: ChapterKind[Sequence[RateSearch]] = ChapterKind(
    lambda _: [found] if (found := shipped_rate_searches()) else [],
    lambda _: "Learning rates",
    lambda _: "learning-rates",
    [
        Content("learning-rates", README, lambda _, found, __: [
            rate_figure(task, list(searches)) for task, searches in _by_task(found)
        ]),
        Content("rates-of-the-leaderboard", README, lambda _, found, __: [
            rate_table(task, list(searches)) for task, searches in _by_task(found)
        ]),
    ],
)  # fmt: skip


def _condition_chapter(
    slug: str,
    title: str,
    caption: str,
    of_leaderboard: str,
    conditions_of: Callable[[Results], Conditions],
) -> ChapterKind[Conditions]:
    """Make the chapter of runs under some conditions, beside those of the leaderboard.

    Args:
        slug: name of the chapter, of its figure, and of the folder of its runs.
        title: title of the figure.
        caption: what the conditions are.
        of_leaderboard: the condition of the leaderboard's runs.
        conditions_of: sorts the chapter's own runs by their condition.
    """

    def read(data: ReportData) -> list[Conditions]:
        results, board = finding_results(slug), data.leading_board
        if results is None or board is None:
            return []
        return [beside_leaderboard(board, of_leaderboard, conditions_of(results))]

    def make_figure(_: ReportData, conditions: Conditions, __: str) -> list[ReportFigure]:
        return [condition_figure(slug, title, caption, conditions)]

    return ChapterKind(read, lambda _: title, lambda _: slug, [Content(slug, README, make_figure)])


_PADDING = _condition_chapter(
    "padding",
    "Accuracy with padding skipped, and mixed in",
    "Preset budget. This suite computes no padded position. Most public code pads each sequence to "
    "the longest one of its batch, and its mixers and batch norm treat the padding like other "
    "positions.",
    "padding skipped",
    lambda results: {"padding mixed in": results.records},
)
_PRETRAINING = _condition_chapter(
    "pretraining-steps",
    "Accuracy after self-pretraining",
    "Preset budget. Models were trained on labels for the same steps. Before that, some learned to "
    "fill in masked inputs, for half, the same or twice the steps. Others were trained on labels "
    "for twice the steps instead.",
    "labels only",
    by_pretraining,
)


def _seeds(data: ReportData) -> list[list[RunRecord]]:
    """Return the leaderboard's runs on Pathfinder of mixers with several seeds."""
    rows = rows_at_preset(data.leading_board) if data.leading_board else {}
    seeds = [
        [run for run in cells.get("pathfinder", Cell()).runs if run.status == "done"]
        for cells in rows.values()
    ]
    runs = [run for runs in seeds if len(runs) >= FEWEST_SEEDS for run in runs]
    return [runs] if runs else []


_SEEDS: ChapterKind[list[RunRecord]] = ChapterKind(
    _seeds,
    lambda _: "Seeds",
    lambda _: "seeds",
    [
        Content("pathfinder-seeds", README, lambda data, runs, __: [
            seed_figure(
                data.results,
                runs,
                slug="pathfinder-seeds",
                title="Seeds on Pathfinder",
                caption="Preset budget. Each line is a seed. Its accuracy is that on training "
                "images, most of which are seen for the first time.",
            )
        ]),
    ],
)  # fmt: skip


def _locality(data: ReportData) -> list[list[TaskLocality]]:
    results, board = finding_results("locality"), data.leading_board
    if results is None or board is None:
        return []
    return [read_locality(results, data.results, rows_at_preset(board))]


_LOCALITY: ChapterKind[list[TaskLocality]] = ChapterKind(
    _locality,
    lambda _: "Locality",
    lambda _: "locality",
    [Content("locality", README, lambda _, tasks, __: [locality_figure(tasks)])],
)


def _repeated_rows(_: ReportData) -> list[list[list[Attempt]]]:
    rows: dict[tuple[str, str], list[Attempt]] = {}
    for results in finding_attempts("repeated-rows"):
        for run in results.records:
            rows.setdefault((run.task, run.mixer), []).append((results, run))
    return [[*rows.values()]] if rows else []


_REPEATED_ROWS: ChapterKind[list[list[Attempt]]] = ChapterKind(
    _repeated_rows,
    lambda _: "Repeated rows",
    lambda _: "repeated-rows",
    [
        Content("repeated-rows", README, lambda _, rows, __: [
            repeated_row_figure(attempts) for attempts in rows
        ]),
    ],
)  # fmt: skip

FINDINGS: Sequence[ChapterKind[Any]] = (
    _LOCALITY, _LEARNING_RATES, _SEEDS, _PADDING, _PRETRAINING, _REPEATED_ROWS,
)  # fmt: skip
"""The chapters, in their order."""
