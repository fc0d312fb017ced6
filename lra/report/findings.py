"""The chapters of the findings in results/README.md, each made from a results folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lra.report.boards.rate_search import RateSearch, shipped_rate_searches
from lra.report.chapters import README, ChapterKind, Content
from lra.report.figures.learning_rates import rate_figure
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

FINDINGS: Sequence[ChapterKind[Any]] = (_LEARNING_RATES,)
"""The chapters, in their order."""
