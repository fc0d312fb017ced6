"""Bubble plots: accuracy over speed, memory as area."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lra.report.accuracy import AVERAGES, averages
from lra.report.boards import Board
from lra.report.drawing import (
    Looks,
    ReportFigure,
    legend_below,
    legend_name,
    new_figure,
    place_labels,
    slugify,
)
from lra.report.speed import Speed, speed_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST_AREA = 900.0
"""Area of the largest bubble, in square points; it is halved if there are more than MANY."""
MANY = 12


@dataclass(frozen=True)
class Bubble:
    """A bubble with its label: x and y in the units of the axes, memory in MiB."""

    method: str
    text: str
    x: float
    y: float
    memory: float


@dataclass(frozen=True)
class AbsolutePlot:
    """Accuracy over speed, on one task or averaged over several."""

    name: str
    tasks: Sequence[str]
    unit: str
    """Unit of speed: steps/s, or examples/s if mixers have batches of different sizes."""
    bubbles: list[Bubble]


Speeds = dict[tuple[str, str], Speed]
"""Speeds on one device, by method and task."""


def bubble_figures(board: Board, relative_to: str, looks: Looks, slug: str) -> list[ReportFigure]:
    """Make the bubble plots of a board, separately for each device."""
    return [p for made in bubbles_by_device(board, relative_to, looks, slug).values() for p in made]


def bubbles_by_device(
    board: Board, relative_to: str, looks: Looks, slug: str
) -> dict[str, list[ReportFigure]]:
    """Make the bubble plots of a board by the device whose speeds they show."""
    devices = sorted({run.device for run in board.records})
    slugs = [f"{slug}-device{k}" if k else slug for k in range(len(devices))]
    return {
        device: _bubbles_on(board, device, relative_to, looks, here)
        for device, here in zip(devices, slugs, strict=True)
    }


def _bubbles_on(
    board: Board, device: str, relative_to: str, looks: Looks, slug: str
) -> list[ReportFigure]:
    figures: list[ReportFigure] = []
    speeds = speeds_on(board, device)
    note = f"{board.name}; {device}. Area: peak memory of training."
    relative = relative_bubbles(board, relative_to, speeds)
    is_relative = len({bubble.method for bubble in relative}) > 1
    if is_relative:
        figures.append(
            ReportFigure(
                f"{slug}-relative",
                f"Speed and accuracy relative to {relative_to}",
                f"{note} Training speed in examples per second and test accuracy, in percent "
                f"of {relative_to}'s on the same task (after Figure 1a of the SKI-TNN paper).",
                partial(_draw_relative, relative, relative_to, looks),
            )
        )
    # Figures for single tasks would repeat what the relative figure shows.
    for plot in absolute_plots(board, speeds, taskwise=not is_relative):
        where = f"{', '.join(plot.tasks)}" + (
            "; speeds by their geometric mean" * (len(plot.tasks) > 1)
        )
        figures.append(
            ReportFigure(
                f"{slug}-{slugify(plot.name)}",
                f"Accuracy over speed, {plot.name}",
                f"{note} On {where} (after Figure 3 of the Long Range Arena).",
                partial(_draw_absolute, plot, looks),
            )
        )
    return figures


def speeds_on(board: Board, device: str) -> Speeds:
    """Return the speeds of a board that were measured on one device."""
    found: Speeds = {}
    for method, cells in board.rows.items():
        for task, cell in cells.items():
            runs = [run for run in cell.runs if run.device == device]
            if runs and (speed := speed_of(runs)).steps_per_second is not None:
                found[method, task] = speed
    return found


def relative_bubbles(board: Board, relative_to: str, speeds: Speeds) -> list[Bubble]:
    """Compare every method with one mixer, task by task.

    Args:
        board: the accuracies of all methods.
        relative_to: the mixer compared with; x and y are in percent of its speed and accuracy.
        speeds: the speeds of all methods.
    """
    base = board.rows.get(relative_to, {})
    bubbles = []
    for (method, task), speed in speeds.items():
        value = board.rows[method][task].value
        against = speeds.get((relative_to, task))
        base_value = base[task].value if task in base else None
        if value is None or not base_value or against is None:
            continue
        text = task
        if method == relative_to:  # all of its bubbles are in one place
            text = "" if any(b.method == relative_to for b in bubbles) else relative_to
        x = 100 * speed.examples_per_second / against.examples_per_second
        bubbles.append(Bubble(method, text, x, 100 * value / base_value, speed.memory))
    return bubbles


def absolute_plots(board: Board, speeds: Speeds, *, taskwise: bool) -> list[AbsolutePlot]:
    """Plot accuracy over speed, averaged over tasks if at least two methods have results on them.

    Args:
        board: the accuracies of all methods.
        speeds: the speeds of all methods.
        taskwise: whether to make a plot for each task if no average can be plotted.
    """
    plots = []
    for name, tasks in AVERAGES.items():
        means = {method: averages(cells)[name] for method, cells in board.rows.items()}
        plots.append(_absolute_plot(name, tasks, means, speeds))
    plots = [plot for plot in plots if len(plot.bubbles) > 1]
    if not plots and taskwise:
        for task in board.tasks:
            values = {m: cells[task].value for m, cells in board.rows.items() if task in cells}
            plots.append(_absolute_plot(task, [task], values, speeds))
    return [plot for plot in plots if len(plot.bubbles) > 1]


def _absolute_plot(
    name: str, tasks: Sequence[str], accuracies: Mapping[str, float | None], speeds: Speeds
) -> AbsolutePlot:
    """Plot the methods that have an accuracy, and a speed on every task."""
    found: dict[str, list[Speed]] = {}
    for method, accuracy in accuracies.items():
        measured = [speed for task in tasks if (speed := speeds.get((method, task)))]
        if accuracy is not None and len(measured) == len(tasks):
            found[method] = measured
    batches = {tuple(speed.batch_size for speed in measured) for measured in found.values()}
    in_steps = len(batches) <= 1
    bubbles = []
    for method, measured in found.items():
        x = statistics.geometric_mean(
            (s.steps_per_second or math.nan) if in_steps else s.examples_per_second
            for s in measured
        )
        memory = max(speed.memory for speed in measured)
        bubbles.append(Bubble(method, method, x, accuracies[method] or 0.0, memory))
    return AbsolutePlot(name, tasks, "steps/s" if in_steps else "examples/s", bubbles)


def _draw_relative(bubbles: list[Bubble], relative_to: str, looks: Looks) -> Figure:
    figure = new_figure({bubble.method for bubble in bubbles})
    axes = figure.subplots()
    axes.axvline(100, color="#999999", linewidth=0.8)
    axes.axhline(100, color="#999999", linewidth=0.8)
    axes.set_xlabel(f"training speed, % of {relative_to}'s")
    axes.set_ylabel(f"test accuracy, % of {relative_to}'s")
    _draw(axes, bubbles, looks, hollow=relative_to)  # its bubbles lie over one another
    return figure


def _draw_absolute(plot: AbsolutePlot, looks: Looks) -> Figure:
    figure = new_figure({bubble.method for bubble in plot.bubbles})
    axes = figure.subplots()
    axes.set_xlabel(f"training speed, {plot.unit}")
    axes.set_ylabel(f"test accuracy, {plot.name}, %")
    _draw(axes, plot.bubbles, looks)
    return figure


def _draw(axes: Axes, bubbles: list[Bubble], looks: Looks, hollow: str | None = None) -> None:
    """Draw bubbles, both legends and the labels; the axes must have their names already.

    Args:
        axes: where to draw.
        bubbles: the bubbles of all methods.
        looks: colours and markers of the methods.
        hollow: method whose bubbles are drawn as rings, so that they hide nothing.
    """
    scale = area_per_mib(bubbles)
    by_method: dict[str, list[Bubble]] = {}
    for bubble in bubbles:
        by_method.setdefault(bubble.method, []).append(bubble)
    for method, group in sorted(by_method.items()):
        colour, ring = looks.colour(method), method == hollow
        axes.scatter(
            [b.x for b in group],
            [b.y for b in group],
            s=[scale * b.memory for b in group],
            facecolor="none" if ring else colour,
            alpha=1.0 if ring else 0.65,
            edgecolor=colour if ring else "white",
            marker=looks.line(method)["marker"],  # colours return after eight methods
            label=legend_name(method),
        )
    _leave_room(axes, bubbles)
    for handle in legend_below(axes):
        handle.set_sizes([40])
    _legend_of_sizes(axes, max(bubble.memory for bubble in bubbles), scale)
    order = [b for b in bubbles if b.text]
    place_labels(
        axes,
        [(b.x, b.y) for b in order],
        [b.text for b in order],
        [scale * b.memory for b in order],
        [looks.colour(b.method) for b in order],
    )


def area_per_mib(bubbles: Sequence[Bubble]) -> float:
    """Return the square points that stand for a MiB of memory."""
    largest = LARGEST_AREA / (2 if len(bubbles) > MANY else 1)
    return largest / max(bubble.memory for bubble in bubbles)


def _leave_room(axes: Axes, bubbles: list[Bubble]) -> None:
    """Widen the limits so that bubbles and labels fit."""
    for values, setter in (
        ([b.x for b in bubbles], axes.set_xlim),
        ([b.y for b in bubbles], axes.set_ylim),
    ):
        low, high = min(values), max(values)
        margin = 0.18 * (high - low) or 0.1 * abs(high) or 1.0
        setter(low - margin, high + margin)
    for axis in (axes.xaxis, axes.yaxis):  # room, but neither speed nor accuracy is negative
        lowest, highest = axis.get_view_interval()
        axis.set_ticks([tick for tick in axis.get_ticklocs() if 0 <= tick <= highest])
        axis.set_view_interval(lowest, highest, ignore=True)


def _legend_of_sizes(axes: Axes, largest: float, scale: float) -> None:
    """Show what memory some areas stand for."""
    sizes = [round_number(largest * share) for share in (1.0, 0.5, 0.25)]
    handles = [
        axes.scatter([], [], s=scale * size, color="#bbbbbb", label=f"{size:,.0f} MiB")
        for size in dict.fromkeys(sizes)
    ]
    axes.figure.legend(
        handles=handles,
        title="peak memory",
        loc="outside right upper",
        labelspacing=2.4,
        borderpad=1.6,
        handletextpad=1.6,
    )


def round_number(value: float) -> float:
    """Round to one digit of 1, 2 or 5, downwards."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(step for step in (1, 2, 5, 10) if step * power <= value * (1 + 1e-9)) * power
