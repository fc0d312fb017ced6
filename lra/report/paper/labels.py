"""Labels beside the best bubbles of a figure, so that its legend is short."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lra.report.figures.best_rows import rank, rank_in_turn
from lra.report.figures.bubble_names import bubbles_of, centre_of

if TYPE_CHECKING:
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure

MOST_LABELS = 8
"""Most rows of a figure that have labels; the legend names the others."""


def shorten_legend(figure: Figure) -> list[str]:
    """Take the names of the best rows out of the legend of a bubble plot, for labels.

    The rows are the best of each panel in turn, and the ring that others are compared with.

    Returns: the names to label, as they were in the legend.
    """
    panels = [bubbles_of(axes) for axes in figure.axes]
    rings = [n for panel in panels for n, bubble in panel.items() if _is_ring(bubble)]
    heights = [rank({n: centre_of(b)[1] for n, b in panel.items()}, "height") for panel in panels]
    ranked = rank_in_turn([rank(dict.fromkeys(rings, 0.0), "ring"), *heights], "height")
    chosen = list(ranked.best_first[:MOST_LABELS])
    legend = figure.legends[0]
    others = [
        (handle, text.get_text())
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True)
        if text.get_text() not in chosen
    ]
    legend.remove()
    if others:
        handles, names = zip(*others, strict=True)
        figure.legend(handles, names, loc="outside right upper")
    return chosen


def _is_ring(bubble: PathCollection) -> bool:
    return not len(bubble.get_facecolor())
