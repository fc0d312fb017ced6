"""Bubble plots: accuracy over speed, memory as area."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lra.report.accuracy import AVERAGES, averages
from lra.report.boards import Board
from lra.report.drawing import Looks, Picture, legend_below, new_figure, place_labels
from lra.report.speed import Speed, speed_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST_AREA = 900.0
"""Of a bubble, in square points."""


@dataclass(frozen=True)
class Bubble:
    """A point: x and y in the units of the axes, memory in MiB."""

    method: str
    text: str
    x: float
    y: float
    memory: float


def bubble_pictures(board: Board, baseline: str, looks: Looks, slug: str) -> list[Picture]:
    """Make the bubble plots of a board, for each device its own."""
    pictures: list[Picture] = []
    for k, device in enumerate(sorted({run.device for run in board.records})):
        speeds = _speeds(board, device)
        here = f"{slug}-{k}" if k else slug
        note = f"{board.name}; {device}. Area: peak memory of training."
        relative = relative_bubbles(board, baseline, speeds)
        is_relative = len({bubble.method for bubble in relative}) > 1
        if is_relative:
            pictures.append(
                Picture(
                    f"{here}-relative",
                    f"Speed and accuracy relative to {baseline}",
                    f"{note} Training speed and test accuracy in percent of {baseline}'s on the "
                    f"same task (after Figure 1a of the SKI-TNN paper).",
                    partial(_draw_relative, relative, baseline, looks),
                )
            )
        # Task by task, a figure would show what the relative one does.
        for name, tasks, bubbles in absolute_bubbles(board, speeds, taskwise=not is_relative):
            where = f"the {', '.join(tasks)} tasks" if len(tasks) > 1 else tasks[0]
            pictures.append(
                Picture(
                    f"{here}-{name.replace(' ', '-')}",
                    f"Accuracy over speed, {name}",
                    f"{note} Accuracy and speed on {where} (after Figure 3 of the Long Range "
                    f"Arena); speeds of several tasks by their geometric mean.",
                    partial(_draw_absolute, bubbles, name, looks),
                )
            )
    return pictures


def _speeds(board: Board, device: str) -> dict[tuple[str, str], Speed]:
    """Return the speeds of a board on one device, by method and task."""
    found: dict[tuple[str, str], Speed] = {}
    for method, cells in board.rows.items():
        for task, cell in cells.items():
            runs = [run for run in cell.runs if run.device == device]
            if runs and (speed := speed_of(runs)).steps_per_second is not None:
                found[method, task] = speed
    return found


def relative_bubbles(
    board: Board, baseline: str, speeds: dict[tuple[str, str], Speed]
) -> list[Bubble]:
    """Compare every method with the baseline, task by task: x and y in percent of its."""
    base = board.rows.get(baseline, {})
    bubbles = []
    for (method, task), speed in speeds.items():
        value = board.rows[method][task].value
        base_speed = speeds.get((baseline, task))
        base_value = base[task].value if task in base else None
        if value is None or base_value is None or base_speed is None:
            continue
        assert speed.steps_per_second and base_speed.steps_per_second
        assert speed.peak_memory_mib is not None
        x = 100 * speed.steps_per_second / base_speed.steps_per_second
        text = task
        if method == baseline:  # all of its bubbles are in one place
            text = "" if any(b.method == baseline for b in bubbles) else baseline
        bubbles.append(Bubble(method, text, x, 100 * value / base_value, speed.peak_memory_mib))
    return bubbles


def absolute_bubbles(
    board: Board, speeds: dict[tuple[str, str], Speed], *, taskwise: bool
) -> list[tuple[str, Sequence[str], list[Bubble]]]:
    """Set accuracy against steps/s: over the averaged tasks where two methods have them all.

    Args:
        taskwise: whether to go task by task where no two have.
    """
    found: list[tuple[str, Sequence[str], list[Bubble]]] = []
    for name, tasks in AVERAGES.items():
        bubbles = []
        for method, cells in board.rows.items():
            measured = [speed for task in tasks if (speed := speeds.get((method, task)))]
            mean = averages(cells)[name]
            if mean is not None and len(measured) == len(tasks):
                bubbles.append(_bubble(method, mean, measured))
        if len(bubbles) > 1:
            found.append((name, tasks, bubbles))
    if found or not taskwise:
        return found
    for task in board.tasks:
        bubbles = [
            _bubble(method, value, [speeds[method, task]])
            for method, cells in board.rows.items()
            if (method, task) in speeds and (value := cells[task].value) is not None
        ]
        if len(bubbles) > 1:
            found.append((task, [task], bubbles))
    return found


def _bubble(method: str, accuracy: float, speeds: Sequence[Speed]) -> Bubble:
    x = statistics.geometric_mean(s.steps_per_second or math.nan for s in speeds)
    return Bubble(method, method, x, accuracy, max(s.peak_memory_mib or 0.0 for s in speeds))


def _draw_relative(bubbles: list[Bubble], baseline: str, looks: Looks) -> Figure:
    figure = new_figure({bubble.method for bubble in bubbles})
    axes = figure.subplots()
    axes.axvline(100, color="#999999", linewidth=0.8)
    axes.axhline(100, color="#999999", linewidth=0.8)
    axes.set_xlabel(f"training speed, % of {baseline}'s")
    axes.set_ylabel(f"test accuracy, % of {baseline}'s")
    _draw(axes, bubbles, looks)
    return figure


def _draw_absolute(bubbles: list[Bubble], name: str, looks: Looks) -> Figure:
    figure = new_figure({bubble.method for bubble in bubbles})
    axes = figure.subplots()
    axes.set_xlabel("training speed, steps/s")
    axes.set_ylabel(f"test accuracy, {name}, %")
    _draw(axes, bubbles, looks)
    return figure


def _draw(axes: Axes, bubbles: list[Bubble], looks: Looks) -> None:
    """Draw bubbles, both legends and the labels; the axes' names are there already."""
    largest = max(bubble.memory for bubble in bubbles)
    by_method: dict[str, list[Bubble]] = {}
    for bubble in bubbles:
        by_method.setdefault(bubble.method, []).append(bubble)
    for method, group in sorted(by_method.items()):
        axes.scatter(
            [b.x for b in group],
            [b.y for b in group],
            s=[area(b.memory, largest) for b in group],
            color=looks.colour(method),
            alpha=0.65,
            edgecolor="white",
            label=method,
        )
    _leave_room(axes, bubbles)
    for handle in legend_below(axes):
        handle.set_sizes([40])
    _legend_of_sizes(axes, largest)
    order = [b for b in bubbles if b.text]
    place_labels(
        axes,
        [(b.x, b.y) for b in order],
        [b.text for b in order],
        [area(b.memory, largest) for b in order],
    )


def area(memory: float, largest: float) -> float:
    """Return the area of a bubble in square points, proportional to memory."""
    return LARGEST_AREA * memory / largest


def _leave_room(axes: Axes, bubbles: list[Bubble]) -> None:
    """Widen the limits so that bubbles and labels fit; speed and accuracy are never negative."""
    for values, setter in (
        ([b.x for b in bubbles], axes.set_xlim),
        ([b.y for b in bubbles], axes.set_ylim),
    ):
        low, high = min(values), max(values)
        margin = 0.18 * (high - low) or 0.1 * abs(high) or 1.0
        setter(max(0.0, low - margin), high + margin)


def _legend_of_sizes(axes: Axes, largest: float) -> None:
    """Show what memory some areas stand for."""
    sizes = [round_number(largest * share) for share in (1.0, 0.5, 0.25)]
    handles = [
        axes.scatter([], [], s=area(size, largest), color="#bbbbbb", label=f"{size:,.0f} MiB")
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
