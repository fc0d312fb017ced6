"""Bubble plots: accuracy, or bits, over speed, memory as area, a panel for each task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lra.report.boards.board import Board
from lra.report.boards.slugs import slugify
from lra.report.figures.bubble_names import name_bubbles
from lra.report.figures.bubble_panels import (
    Bubble,
    Panel,
    average_panels,
    choose_bubbles,
    relative_panels,
    speeds_on,
    task_panels,
)
from lra.report.figures.drawing import (
    ReportFigure,
    add_legend,
    arrange,
    column_width,
    has_outlier,
    legend_name,
    legend_width,
    new_figure,
    set_log_scale,
)
from lra.report.figures.intervals import INTERVALS, SPREAD, draw_intervals
from lra.report.figures.styles import MethodStyles, styles_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST_AREA = 900.0
"""Area of the largest bubble, in square points; it is halved if there are more than MANY."""
MANY = 12
HATCHES = {"full": None, "none": "////", "left": "----", "bottom": "xxxx", "right": "||||"}
"""Patterns of bubbles, by the fill of the row's markers: rows of changed settings have one."""
_PANELS_A_ROW = 3
_LOGARITHMIC = (
    " The axis of speed is logarithmic where the highest speed is more than twice the median."
)


def bubble_figures(
    board: Board, relative_to: str, styles: MethodStyles, slug: str
) -> list[ReportFigure]:
    """Make the bubble plots of a board by the device whose speeds they show, most runs first."""
    devices = [name for name, _ in Counter(sorted(r.device for r in board.records)).most_common()]
    return [
        figure
        for device in devices
        for figure in _bubbles_on(board, device, relative_to, styles, slug)
    ]


def _bubbles_on(
    board: Board, device: str, relative_to: str, styles: MethodStyles, slug: str
) -> list[ReportFigure]:
    speeds = speeds_on(board, device)
    relative = [] if board.of_positions else relative_panels(board, relative_to, speeds)
    measured = board.measures[0].name if board.of_positions else "accuracy"
    bars = SPREAD if board.of_positions else INTERVALS
    made: list[tuple[str, list[Panel], str]] = []
    if relative:
        relative, left_out = choose_bubbles(relative, relative_to)
        made.append((
            f"relative to {relative_to}", relative,
            f"Training speed in examples per second and test accuracy are in percent of "
            f"{relative_to}'s on the same task, as in Figure 1a of the SKI-TNN paper. The ring is "
            f"{relative_to}.{left_out}",
        ))  # fmt: skip
    averaged, by_task = average_panels(board, speeds), task_panels(board, speeds)
    if _rows(by_task) - _rows(averaged):  # averages leave rows out
        averaged = []
    # Panels of tasks would repeat what the relative figure shows.
    if averaged or not relative:
        over = "averages over tasks" if averaged else "by task"
        where = "; ".join(f"{panel.name}: {', '.join(panel.tasks)}" for panel in averaged)
        note = f"Tasks of the {where}. Speeds are geometric means. " if averaged else ""
        panels, left_out = choose_bubbles(averaged or by_task, None)
        note += f"The axes are those of Figure 3 of the Long Range Arena paper.{left_out}"
        made.append((over, panels, note))
    return [
        ReportFigure(
            slugify("speed-and", measured, what, slug, device),
            f"Speed and {measured}, {what}, on {device}",
            f"{board.name}. The area of a circle is the peak memory of training. {note} {bars}"
            + _LOGARITHMIC * any(has_outlier([b.x for b in panel.bubbles]) for panel in panels),
            partial(
                draw_bubbles,
                panels,
                _styles_of(panels, styles),
                relative_to if panels is relative else None,
            ),
            is_wide=len(panels) > 1,
        )
        for what, panels, note in made
        if panels
    ]


def _rows(panels: Sequence[Panel]) -> set[str]:
    return {bubble.method for panel in panels for bubble in panel.bubbles}


def _styles_of(panels: Sequence[Panel], styles: MethodStyles) -> MethodStyles:
    return styles_of((bubble.method for panel in panels for bubble in panel.bubbles), styles)


def draw_bubbles(
    panels: Sequence[Panel],
    styles: MethodStyles,
    relative_to: str | None = None,
    *,
    has_names: bool = False,
) -> Figure:
    """Draw panels of bubbles side by side.

    Args:
        panels: the panels.
        styles: colours and patterns of the rows.
        relative_to: the row that is a ring, with lines through 100 %; None if there is none.
        has_names: whether names are beside the bubbles, and not in a legend.
    """
    everything = [bubble for panel in panels for bubble in panel.bubbles]
    in_legend = () if has_names else {bubble.method for bubble in everything}
    figure, every_axes = _make_axes(panels, in_legend)
    scale = area_per_mib(everything, most=max(len(panel.bubbles) for panel in panels))
    for axes, panel in zip(every_axes, panels, strict=True):
        _scatter(axes, panel, scale, styles, relative_to)
        if relative_to is not None:
            axes.axvline(100, color="#999999", linewidth=0.8, zorder=0.9)
            axes.axhline(100, color="#999999", linewidth=0.8, zorder=0.9)
        is_logarithmic = has_outlier([bubble.x for bubble in panel.bubbles])
        if is_logarithmic:
            axes.set_xscale("log")
        else:
            axes.locator_params(axis="x", nbins=5)
        _leave_room(axes, panel.bubbles)
        if is_logarithmic:
            set_log_scale(axes, "x")
        axes.set_title(panel.name, fontsize=10)
        axes.set_xlabel(f"training speed, {panel.unit}")
        place = axes.get_subplotspec()
        if place is not None and place.is_first_col():
            axes.set_ylabel(panel.measured)
    for handle in () if has_names else add_legend(figure):
        handle.set_sizes([40])
    _add_legend_of_sizes(every_axes[0], max(bubble.memory for bubble in everything), scale)
    if has_names:
        arrange(figure)
        name_bubbles(figure, [*dict.fromkeys(legend_name(b.method) for b in everything)])
    return figure


