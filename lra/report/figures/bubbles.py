"""Bubble plots: accuracy, or bits, over speed, with memory as area and a panel for each task."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lra.report.boards import Board, rows_at_preset
from lra.report.data import Data
from lra.report.figures.drawing import (
    LEGEND_LINE,
    ReportFigure,
    arrange,
    column_width,
    draw_intervals,
    legend_name,
    new_figure,
    set_log_scale,
)
from lra.report.points import Bubbles, Point, bubbles_of_board, has_outlier, number_of
from lra.report.published import closest_mean
from lra.report.scores import FIVE, Interval
from lra.report.styles import RowStyles, styles_of
from lra.report.tables.speeds import preset_speeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

LARGEST_AREA = 700.0
"""Area of the largest bubble, in square points; it is halved if there are more than MANY."""
MANY = 12
HATCHES = {"full": None, "none": "////", "left": "----", "bottom": "xxxx", "right": "||||"}
"""Patterns of bubbles, by the fill of the row's markers: rows of changed settings have one."""
_PANELS_A_ROW = 3
_NARROWEST, _HIGHEST = 2.2, 7.0
"""Inches of the narrowest panel, and of all panels, where a column limits the figure."""
_GAPS = (1, 5, 10, 16)
"""Distances of a name to its bubble, in points."""
_MOST_HIDDEN = 3
"""Most points of bubbles and bars that a name may hide."""
_ANGLES = np.linspace(0, 2 * np.pi, 16, endpoint=False)
_DIRECTIONS = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)


@dataclass(frozen=True)
class Bubble:
    """A bubble: x and y in the units of the axes, memory in MiB."""

    row: str
    x: float
    y: float
    memory: float
    interval: Interval | None = None
    """Lower and upper end on the y axis; None where it is not known."""


@dataclass(frozen=True)
class Panel:
    """Accuracy, or bits, over speed."""

    title: str
    bubbles: Sequence[Bubble]
    x: str
    y: str


def bubble_figures(data: Data, board: Board, styles: RowStyles) -> list[ReportFigure]:
    """Draw what each row scores over its speed, a panel for each task and average.

    Speeds are those that were measured at the preset, if there are any, or else those of the runs
    on the device that made most of them.
    """
    found = bubbles_of_board(data, board)
    fields = {one.name: one.title for one in found.fields}
    chosen = [
        (x, size)
        for x, size in (("relative", "measured_memory"), ("speed0", "memory0"))
        if x in fields and size in fields
    ]
    for x, size in chosen:
        panels = [
            Panel(panel, bubbles, fields[x].partition(", on ")[0], fields["score"])
            for panel in found.panels
            if len(bubbles := _bubbles_of(found, panel, x, size)) > 1
        ]
        if panels:
            drawn = {bubble.row for panel in panels for bubble in panel.bubbles}
            left_out = [row for row in board.rows if row not in drawn]
            missing = f" Not drawn, without a result or a speed: {', '.join(left_out)}."
            speed = fields[x][:1].upper() + fields[x][1:]
            return [
                ReportFigure(
                    f"bubbles-{board.slug}",
                    "Accuracy over training speed",
                    f"{board.name}. {speed}. The area of a circle is the "
                    f"{fields[size].partition(', MiB')[0]}. Names without room are left out. Bars "
                    f"show the standard deviation over seeds or, for a single seed, the 95 % "
                    f"interval (Wilson) of its test accuracy."
                    f"{missing * bool(left_out)}",
                    partial(draw_bubbles, panels, styles_of(drawn, styles)),
                    is_wide=len(panels) > 1,
                )
            ]
    return []


def _bubbles_of(found: Bubbles, panel: str, x: str, size: str) -> list[Bubble]:
    made: list[Bubble] = []
    for point in found.points:
        numbers = [number_of(point, name) for name in (x, "score", size)]
        if point["panel"] == panel and None not in numbers:
            place, score, memory = (number or 0.0 for number in numbers)
            made.append(Bubble(str(point["row"]), place, score, memory, _interval_of(point)))
    return made


