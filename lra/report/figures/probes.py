"""Accuracy on probes over the width of models, and over the size of their state."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lra.report.boards.board import Board
from lra.report.boards.probes import Probe, Variant
from lra.report.boards.results import Results
from lra.report.boards.slugs import slugify
from lra.report.figures.breakdown import ACCURACY, breakdown_figures
from lra.report.figures.drawing import (
    ReportFigure,
    add_legend,
    new_figure,
    plot_line,
    set_length_scale,
    set_log_scale,
)
from lra.report.figures.styles import MethodStyles, styles_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FIELDS = ("length", "segment")
"""Metadata by which the accuracy on probes is drawn."""

_MOST_TICKS = 7
"""Most sizes of which each has a tick."""

Points = Mapping[str, Sequence[tuple[float, float]]]
"""Points (x, accuracy in percent) of each line, by its row's name apart from the width."""


def probe_figures(results: Results, probe: Probe, styles: MethodStyles) -> list[ReportFigure]:
    """Make the figures of a probe: over width and state, and over length."""
    figures = [f for variant in probe.variants for f in _size_figures(probe, variant, styles)]
    for variant in probe.variants:
        slug = slugify(probe.preset, probe.protocol, variant.name)
        board = _board_of_one_width(probe, variant.board)
        figures += breakdown_figures(results, board, styles, slug, _FIELDS)
    return figures


def _board_of_one_width(probe: Probe, board: Board) -> Board:
    """Leave out rows of other widths than the preset's, which have figures over the width."""
    rows = {row: cells for row, cells in board.rows.items() if probe.families[row] == row}
    return dataclasses.replace(board, rows=rows or board.rows)


def _size_figures(probe: Probe, variant: Variant, styles: MethodStyles) -> list[ReportFigure]:
    """Draw accuracy over two sizes of the models, where a row was measured at several widths."""
    by_width: dict[str, list[tuple[float, float]]] = {}
    by_state: dict[str, list[tuple[float, float]]] = {}
    for row in variant.board.rows:
        cell = probe.cell(row, variant)
        if cell is None or cell.mean is None:
            continue
        family = probe.families[row]
        by_width.setdefault(family, []).append((float(probe.widths[row]), cell.mean))
        states = [run.state_size for run in cell.runs if run.state_size is not None]
        if states:
            by_state.setdefault(family, []).append((statistics.mean(states), cell.mean))
    if max(map(len, by_width.values()), default=0) < 2:  # noqa: PLR2004
        return []
    return [
        ReportFigure(
            slugify("accuracy-over", size, probe.slug, variant.name),
            " ".join(filter(None, [probe.task, variant.name])) + f": accuracy over {size}",
            f"{probe.name}. {what}",
            partial(
                _draw,
                {row: sorted(found) for row, found in points.items()},
                label,
                styles_of(points, styles),
            ),
        )
        for size, what, label, points in (
            ("width", "Mean test accuracy over seeds, by the channels of the model.",
             "width, channels", by_width),
            ("state", "Mean test accuracy over seeds, by the real numbers that a sequence carries "
             "from one position to the next, in all layers. Mixers without a recurrent form, "
             "such as attention, are not drawn.", "state, numbers", by_state),
        )
        if points
    ]  # fmt: skip


def _draw(points: Points, label: str, styles: MethodStyles) -> Figure:
    figure = new_figure(points)
    axes = figure.subplots()
    for row, found in points.items():
        plot_line(axes, row, found, styles[row])
    sizes = {int(x) for found in points.values() for x, _ in found}
    if len(sizes) <= _MOST_TICKS:
        set_length_scale(axes, sizes)
    else:
        set_log_scale(axes, "x")
    axes.set(xlabel=label, ylabel=ACCURACY, ylim=(-3, 103))
    add_legend(figure)
    return figure
