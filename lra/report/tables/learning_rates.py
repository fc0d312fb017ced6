"""The accuracy of each mixer at its learning rates, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from lra.report.boards.rate_search import NAMES, RateSearch, describe_rates
from lra.report.tables.table import Column, Table, name_column, number_entry, text_column


def rate_table(task: str, searches: Sequence[RateSearch]) -> Table:
    """Tabulate the accuracies, and the learning rate that the leaderboard uses.

    Args:
        task: the task that all searches were made on.
        searches: the searches, in the order of the rows.
    """
    columns = [
        Column(name, [number_entry(search.accuracies[i], 1) for search in searches], digits=1)
        for i, name in enumerate(NAMES)
    ]
    return Table(
        slug=f"learning-rates-{task}",
        title=f"Learning rates on {task}",
        caption=f"{describe_rates(task)} Numbers are validation accuracies in percent at preset "
        "budget, after a third of its steps. results/README.md says on which tasks the "
        "leaderboard uses the best rate.",
        columns=[
            name_column("mixer", [search.mixer for search in searches]),
            *columns,
            text_column("best rate", [f"{search.best_rate:g}" for search in searches]),
        ],
    )
