"""How much the accuracy of each mixer depends on its learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lra.report.boards.rate_search import NAMES, RateSearch
from lra.report.figures.dots import Dot, draw_dots
from lra.report.figures.drawing import ReportFigure


def rate_figure(searches: Sequence[RateSearch]) -> ReportFigure:
    """Draw the accuracies of each mixer at its three learning rates."""
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
        "learning-rates",
        "Accuracy at three learning rates",
        "ListOps, preset budget, a third of its steps, one seed. Each mixer was trained at its own "
        "learning rate, at a third of it, and at three times the rate. The best one is filled.",
        partial(draw_dots, rows, NAMES, "best validation accuracy, %"),
    )
