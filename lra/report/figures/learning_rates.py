"""How much the accuracy of each mixer depends on its learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lra.report.boards.rate_search import NAMES, RateSearch, describe_rates
from lra.report.figures.dots import Dot, draw_dots
from lra.report.figures.drawing import ReportFigure


def rate_figure(task: str, searches: Sequence[RateSearch]) -> ReportFigure:
    """Draw the accuracies of each mixer at its three learning rates.

    Args:
        task: the task that all searches were made on.
        searches: the searches, in the order of the rows.
    """
    rows = [
        (
            search.mixer,
            [
                Dot(condition, accuracy, f"{rate:g}", is_filled=rate == search.best_rate)
                for condition, (rate, accuracy) in enumerate(
                    zip(search.rates, search.accuracies, strict=True)
                )
            ],
        )
        for search in searches
    ]
    return ReportFigure(
        f"learning-rates-{task}",
        f"Accuracy at three learning rates on {task}",
        f"Preset budget, a third of its steps, one seed. {describe_rates(task)} The marker of the "
        "best rate is filled.",
        partial(draw_dots, rows, NAMES, "best validation accuracy, %"),
    )
