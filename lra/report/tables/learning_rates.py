"""The accuracy of each mixer at its learning rates, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from lra.report.boards.rate_search import NAMES, RateSearch
from lra.report.tables.table import Column, Table, name_column, number_entry, text_column


def rate_table(searches: Sequence[RateSearch]) -> Table:
    """Tabulate the accuracies, and the learning rate that the leaderboard uses."""
    columns = [
        Column(
            name,
            [number_entry(search.accuracies[i], 1) for search in searches],
            digits=1,
        )
        for i, name in enumerate(NAMES)
    ]
    return Table(
        slug="learning-rates",
        title="Learning rates",
        caption="Best validation accuracy in percent on ListOps at preset budget after a third of "
        "its steps, at a third of each mixer's own learning rate, at this rate, and at three times "
        "the rate; and the rate with the best accuracy, which the leaderboard has.",
        columns=[
            name_column("mixer", [search.mixer for search in searches]),
            *columns,
            text_column("best rate", [f"{search.best_rate:g}" for search in searches]),
        ],
    )
