"""Accuracy over the width of convolutions, with full mixers as lines: how local a task is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lra.report.boards.locality import CONVOLUTION, TaskLocality
from lra.report.figures.drawing import (
    ReportFigure,
    add_legend,
    legend_width,
    new_figure,
    plot_line,
    set_length_scale,
)
from lra.report.figures.series import describe, mark
from lra.report.figures.styles import MethodStyles, assign_styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANELS_A_ROW = 3
_PANEL = 2.7, 2.4
"""Width and height of the panel of a task, in inches."""
_LABEL = "test accuracy, %"
_PERMUTED = "shuffled pixels"
_BEST = "best mixer"


def locality_figure(tasks: Sequence[TaskLocality]) -> ReportFigure:
    """Draw the accuracy of convolutions over their width, a panel for each task."""
    rows = dict.fromkeys([CONVOLUTION, *(mixer for one in tasks for mixer in one.mixers)])
    return ReportFigure(
        "locality",
        "How far a model has to see",
        "Preset budget. Each panel has the accuracy of short convolutions over the width of their "
        "filters, in positions; a model of several blocks sees several times as far. Horizontal "
        "lines are mixers that see the whole sequence; the dotted one is the best mixer of the "
        "leaderboard. Dashed: the pixels of all images are shuffled by one fixed permutation.",
        partial(_draw, tasks, assign_styles([*rows])),
        is_wide=True,
    )


def _draw(tasks: Sequence[TaskLocality], styles: MethodStyles) -> Figure:
    width, height = _PANEL
    columns = min(len(tasks), _PANELS_A_ROW)
    rows = math.ceil(len(tasks) / columns)
    names = [*styles, _BEST]
    total = width * columns + legend_width(names)
    figure = new_figure(names, width=total, height=height * rows)
    every = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in every[len(tasks) :]:
        axes.set_visible(False)
    for axes, one in zip(every, tasks, strict=False):
        if one.best is not None:
            best, value = one.best
            line = axes.axhline(
                value, color="black", linestyle=":", linewidth=1.8, label=_BEST, zorder=3
            )
            mark(line, _BEST, [f"{best}: {describe(_LABEL, value)}"])
        _draw_task(axes, one.convolutions, one.mixers, styles, "-")
        _draw_task(axes, one.permuted_convolutions, one.permuted_mixers, styles, "--")
        set_length_scale(axes, one.convolutions)
        axes.set_xlabel("width of the convolution")
        axes.set_title(one.task, fontsize=10)
    for axes in every[::columns]:
        axes.set_ylabel(_LABEL)
    add_legend(figure)
    return figure


def _draw_task(
    axes: Axes,
    convolutions: Mapping[int, float],
    mixers: Mapping[str, float],
    styles: MethodStyles,
    line_style: str,
) -> None:
    """Draw a task with its pixels in one order."""
    order = "" if line_style == "-" else f", {_PERMUTED}"
    if convolutions:
        points = sorted((float(width), value) for width, value in convolutions.items())
        texts = [f"width {x:.0f}{order}: {describe(_LABEL, y)}" for x, y in points]
        style = {**styles[CONVOLUTION], "linestyle": line_style}
        plot_line(axes, CONVOLUTION, points, style, texts=texts)
    for mixer, value in mixers.items():
        line = axes.axhline(
            value, color=styles[mixer]["color"], linestyle=line_style, linewidth=1.2, label=mixer
        )
        mark(line, mixer, [f"{mixer}{order}: {describe(_LABEL, value)}"])