_SIZES_HEIGHT = 0.9
"""Inches below the panels for the legend of areas."""
_NARROW_LEGEND = 4.0
"""Inches of a figure below which its legend of areas has two areas instead of three."""
_NARROW_PANEL, _LOW_PANEL = 1.7, 2.4
"""Inches of the narrowest panel, and of the highest one, where a column limits the figure."""
_MOST_ROWS, _HIGHEST = 3, 6.4
"""Most rows of panels, and inches of all of them, that fit a page of such a column."""


def _make_axes(panels: Sequence[Panel], names: Collection[str]) -> tuple[Figure, list[Axes]]:
    """Make a figure with axes for panels, up to three in a row; four are two by two."""
    count = len(panels)
    columns = min(_PANELS_A_ROW, count if count <= _PANELS_A_ROW else math.ceil(count / 2))
    crowded = max(len(panel.bubbles) for panel in panels) > MANY
    width, height = (4.6, 3.9) if crowded or count == 1 else (3.5, 3.2)
    right = legend_width(names) if names else 0.0
    if (limit := column_width()) is not None:
        fitting = int((limit - right) // _NARROW_PANEL)
        columns = min(columns, max(fitting, math.ceil(count / _MOST_ROWS)))
        height = min(height, _LOW_PANEL, _HIGHEST / math.ceil(count / columns))
    rows = math.ceil(count / columns)
    figure = new_figure(names, width=width * columns + right, height=height * rows + _SIZES_HEIGHT)
    every = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in every[count:]:
        axes.set_visible(False)
    return figure, list(every[:count])


def _scatter(
    axes: Axes, panel: Panel, scale: float, styles: MethodStyles, relative_to: str | None
) -> None:
    for bubble in panel.bubbles:
        # What the others are compared with is a ring: it hides none of them.
        colour, ring = styles[bubble.method]["color"], bubble.method == relative_to
        axes.scatter(
            [bubble.x],
            [bubble.y],
            s=[scale * bubble.memory],
            facecolor="none" if ring else colour,
            alpha=1.0 if ring else 0.8,
            edgecolor=colour if ring else "white",
            hatch=None if ring else HATCHES[styles[bubble.method]["fillstyle"]],
            label=legend_name(bubble.method),
        )
        if bubble.interval is not None:
            points = [(bubble.x, bubble.y)]
            draw_intervals(axes, points, [bubble.interval], colour)


def area_per_mib(bubbles: Sequence[Bubble], *, most: int) -> float:
    """Return the square points that stand for a MiB of memory, if a panel has up to `most`."""
    largest = LARGEST_AREA / (2 if most > MANY else 1)
    return largest / max(bubble.memory for bubble in bubbles)


def _leave_room(axes: Axes, bubbles: list[Bubble]) -> None:
    """Widen the limits so that bubbles and labels fit."""
    for values, axis, setter in (
        ([b.x for b in bubbles], axes.xaxis, axes.set_xlim),
        ([y for b in bubbles for y in (b.y, *(b.interval or ()))], axes.yaxis, axes.set_ylim),
    ):
        scaled = axis.get_transform().transform(np.array(values))
        low, high = float(scaled.min()), float(scaled.max())
        margin = 0.18 * (high - low) or 0.1 * abs(high) or 1.0
        limits = axis.get_transform().inverted().transform(np.array([low - margin, high + margin]))
        setter(*limits)
        if axis.get_scale() != "log":  # room, but neither speed nor accuracy is negative
            axis.set_ticks([tick for tick in axis.get_ticklocs() if 0 <= tick <= limits[1]])
            axis.set_view_interval(*limits, ignore=True)


def _add_legend_of_sizes(axes: Axes, largest: float, scale: float) -> None:
    """Show below the panels what memory some areas stand for."""
    is_narrow = (column_width() or math.inf) < _NARROW_LEGEND
    shares = (1.0, 0.25) if is_narrow else (1.0, 0.5, 0.25)
    sizes = dict.fromkeys(round_number(largest * share) for share in shares)
    handles = [axes.scatter([], [], s=scale * size, color="#bbbbbb") for size in sizes]
    names = [f"{size:,.0f} MiB" for size in sizes]
    names[0] = f"peak memory {names[0]}"
    axes.figure.legend(
        handles, names, loc="outside lower center", ncols=len(names), borderpad=1.5,
        handletextpad=1.6,
    )  # fmt: skip


def round_number(value: float) -> float:
    """Round to one digit of 1, 2 or 5, downwards."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(step for step in (1, 2, 5, 10) if step * power <= value * (1 + 1e-9)) * power