def _interval_of(point: Point) -> Interval | None:
    low, high = number_of(point, "low"), number_of(point, "high")
    return None if low is None or high is None else (low, high)


def leaderboard_figures(data: Data, board: Board, styles: RowStyles) -> list[ReportFigure]:
    """Draw the mean accuracy of each row of the leaderboard over its measured training speed.

    A second panel has the published means of the same mixers over the same speeds.

    Returns: the figure; none if fewer than two rows have a mean and a speed.
    """
    rows = rows_at_preset(board)
    found = bubbles_of_board(data, dataclasses.replace(board, rows=rows))
    speeds = preset_speeds(data.bench, board.preset, board.protocol, data.relative_to)
    measured = _bubbles_of(found, "mean of 5", "relative", "measured_memory")
    if len(measured) < 2:  # noqa: PLR2004
        return []
    published = [
        dataclasses.replace(bubble, y=mean, interval=None)
        for bubble in measured
        if (mean := closest_mean(rows[bubble.row][FIVE[0]].runs[0])) is not None
    ]
    x = f"training speed, {speeds.relative_to} = 1"
    panels = [Panel(f"measured here: preset {board.preset}", measured, x, "mean accuracy, %")]
    if len(published) > 1:
        panels.append(Panel("published: full size", published, x, "mean accuracy, %"))
    drawn = {bubble.row for bubble in measured}
    left_out = ", ".join(row for row in rows if row not in drawn)
    parts = [
        f"Each circle is a mixer, and its area is the peak memory of training. Left: the mean test "
        f"accuracy over {', '.join(FIVE)} at preset {board.preset}; bars show the standard "
        f"deviation over seeds or, for a single seed, the 95 % interval of the test examples.",
        f"Not drawn, without a mean or a speed: {left_out}." if left_out else "",
        "Right: the mean that papers report for the same mixers at full size, under protocols that "
        "differ from paper to paper." if len(panels) > 1 else "",
        f"Speeds and memory were measured here: steps per second, divided by those of "
        f"{speeds.relative_to} (geometric mean over {speeds.tasks}), on {speeds.device}.",
    ]  # fmt: skip
    return [
        ReportFigure(
            f"leaderboard-{board.slug}",
            "Mean accuracy over training speed",
            " ".join(filter(None, parts)),
            partial(draw_bubbles, panels, styles_of(drawn, styles)),
            is_wide=True,
        )
    ]


