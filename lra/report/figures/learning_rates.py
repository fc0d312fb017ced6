"""How much the accuracy of each mixer depends on its learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from lra.report.boards.rate_search import NAMES, RateSearch
from lra.report.figures.drawing import ReportFigure, new_figure
from lra.report.figures.series import describe, mark

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = ("v", "o", "^")
_LABEL = "best validation accuracy, %"


def rate_figure(searches: Sequence[RateSearch]) -> ReportFigure:
    """Draw the accuracies of each mixer at its three learning rates."""
    return ReportFigure(
        "learning-rates",
        "Accuracy at three learning rates",
        "ListOps, preset budget, a third of its steps, one seed. Each mixer has its own learning "
        "rate (circle), a third of it (triangle down) and three times the rate (triangle up). "
        "The best of the three is filled.",
        partial(_draw, searches),
    )


def _draw(searches: Sequence[RateSearch]) -> Figure:
    figure = new_figure(height=0.6 + 0.19 * len(searches))
    axes = figure.subplots()
    for row, search in enumerate(searches):
        low, high = min(search.accuracies), max(search.accuracies)
        axes.plot([low, high], [row, row], color="#bbbbbb", linewidth=1.5, zorder=1)
        for rate, accuracy, name, marker in zip(
            search.rates, search.accuracies, NAMES, _MARKERS, strict=True
        ):
            is_best = rate == search.best_rate
            (point,) = axes.plot(
                [accuracy], [row], marker=marker, markersize=5.5, linestyle="none",
                markerfacecolor="#1f5fa8" if is_best else "white", markeredgecolor="#1f5fa8",
                label=name if row == 0 else None,
            )  # fmt: skip
            mark(point, search.mixer, [f"{rate:g}: {describe(_LABEL, accuracy)}"])
    axes.set_yticks(range(len(searches)), [search.mixer for search in searches])
    axes.invert_yaxis()
    axes.set_xlabel(_LABEL)
    return figure
