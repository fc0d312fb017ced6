"""The chapters of the findings in results/README.md, each made from a results folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lra.report.boards.finding_runs import (
    Conditions,
    beside_leaderboard,
    by_pretraining,
    finding_results,
)
from lra.report.boards.locality import TaskLocality, read_locality
from lra.report.boards.rate_search import RateSearch, shipped_rate_searches
from lra.report.boards.results import Results
from lra.report.chapters import README, ChapterKind, Content, ReportData
from lra.report.figures.conditions import condition_figure
from lra.report.figures.learning_rates import rate_figure
from lra.report.figures.locality import locality_figure
from lra.report.figures.seeds import seed_figure
from lra.report.tables.learning_rates import rate_table

_LEARNING_RATES: ChapterKind[Sequence[RateSearch]] = ChapterKind(
    lambda _: [found] if (found := shipped_rate_searches()) else [],
    lambda _: "Learning rates",
    lambda _: "learning-rates",
    [
        Content("learning-rates", README, lambda _, found, __: [rate_figure(found)]),
        Content("rates-of-the-leaderboard", README, lambda _, found, __: [rate_table(found)]),
    ],
)  # fmt: skip


def _padding(data: ReportData) -> list[Conditions]:
    results, board = finding_results("padding"), data.leading_board
    if results is None or board is None:
        return []
    mixed = {"padding mixed in": results.records}
    return [beside_leaderboard(board, "padding skipped", mixed)]


_PADDING: ChapterKind[Conditions] = ChapterKind(
    _padding,
    lambda _: "Padding",
    lambda _: "padding",
    [
        Content("padding", README, lambda _, conditions, __: [
            condition_figure(
                "padding",
                "Accuracy with padding skipped, and mixed in",
                "Preset budget. This suite computes no padded position. Most public "
                "code pads each sequence to the longest one of its batch, and its mixers and batch "
                "norm treat the padding like other positions.",
                conditions,
            )
        ]),
    ],
)  # fmt: skip


def _pretraining(data: ReportData) -> list[Conditions]:
    results, board = finding_results("pretraining"), data.leading_board
    if results is None or board is None:
        return []
    return [beside_leaderboard(board, "labels only", by_pretraining(results))]


_PRETRAINING: ChapterKind[Conditions] = ChapterKind(
    _pretraining,
    lambda _: "Pretraining",
    lambda _: "pretraining",
    [
        Content("pretraining-steps", README, lambda _, conditions, __: [
            condition_figure(
                "pretraining-steps",
                "Accuracy after self-pretraining",
                "Preset budget. All models were trained on labels for the same steps. Before that, "
                "some learned to fill in masked inputs, for half, the same or twice the steps.",
                conditions,
            )
        ]),
    ],
)  # fmt: skip


def _seeds(_: ReportData) -> list[Results]:
    results = finding_results("pathfinder_seeds")
    return [] if results is None else [results]


_SEEDS: ChapterKind[Results] = ChapterKind(
    _seeds,
    lambda _: "Seeds",
    lambda _: "seeds",
    [
        Content("pathfinder-seeds", README, lambda _, results, __: [
            seed_figure(
                results,
                slug="pathfinder-seeds",
                title="Five seeds on Pathfinder",
                caption="Preset budget. Each line is a seed.",
            )
        ]),
    ],
)  # fmt: skip


def _locality(data: ReportData) -> list[list[TaskLocality]]:
    results, board = finding_results("locality"), data.leading_board
    return [] if results is None or board is None else [read_locality(results, board)]


_LOCALITY: ChapterKind[list[TaskLocality]] = ChapterKind(
    _locality,
    lambda _: "Locality",
    lambda _: "locality",
    [Content("locality", README, lambda _, tasks, __: [locality_figure(tasks)])],
)

FINDINGS: Sequence[ChapterKind[Any]] = (
    _LOCALITY, _LEARNING_RATES, _SEEDS, _PADDING, _PRETRAINING,
)  # fmt: skip
"""The chapters, in their order."""