def draw_bubbles(panels: Sequence[Panel], styles: RowStyles) -> Figure:
    """Draw panels of bubbles side by side, with names where there is room."""
    count, width = len(panels), 4.6
    columns = min(_PANELS_A_ROW, count if count <= _PANELS_A_ROW else math.ceil(count / 2))
    if (limit := column_width()) is not None:
        columns = max(1, min(columns, int(limit // _NARROWEST)))
        width = limit / columns
    rows = math.ceil(count / columns)
    height = min(0.85 * width, _HIGHEST / rows)
    figure = new_figure(width=width * columns, height=height * rows + 2 * LEGEND_LINE)
    every = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in every[count:]:
        axes.set_visible(False)
    most = max(len(panel.bubbles) for panel in panels)
    largest = max(bubble.memory for panel in panels for bubble in panel.bubbles)
    scale = LARGEST_AREA / (2 if most > MANY else 1) / largest * min(1, width / 4)
    for axes, panel in zip(every, panels, strict=False):
        _draw_panel(axes, panel, styles, scale)
    _add_legend_of_sizes(every[0], largest, scale)
    arrange(figure)
    for axes, panel in zip(every, panels, strict=False):
        _name_bubbles(axes, panel, scale)
    return figure


def _draw_panel(axes: Axes, panel: Panel, styles: RowStyles, scale: float) -> None:
    for bubble in panel.bubbles:
        look = styles[bubble.row]
        axes.scatter(
            [bubble.x], [bubble.y], s=[scale * bubble.memory], facecolor=look["color"], alpha=0.8,
            edgecolor="white", hatch=HATCHES[look["fillstyle"]],
        )  # fmt: skip
        if bubble.interval is not None:
            draw_intervals(axes, [bubble.x], [bubble.interval], look["color"])
    axes.margins(0.14)
    if has_outlier([bubble.x for bubble in panel.bubbles]):
        set_log_scale(axes, "x")
    else:
        axes.locator_params(axis="x", nbins=5)
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x)
    place = axes.get_subplotspec()
    if place is not None and place.is_first_col():
        axes.set_ylabel(panel.y)


def _add_legend_of_sizes(axes: Axes, largest: float, scale: float) -> None:
    """Show below the panels what memory some areas stand for."""
    power = 10.0 ** math.floor(math.log10(largest))
    first = max(step for step in (1, 2, 5) if step * power <= largest * (1 + 1e-9)) * power
    sizes = [first, first / 4]
    handles = [axes.scatter([], [], s=scale * size, color="#bbbbbb") for size in sizes]
    names = [f"peak memory {first:,.0f} MiB", f"{first / 4:,.0f} MiB"]
    axes.figure.legend(handles, names, loc="outside lower center", ncols=2, borderpad=0.8)


def _name_bubbles(axes: Axes, panel: Panel, scale: float) -> None:
    """Write names beside bubbles, the highest first, each where it hides least.

    A name without any room inside the panel and off the other names is left out.
    """
    axes.autoscale(enable=False)  # lines to names must not move the bubbles
    dots = axes.figure.dpi / 72
    bubbles = sorted(panel.bubbles, key=lambda bubble: -bubble.y)
    centres = axes.transData.transform([(bubble.x, bubble.y) for bubble in bubbles])
    radii = [math.sqrt(scale * bubble.memory) / 2 * dots for bubble in bubbles]
    bars = [(b.x, y) for b in bubbles if b.interval for y in np.linspace(*b.interval, 9)]
    hidden = np.concatenate([
        *(centre + share * radius * _DIRECTIONS
          for centre, radius in zip(centres, radii, strict=True) for share in (0, 0.5, 1)),
        axes.transData.transform(np.reshape(bars, (-1, 2))),
    ])  # fmt: skip
    taken: list[Bbox] = []
    for bubble, centre, radius in zip(bubbles, centres, radii, strict=True):
        text = axes.text(bubble.x, bubble.y, legend_name(bubble.row), fontsize=7, va="bottom")
        size = np.array(text.get_window_extent().size)
        free = [
            (count + gap / 2, number, box)
            for number, (gap, box) in enumerate(_places(centre, radius, size, dots))
            if axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max)
            and not box.count_overlaps(taken)
            and (count := _count_inside(box, hidden)) <= _MOST_HIDDEN
        ]  # fmt: skip
        if not free:
            text.remove()
            continue
        *_, box = min(free)
        taken.append(box)
        way = np.clip(centre, box.min, box.max) - centre
        rim = centre + way * radius / np.hypot(*way)
        to_data = axes.transData.inverted().transform
        text.set_position((*to_data(box.min),))
        axes.plot(*to_data([rim, centre + way]).T, color="0.4", linewidth=0.4, zorder=0.9)


def _places(
    centre: np.ndarray, radius: float, size: np.ndarray, dots: float
) -> Iterator[tuple[float, Bbox]]:
    """List places of a name around a bubble, in pixels, with their distance to it in points."""
    from matplotlib.transforms import Bbox

    for gap in _GAPS:
        near = centre + (radius + gap * dots) * _DIRECTIONS
        for low in near + size * (np.clip(1.5 * _DIRECTIONS, -1, 1) - 1) / 2:
            yield gap, Bbox([low, low + size])


def _count_inside(box: Bbox, points: np.ndarray) -> int:
    """Count the points that lie in a box."""
    return int(np.sum(np.all((points > box.min) & (points < box.max), axis=1)))
